// SPDX-License-Identifier: GPL-2.0-only
/* The UVM ioctls of a compute program. What they answer is in rmStatus; their place in a structure differs. */
#include <linux/mm.h>
#include <linux/file.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "uvm.h"

#define INIT_FLAGS		3ull	/* UVM_INIT_FLAGS_MASK */
#define INIT_FLAG_MULTI_PROCESS	2u	/* UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE */
#define GPUS_MAX		256u	/* UVM_MAX_GPUS: room of perGpuAttributes */
#define GPU_ATTRIBUTES		36u	/* sizeof(UvmGpuMappingAttributes): the UUID and five words */

/* Parameter structures that only carry a region, a UUID or a group; the generated tables have the others. */
struct region { u64 base, length; u32 status; };
struct region_uuid { u64 base, length; u8 uuid[16]; u32 status; };
struct group_move { u64 id; u8 uuid[16]; u32 status; };
struct process_memory { u64 buffer, size, va, done; u32 status; };
struct by_uuid { u8 uuid[16]; u32 status; };
struct by_uuids { u8 a[16], b[16]; u32 status; };
struct only_status { u32 status; };
struct pageable { u8 access, pad[3]; u32 status; };

struct channel {
	struct list_head link;
	u32 client, handle;
	int gpu;
};

const u8 sim_cpu_uuid[16] = {	/* how UVM names the processor */
	0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
};

static struct uvm_gpu *registered(struct uvm_space *space, const u8 *uuid, struct sim_gpu **gpu)
{
	*gpu = sim_gpu_by_uuid(uuid);
	return *gpu && space->gpus[(*gpu)->index].registered ? &space->gpus[(*gpu)->index] : NULL;
}

/* The driver's own function of this name and these parameters, in a file of its own there. Here the space is there already. */
noinline NV_STATUS uvm_va_space_create(struct address_space *mapping, struct uvm_space **made, u64 flags)
{
	struct uvm_space *space = *made;

	if (flags & ~INIT_FLAGS)
		return NV_ERR_INVALID_ARGUMENT;
	space->initialized = true;
	space->flags = flags;
	/* only compared, never dereferenced */
	space->mm = flags & INIT_FLAG_MULTI_PROCESS ? NULL : current->mm;
	return NV_OK;
}

static NV_STATUS initialize(struct uvm_space *space, void *p)
{
	u64 flags = NV_GET(p, UVM_INITIALIZE_PARAMS, flags);

	if (space->initialized)
		return flags == space->flags ? NV_OK : NV_ERR_INVALID_ARGUMENT;
	return uvm_va_space_create(NULL, &space, flags);
}

