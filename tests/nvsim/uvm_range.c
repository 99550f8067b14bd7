// SPDX-License-Identifier: GPL-2.0-only
/* The ranges of a UVM VA space, and the device memory that managed ranges take. */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "uvm.h"

struct uvm_space *uvm_space_create(void)
{
	struct uvm_space *space = kzalloc(sizeof(*space), GFP_KERNEL);

	if (!space)
		return NULL;
	mutex_init(&space->lock);
	kref_init(&space->ref);
	INIT_LIST_HEAD(&space->ranges);
	INIT_LIST_HEAD(&space->channels);
	space->next_group = 1;
	xa_init(&space->touched);
	INIT_WORK(&space->service, uvm_service_faults);
	return space;
}

static void unmap_everywhere(struct uvm_space *space, u64 va, u64 length)
{
	for (unsigned int i = 0; i < SIM_GPUS_MAX; i++)
		if (space->gpus[i].vas)
			sim_vas_unmap(space->gpus[i].vas, va, length);
}

void uvm_map_drop(struct uvm_map *map)
{
	nvUvmInterfaceFreeDupedHandle(&sim_gpus[map->gpu], map->dup);
	list_del(&map->link);
	kfree(map);
}

void uvm_range_remove(struct uvm_space *space, struct uvm_range *range)
{
	struct uvm_map *map, *next;

	unmap_everywhere(space, range->base, range->length);
	list_for_each_entry_safe(map, next, &range->maps, link)
		uvm_map_drop(map);
	uvm_chunks_drop(range, -1);
	xa_destroy(&range->chunks);
	sim_memory_put(range->memory);
	list_del(&range->link);
	kfree(range);
}

static void space_release(struct kref *ref)
{
	struct uvm_space *space = container_of(ref, struct uvm_space, ref);
	struct uvm_range *range, *next;

	/* nobody else is left; the RM's lock may be taken, no mmap_lock is held */
	uvm_channels_drop(space, -1);
	mutex_lock(&space->lock);
	list_for_each_entry_safe(range, next, &space->ranges, link)
		uvm_range_remove(space, range);
	mutex_unlock(&space->lock);
	for (unsigned int i = 0; i < SIM_GPUS_MAX; i++)
		sim_vas_put(space->gpus[i].vas);
	xa_destroy(&space->touched);
	kfree(space);
}

void uvm_space_put(struct uvm_space *space)
{
	kref_put(&space->ref, space_release);
}

struct uvm_range *uvm_range_at(struct uvm_space *space, u64 va)
{
	struct uvm_range *range;

	list_for_each_entry(range, &space->ranges, link)
		if (va - range->base < range->length)
			return range;
	return NULL;
}

NV_STATUS uvm_range_add(struct uvm_space *space, enum uvm_kind kind, u64 base, u64 length, struct uvm_range **result)
{
	struct uvm_range *range;

	if (!length || base % PAGE_SIZE || length % PAGE_SIZE || base + length < base)
		return NV_ERR_INVALID_ADDRESS;
	list_for_each_entry(range, &space->ranges, link)
		if (base < range->base + range->length && range->base < base + length)
			return NV_ERR_UVM_ADDRESS_IN_USE;
	range = kzalloc(sizeof(*range), GFP_KERNEL);
	if (!range)
		return NV_ERR_NO_MEMORY;
	range->kind = kind;
	range->base = base;
	range->length = length;
	INIT_LIST_HEAD(&range->maps);
	xa_init(&range->chunks);
	if (kind != UVM_EXTERNAL) {
		range->memory = sim_memory_create(NULL, SIM_SYSMEM, length);
		if (!range->memory) {
			kfree(range);
			return NV_ERR_NO_MEMORY;
		}
	}
	list_add(&range->link, &space->ranges);
	if (kind == UVM_MANAGED)
		uvm_watch(space, range);
	if (range->memory)
		for (unsigned int i = 0; i < SIM_GPUS_MAX; i++)
			if (space->gpus[i].vas)
				sim_vas_map(space->gpus[i].vas, base, length, range->memory, range->offset, true);
	*result = range;
	return NV_OK;
}

