// SPDX-License-Identifier: GPL-2.0-only
/* Groups of managed ranges. Whether one lets its memory move is not kept: to set or to prevent moves nothing. */
#include <linux/fs.h>

#include "uvm.h"

NV_STATUS uvm_group_create(struct uvm_space *space, void *p)
{
	((struct uvm_group *)p)->id = space->next_group++;
	return NV_OK;
}

static NV_STATUS known_group(struct uvm_space *space, u64 id)
{
	return id < space->next_group ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;	/* 0: no group */
}

NV_STATUS uvm_group_destroy(struct uvm_space *space, void *p)
{
	u64 id = ((struct uvm_group *)p)->id;

	return id ? known_group(space, id) : NV_ERR_OBJECT_NOT_FOUND;
}

static NV_STATUS set_group(struct uvm_space *space, void *p)
{
	struct uvm_group_region *params = p;
	NV_STATUS status = known_group(space, params->id);

	if (status == NV_OK)
		status = uvm_managed_region(space, params->base, params->length);
	if (status == NV_OK)
		uvm_range_at(space, params->base)->group = params->id;
	return status;
}

NV_STATUS uvm_groups_check(struct uvm_space *space, void *p)
{
	struct uvm_groups *params = p;

	return params->count && params->count <= ARRAY_SIZE(params->id) ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

static NV_STATUS locked(struct file *filp, NV_STATUS (*run)(struct uvm_space *space, void *params), void *params)
{
	struct uvm_space *space = filp->private_data;
	NV_STATUS status;

	mutex_lock(&space->lock);
	status = run(space, params);
	mutex_unlock(&space->lock);
	return status;
}

noinline NV_STATUS uvm_api_set_range_group(void *params, struct file *filp)
{
	return locked(filp, set_group, params);
}

noinline NV_STATUS uvm_api_prevent_migration_range_groups(void *params, struct file *filp)
{
	return locked(filp, uvm_groups_check, params);
}