static NV_STATUS mm_initialize(struct uvm_space *space, void *p)
{
	struct file *filp = fget(NV_GET(p, UVM_MM_INITIALIZE_PARAMS, uvmFd));
	bool ours = filp && filp->f_op == &uvm_fops;

	if (filp)
		fput(filp);
	return ours ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

static NV_STATUS register_gpu(struct uvm_space *space, void *p)
{
	struct sim_gpu *gpu = sim_gpu_by_uuid(NV_AT(p, UVM_REGISTER_GPU_PARAMS, gpu_uuid_uuid));

	if (!gpu)
		return NV_ERR_GENERIC;	/* as the genuine driver */
	if (space->gpus[gpu->index].registered)
		return NV_ERR_INVALID_DEVICE;
	space->gpus[gpu->index].registered = true;
	NV_PUT(p, UVM_REGISTER_GPU_PARAMS, numaEnabled, 0);
	NV_PUT(p, UVM_REGISTER_GPU_PARAMS, numaNodeId, ~0u);
	return NV_OK;
}

static void forget_vas(struct uvm_space *space, struct uvm_gpu *state, unsigned int index)
{
	struct uvm_range *range;

	if (!state->vas)
		return;
	list_for_each_entry(range, &space->ranges, link)
		sim_vas_unmap(state->vas, range->base, range->length);
	sim_vas_put(state->vas);
	state->vas = NULL;
}

static NV_STATUS unregister_gpu(struct uvm_space *space, void *p)
{
	struct by_uuid *params = p;
	struct sim_gpu *gpu;
	struct uvm_gpu *state = registered(space, params->uuid, &gpu);
	struct uvm_range *range;

	if (!state)
		return NV_ERR_INVALID_DEVICE;
	uvm_channels_drop(space, gpu->index);
	forget_vas(space, state, gpu->index);
	list_for_each_entry(range, &space->ranges, link)
		uvm_chunks_drop(range, gpu->index);
	state->registered = false;
	return NV_OK;
}

static NV_STATUS register_vas(struct uvm_space *space, void *p)
{
	struct sim_gpu *gpu;
	struct uvm_gpu *state = registered(space, NV_AT(p, UVM_REGISTER_GPU_VASPACE_PARAMS, gpuUuid_uuid), &gpu);
	NV_STATUS status;

	if (!state)
		return NV_ERR_INVALID_DEVICE;
	if (state->vas)
		return NV_ERR_INVALID_DEVICE;
	status = sim_uvm_get_vas(NV_GET(p, UVM_REGISTER_GPU_VASPACE_PARAMS, rmCtrlFd),
				 NV_GET(p, UVM_REGISTER_GPU_VASPACE_PARAMS, hClient),
				 NV_GET(p, UVM_REGISTER_GPU_VASPACE_PARAMS, hVaSpace), gpu, &state->vas);
	if (status == NV_OK)
		uvm_ranges_map(space, gpu->index);
	return status;
}

static NV_STATUS unregister_vas(struct uvm_space *space, void *p)
{
	struct by_uuid *params = p;
	struct sim_gpu *gpu;
	struct uvm_gpu *state = registered(space, params->uuid, &gpu);

	if (!state || !state->vas)
		return NV_ERR_INVALID_DEVICE;
	uvm_channels_drop(space, gpu->index);
	forget_vas(space, state, gpu->index);
	return NV_OK;
}

static NV_STATUS register_channel(struct uvm_space *space, void *p)
{
	struct sim_gpu *gpu;
	struct uvm_gpu *state = registered(space, NV_AT(p, UVM_REGISTER_CHANNEL_PARAMS, gpuUuid_uuid), &gpu);
	struct channel *channel;
	NV_STATUS status;

	if (!state || !state->vas)
		return NV_ERR_INVALID_DEVICE;
	channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	if (!channel)
		return NV_ERR_NO_MEMORY;
	channel->client = NV_GET(p, UVM_REGISTER_CHANNEL_PARAMS, hClient);
	channel->handle = NV_GET(p, UVM_REGISTER_CHANNEL_PARAMS, hChannel);
	channel->gpu = gpu->index;
	status = sim_uvm_register_channel(NV_GET(p, UVM_REGISTER_CHANNEL_PARAMS, rmCtrlFd), channel->client,
					  channel->handle, gpu, state->vas);
	if (status == NV_OK)
		list_add(&channel->link, &space->channels);
	else
		kfree(channel);
	return status;
}

/* gpu -1: of all */
void uvm_channels_drop(struct uvm_space *space, int gpu)
{
	struct channel *channel, *next;

	list_for_each_entry_safe(channel, next, &space->channels, link) {
		if (gpu >= 0 && channel->gpu != gpu)
			continue;
		sim_uvm_unregister_channel(channel->client, channel->handle);
		list_del(&channel->link);
		kfree(channel);
	}
}

static NV_STATUS unregister_channel(struct uvm_space *space, void *p)
{
	struct channel *channel;

	list_for_each_entry(channel, &space->channels, link) {
		if (channel->client != NV_GET(p, UVM_UNREGISTER_CHANNEL_PARAMS, hClient) ||
		    channel->handle != NV_GET(p, UVM_UNREGISTER_CHANNEL_PARAMS, hChannel))
			continue;
		sim_uvm_unregister_channel(channel->client, channel->handle);
		list_del(&channel->link);
		kfree(channel);
		return NV_OK;
	}
	return NV_ERR_INVALID_CHANNEL;
}

static NV_STATUS create_external(struct uvm_space *space, void *p)
{
	struct uvm_range *range;

	return uvm_range_add(space, UVM_EXTERNAL, NV_GET(p, UVM_CREATE_EXTERNAL_RANGE_PARAMS, base),
			     NV_GET(p, UVM_CREATE_EXTERNAL_RANGE_PARAMS, length), &range);
}

static NV_STATUS parallelism_region(struct uvm_space *space, void *p)
{
	struct uvm_range *range;
	struct sim_gpu *gpu;

	if (!registered(space, NV_AT(p, UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS, gpuUuid_uuid), &gpu))
		return NV_ERR_INVALID_DEVICE;
	return uvm_range_add(space, UVM_EXTERNAL, NV_GET(p, UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS, base),
			     NV_GET(p, UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS, length), &range);
}

static NV_STATUS alloc_pool(struct uvm_space *space, void *p)
{
	struct uvm_range *range;

	return uvm_range_add(space, UVM_POOL, NV_GET(p, UVM_ALLOC_SEMAPHORE_POOL_PARAMS, base),
			     NV_GET(p, UVM_ALLOC_SEMAPHORE_POOL_PARAMS, length), &range);
}

/* Each mapping holds the memory by a duplicate of its own. */
static NV_STATUS map_one(struct uvm_space *space, struct uvm_range *range, unsigned int gpu, void *p)
{
	u64 base = NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, base);
	u64 length = NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, length);
	u64 offset = NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, offset);
	struct uvm_map *map, *old, *next;
	struct sim_memory *memory;
	NV_STATUS status;

	if (!space->gpus[gpu].vas)
		return NV_ERR_INVALID_DEVICE;
	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return NV_ERR_NO_MEMORY;
	*map = (struct uvm_map) { .va = base, .length = length, .gpu = gpu };
	status = nvUvmInterfaceDupMemory(&sim_gpus[gpu], NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, hClient),
					 NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, hMemory), &map->dup, &memory);
	if (status != NV_OK) {
		kfree(map);
		return status;
	}
	list_add(&map->link, &range->maps);
	if (offset > memory->size || length > memory->size - offset)
		status = NV_ERR_INVALID_OFFSET;
	else if (sim_vas_map(space->gpus[gpu].vas, base, length, memory, offset, true))
		status = NV_ERR_NO_MEMORY;
	if (status != NV_OK) {
		uvm_map_drop(map);
		return status;
	}
	/* what was mapped in the same place for that GPU is replaced */
	list_for_each_entry_safe(old, next, &range->maps, link)
		if (old != map && old->gpu == gpu && old->va >= base && old->va + old->length <= base + length)
			uvm_map_drop(old);
	return NV_OK;
}