/* A GPU that comes later sees what is there. */
void uvm_ranges_map(struct uvm_space *space, unsigned int gpu)
{
	struct uvm_range *range;

	list_for_each_entry(range, &space->ranges, link)
		if (range->memory)
			sim_vas_map(space->gpus[gpu].vas, range->base, range->length, range->memory, range->offset, true);
}

/* A mapping was cut in two: the part from va on becomes a range of its own. */
struct uvm_range *uvm_range_split(struct uvm_space *space, struct uvm_range *range, u64 va)
{
	struct uvm_range *tail = kzalloc(sizeof(*tail), GFP_KERNEL);
	u64 head = va - range->base;

	if (!tail)
		return NULL;
	tail->kind = range->kind;
	tail->base = va;
	tail->length = range->length - head;
	tail->offset = range->offset + head;
	tail->group = range->group;
	INIT_LIST_HEAD(&tail->maps);
	xa_init(&tail->chunks);
	tail->memory = sim_memory_get(range->memory);
	range->length = head;
	uvm_chunks_split(range, tail);
	list_add(&tail->link, &space->ranges);
	return tail;
}

/* ---- UVM_MIGRATE ---- */

static NV_STATUS migrate(struct uvm_space *space, u64 base, u64 length, const u8 *uuid)
{
	struct sim_gpu *gpu = sim_gpu_by_uuid(uuid);
	struct uvm_range *range;
	NV_STATUS status = NV_OK;
	u64 end = base + length, at = base;

	if (!length || base % PAGE_SIZE || length % PAGE_SIZE || end < base)
		return NV_ERR_INVALID_ADDRESS;
	if (!gpu && memcmp(uuid, sim_cpu_uuid, sizeof(sim_cpu_uuid)))
		return NV_ERR_INVALID_DEVICE;
	if (gpu && !space->gpus[gpu->index].registered)
		return NV_ERR_INVALID_DEVICE;
	while (at < end && status == NV_OK) {
		u64 part;

		range = uvm_range_at(space, at);
		if (!range || range->kind != UVM_MANAGED)
			return NV_ERR_INVALID_ADDRESS;
		part = min(end, range->base + range->length) - at;
		if (gpu)
			status = uvm_chunks_enter(range, at, at + part, gpu);
		else
			uvm_chunks_leave(range, at, at + part, NULL);
		at += part;
	}
	return status;
}

noinline NV_STATUS uvm_api_migrate(void *params, struct file *filp)
{
	struct uvm_space *space = filp->private_data;
	NV_STATUS status;

	mutex_lock(&space->lock);
	status = migrate(space, NV_GET(params, UVM_MIGRATE_PARAMS, base), NV_GET(params, UVM_MIGRATE_PARAMS, length),
			 NV_AT(params, UVM_MIGRATE_PARAMS, destinationUuid_uuid));
	mutex_unlock(&space->lock);
	return status;
}

noinline NV_STATUS uvm_api_migrate_range_group(void *params, struct file *filp)
{
	const struct { u64 id; u8 uuid[16]; } *asked = params;
	struct uvm_space *space = filp->private_data;
	NV_STATUS status = NV_ERR_OBJECT_NOT_FOUND;
	struct uvm_range *range;

	mutex_lock(&space->lock);
	if (asked->id && asked->id < space->next_group)
		status = NV_OK;
	list_for_each_entry(range, &space->ranges, link)
		if (status == NV_OK && range->group == asked->id)
			status = migrate(space, range->base, range->length, asked->uuid);
	mutex_unlock(&space->lock);
	return status;
}

/* Whether the memory is there; no byte is copied. */
static NV_STATUS has_managed(void *params, struct file *filp)
{
	const struct { u64 buffer, size, va; } *asked = params;
	struct uvm_space *space = filp->private_data;
	struct uvm_range *range;
	NV_STATUS status;

	mutex_lock(&space->lock);
	range = uvm_range_at(space, asked->va);
	status = range && range->kind == UVM_MANAGED ? NV_OK : NV_ERR_INVALID_ADDRESS;
	mutex_unlock(&space->lock);
	return status;
}

noinline NV_STATUS uvm_api_tools_read_process_memory(void *params, struct file *filp)
{
	return has_managed(params, filp);
}

noinline NV_STATUS uvm_api_tools_write_process_memory(void *params, struct file *filp)
{
	return has_managed(params, filp);
}
