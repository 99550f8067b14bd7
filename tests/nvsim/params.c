// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies between user space and the resource manager. The nested parameters of a call are copied here, after the outer
 * block and before any lock, and once only: what is allocated is what this second copy says.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "sim.h"

unsigned int sim_race_us;

noinline NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n)
{
	return copy_from_user(to, (const void __user __force *)from, n) ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

noinline NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n)
{
	return copy_to_user((void __user __force *)to, from, n) ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

NV_STATUS sim_params_in(struct sim_params *params, const struct sim_caller *by, u64 from, u32 size)
{
	NV_STATUS status;

	*params = (struct sim_params) { .from = from, .size = size, .user = by->user_params };
	if (!size || !from)
		return NV_OK;
	if (!params->user) {
		params->data = (void *)(unsigned long)from;
		return NV_OK;
	}
	if (size > SIM_PARAMS_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	params->data = kvmalloc(size, GFP_KERNEL);
	if (!params->data)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	if (sim_race_us)
		fsleep(sim_race_us);
	status = os_memcpy_from_user(params->data, (const void *)(unsigned long)from, size);
	if (status != NV_OK) {
		kvfree(params->data);
		params->data = NULL;
	}
	return status;
}

NV_STATUS sim_params_out(struct sim_params *params, NV_STATUS status)
{
	NV_STATUS copied = NV_OK;

	if (!params->user || !params->data)
		return status;
	if (status == NV_OK)
		copied = os_memcpy_to_user((void *)(unsigned long)params->from, params->data, params->size);
	kvfree(params->data);
	params->data = NULL;
	return status == NV_OK ? copied : status;
}