static NV_STATUS map_external(struct uvm_space *space, void *p)
{
	u64 base = NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, base);
	u64 length = NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, length);
	u64 count = NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, gpuAttributesCount);
	const u8 *attributes = NV_AT(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, perGpuAttributes);
	struct uvm_range *range = uvm_range_at(space, base);
	struct sim_gpu *gpu;
	NV_STATUS status;

	if (!count || count > GPUS_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (!range || range->kind != UVM_EXTERNAL || !length || length > range->base + range->length - base)
		return NV_ERR_INVALID_ADDRESS;
	status = sim_uvm_check_client(NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, rmCtrlFd),
				      NV_GET(p, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, hClient));
	for (u64 i = 0; i < count && status == NV_OK; i++) {
		if (!registered(space, attributes + i * GPU_ATTRIBUTES, &gpu))
			status = NV_ERR_INVALID_DEVICE;
		else
			status = map_one(space, range, gpu->index, p);
	}
	return status;
}

static NV_STATUS unmap_external(struct uvm_space *space, void *p)
{
	u64 base = NV_GET(p, UVM_UNMAP_EXTERNAL_PARAMS, base), length = NV_GET(p, UVM_UNMAP_EXTERNAL_PARAMS, length);
	struct uvm_range *range = uvm_range_at(space, base);
	struct uvm_map *map, *next;
	struct sim_gpu *gpu;

	if (!registered(space, NV_AT(p, UVM_UNMAP_EXTERNAL_PARAMS, gpuUuid_uuid), &gpu))
		return NV_ERR_INVALID_DEVICE;
	if (!range || range->kind != UVM_EXTERNAL || length > range->base + range->length - base)
		return NV_ERR_INVALID_ADDRESS;
	list_for_each_entry_safe(map, next, &range->maps, link) {
		if (map->gpu == gpu->index && map->va >= base && map->va + map->length <= base + length)
			uvm_map_drop(map);
	}
	if (space->gpus[gpu->index].vas)
		sim_vas_unmap(space->gpus[gpu->index].vas, base, length);
	return NV_OK;
}

