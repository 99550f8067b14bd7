// SPDX-License-Identifier: GPL-2.0-only
#include "bucket.h"
#include "lease.h"
#include "orders.h"
#include "steered.h"

bool ds_process_managed(const struct ds_process *process)
{
	struct ds_order order;

	return ds_orders_of(process, &order);
}

bool ds_process_steered(struct ds_process *process)
{
	return ds_process_managed(process) || ds_holds_of(process) || ds_bucket_meant(process);
}
