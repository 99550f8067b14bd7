// SPDX-License-Identifier: GPL-2.0-only
#include "driver.h"
#include "lost.h"
#include "rmcall.h"

bool ds_lost(u32 client, u32 handle, enum rm_kind kind)
{
	const struct rm_class *class;
	u32 nr, status = ds_rm_class(client, handle, &nr);

	if (status)
		return status == NV_ERR_OBJECT_NOT_FOUND;
	/* the handle may have come to name an object of the driver's own */
	class = rm_abi_class(ds_abi_outer(), nr);
	return class && class->kind != kind;
}