/* Ends an external range or a pool; managed ranges end by munmap. */
static NV_STATUS free_range(struct uvm_space *space, void *p)
{
	u64 base = NV_GET(p, UVM_FREE_PARAMS, base);
	struct uvm_range *range = uvm_range_at(space, base);

	if (!range || range->base != base || range->kind == UVM_MANAGED)
		return NV_ERR_INVALID_ADDRESS;
	uvm_range_remove(space, range);
	return NV_OK;
}

static NV_STATUS validate_range(struct uvm_space *space, void *p)
{
	struct region *params = p;
	struct uvm_range *range = uvm_range_at(space, params->base);

	return range && range->base == params->base && range->length == params->length ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

/* Policies of managed memory: checked, without effect. */
NV_STATUS uvm_managed_region(struct uvm_space *space, u64 base, u64 length)
{
	struct uvm_range *range = uvm_range_at(space, base);

	if (!length || !range || range->kind != UVM_MANAGED || length > range->base + range->length - base)
		return NV_ERR_INVALID_ADDRESS;
	return NV_OK;
}

static NV_STATUS policy(struct uvm_space *space, void *p)
{
	struct region *params = p;

	return uvm_managed_region(space, params->base, params->length);
}

static NV_STATUS policy_uuid(struct uvm_space *space, void *p)
{
	struct region_uuid *params = p;
	struct sim_gpu *gpu;

	if (memcmp(params->uuid, sim_cpu_uuid, sizeof(sim_cpu_uuid)) && !registered(space, params->uuid, &gpu))
		return NV_ERR_INVALID_DEVICE;
	return uvm_managed_region(space, params->base, params->length);
}

static NV_STATUS peers(struct uvm_space *space, void *p)
{
	struct by_uuids *params = p;
	struct sim_gpu *a, *b;

	return registered(space, params->a, &a) && registered(space, params->b, &b) && a != b ? NV_OK :
	       NV_ERR_INVALID_DEVICE;
}

static NV_STATUS pageable_access(struct uvm_space *space, void *p)
{
	((struct pageable *)p)->access = 0;
	return NV_OK;
}

static NV_STATUS nothing(struct uvm_space *space, void *p)
{
	return NV_OK;
}

struct call {
	u32 nr, status_at;
	NV_STATUS (*run)(struct uvm_space *space, void *params);
	bool early;		/* before INITIALIZE */
	NV_STATUS (*api)(void *params, struct file *filp);	/* instead of run; locks by itself */
};

#define STATUS(s)	s##_PARAMS__rmStatus__at

/* Runs a call and writes rmStatus; NV_ERR_INVALID_COMMAND: there is no such call. */
NV_STATUS uvm_call(struct file *filp, u32 nr, void *params)
{
	struct uvm_space *space = filp->private_data;
	const struct call calls[] = {
		{ UVM_INITIALIZE, STATUS(UVM_INITIALIZE), initialize, true },
		{ UVM_MM_INITIALIZE, STATUS(UVM_MM_INITIALIZE), mm_initialize, true },
		{ UVM_REGISTER_GPU, STATUS(UVM_REGISTER_GPU), register_gpu },
		{ UVM_UNREGISTER_GPU, offsetof(struct by_uuid, status), unregister_gpu },
		{ UVM_REGISTER_GPU_VASPACE, STATUS(UVM_REGISTER_GPU_VASPACE), register_vas },
		{ UVM_UNREGISTER_GPU_VASPACE, offsetof(struct by_uuid, status), unregister_vas },
		{ UVM_REGISTER_CHANNEL, STATUS(UVM_REGISTER_CHANNEL), register_channel },
		{ UVM_UNREGISTER_CHANNEL, STATUS(UVM_UNREGISTER_CHANNEL), unregister_channel },
		{ UVM_CREATE_EXTERNAL_RANGE, STATUS(UVM_CREATE_EXTERNAL_RANGE), create_external },
		{ UVM_MAP_EXTERNAL_ALLOCATION, STATUS(UVM_MAP_EXTERNAL_ALLOCATION), map_external },
		{ UVM_UNMAP_EXTERNAL, STATUS(UVM_UNMAP_EXTERNAL), unmap_external },
		{ UVM_MAP_DYNAMIC_PARALLELISM_REGION, STATUS(UVM_MAP_DYNAMIC_PARALLELISM_REGION), parallelism_region },
		{ UVM_ALLOC_SEMAPHORE_POOL, STATUS(UVM_ALLOC_SEMAPHORE_POOL), alloc_pool },
		{ UVM_FREE, STATUS(UVM_FREE), free_range },
		{ UVM_VALIDATE_VA_RANGE, offsetof(struct region, status), validate_range },
		{ UVM_MIGRATE, STATUS(UVM_MIGRATE), .api = uvm_api_migrate },
		{ UVM_MIGRATE_RANGE_GROUP, offsetof(struct group_move, status), .api = uvm_api_migrate_range_group },
		{ UVM_TOOLS_READ_PROCESS_MEMORY, offsetof(struct process_memory, status), .api = uvm_api_tools_read_process_memory },
		{ UVM_TOOLS_WRITE_PROCESS_MEMORY, offsetof(struct process_memory, status), .api = uvm_api_tools_write_process_memory },
		{ UVM_SET_PREFERRED_LOCATION, STATUS(UVM_SET_PREFERRED_LOCATION), policy_uuid },
		{ UVM_UNSET_PREFERRED_LOCATION, offsetof(struct region, status), policy },
		{ UVM_ENABLE_READ_DUPLICATION, offsetof(struct region, status), policy },
		{ UVM_DISABLE_READ_DUPLICATION, offsetof(struct region, status), policy },
		{ UVM_SET_ACCESSED_BY, offsetof(struct region_uuid, status), policy_uuid },
		{ UVM_UNSET_ACCESSED_BY, offsetof(struct region_uuid, status), policy_uuid },
		{ UVM_CREATE_RANGE_GROUP, offsetof(struct uvm_group, status), uvm_group_create },
		{ UVM_DESTROY_RANGE_GROUP, offsetof(struct uvm_group, status), uvm_group_destroy },
		{ UVM_SET_RANGE_GROUP, offsetof(struct uvm_group_region, status), .api = uvm_api_set_range_group },
		{ UVM_PREVENT_MIGRATION_RANGE_GROUPS, offsetof(struct uvm_groups, status), .api = uvm_api_prevent_migration_range_groups },
		{ UVM_ALLOW_MIGRATION_RANGE_GROUPS, offsetof(struct uvm_groups, status), uvm_groups_check },
		{ UVM_ENABLE_PEER_ACCESS, offsetof(struct by_uuids, status), peers },
		{ UVM_DISABLE_PEER_ACCESS, offsetof(struct by_uuids, status), peers },
		{ UVM_PAGEABLE_MEM_ACCESS, offsetof(struct pageable, status), pageable_access },
		{ UVM_CLEAN_UP_ZOMBIE_RESOURCES, offsetof(struct only_status, status), nothing },
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		NV_STATUS status;

		if (calls[i].nr != nr)
			continue;
		mutex_lock(&space->lock);
		status = space->initialized || calls[i].early ? NV_OK : NV_ERR_ILLEGAL_ACTION;
		if (status == NV_OK && calls[i].run)
			status = calls[i].run(space, params);
		mutex_unlock(&space->lock);
		if (status == NV_OK && calls[i].api)
			status = calls[i].api(params, filp);
		sim_put(params, calls[i].status_at, sizeof(u32), status);
		return NV_OK;
	}
	return NV_ERR_INVALID_COMMAND;
}
