// SPDX-License-Identifier: GPL-2.0-only
/* Controls of a GPU: its name, its memory, who uses how much of it; and the size of one memory. */
#include "control.h"

#define GID_RAW			2u		/* flag: 16 bytes instead of text */
#define SURFACE_SCALE		0x1000u		/* NV0041_CTRL_SURFACE_INFO_PHYS_SIZE_SCALE_FACTOR */
#define PIDS_MAX		950
#define PID_INFO_MAX		200
#define PIDS_BY_CLASS		0
#define NO_PARTITION		0xffffffffu
#define GPCS_MAX		32u
#define TPCS_PER_GPC		9u

#define GET(s, f)	NV_GET(ask->params, s, f)
#define PUT(s, f, v)	NV_PUT(ask->params, s, f, v)

static NV_STATUS gid(struct sim_ask *ask)
{
	u8 *data = NV_AT(ask->params, NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, data);
	const u8 *uuid = ask->object->gpu->uuid;
	int length = 16;

	if (GET(NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, index))
		return NV_ERR_INVALID_ARGUMENT;
	if (GET(NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, flags) & GID_RAW)
		memcpy(data, uuid, length);
	else
		length = 1 + sprintf(data, "GPU-%pUb", uuid);
	PUT(NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, length, length);
	return NV_OK;
}

/* ---- memory of the GPU, in KiB ---- */

static bool fb_value(struct sim_heap *heap, u32 index, u32 *value)
{
	u64 bytes;

	switch (index) {
	case NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_MAPPABLE_HEAP_SIZE:
		bytes = heap->size;
		break;
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE:
	case NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_SIZE_KB:
		bytes = sim_heap_free(heap);
		break;
	case NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_BASE_KB:
		bytes = heap->size - sim_heap_free(heap);
		break;
	case NV2080_CTRL_FB_INFO_INDEX_FB_TAX_SIZE_KB:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_BASE_KB:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_START:
	case NV2080_CTRL_FB_INFO_INDEX_VISTA_RESERVED_HEAP_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_OFFLINE_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_PROTECTED_MEM_SIZE_TOTAL_KB:
	case NV2080_CTRL_FB_INFO_INDEX_PROTECTED_MEM_SIZE_FREE_KB:
		bytes = 0;
		break;
	default:
		return false;
	}
	*value = bytes >> 10;
	return true;
}

/* list: {index, data} pairs */
static NV_STATUS fb_list(struct sim_gpu *gpu, u32 *list, u32 count)
{
	u32 pair[3], value;

	for (u32 i = 0; i < count; i++, list += 2) {
		if (list[0] >= NV2080_CTRL_FB_INFO_INDEX_MAX && list[0] != NV2080_CTRL_FB_INFO_INDEX_NUMA_NODE_ID)
			return NV_ERR_INVALID_ARGUMENT;
		if (!fb_value(&gpu->heap, list[0], &value)) {
			/* what the memory is, rather than how much: as an H100 said */
			pair[0] = 1;
			pair[1] = list[0];
			pair[2] = 0;
			sim_answer(NV2080_CTRL_CMD_FB_GET_INFO_V2, pair, sizeof(pair));
			value = pair[2];
		}
		list[1] = value;
	}
	return NV_OK;
}

static NV_STATUS fb_info_v2(struct sim_ask *ask)
{
	u32 *params = ask->params, most = (ask->size - sizeof(u32)) / 8;

	if (params[0] > most)
		return NV_ERR_INVALID_ARGUMENT;
	return fb_list(ask->object->gpu, params + 1, params[0]);
}

static NV_STATUS fb_info(struct sim_ask *ask)
{
	return ask->list ? fb_list(ask->object->gpu, ask->list, ask->count) : NV_OK;
}

static NV_STATUS surface_info(struct sim_ask *ask)
{
	struct sim_memory *memory = ask->object->memory;
	u32 *list = ask->list;

	for (u32 i = 0; list && i < ask->count; i++, list += 2) {
		switch (list[0]) {
		case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE:
			if (memory->size / SURFACE_SCALE > U32_MAX)
				return NV_ERR_OUT_OF_RANGE;
			list[1] = memory->size / SURFACE_SCALE;
			break;
		case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE_LO:
			list[1] = lower_32_bits(memory->size);
			break;
		case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE_HI:
			list[1] = upper_32_bits(memory->size);
			break;
		case NV0041_CTRL_SURFACE_INFO_INDEX_ADDR_SPACE_TYPE:
			list[1] = memory->type == SIM_VIDMEM ? 2 : memory->type == SIM_REGISTERS ? 3 : 1;
			break;
		case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_ATTR:
		case NV0041_CTRL_SURFACE_INFO_INDEX_ATTRS:
		case NV0041_CTRL_SURFACE_INFO_INDEX_COMPR_COVERAGE:
			list[1] = 0;
			break;
		default:
			return NV_ERR_INVALID_ARGUMENT;
		}
	}
	return NV_OK;
}

/* ---- processes ---- */

static bool client_has(struct sim_client *client, struct sim_gpu *gpu, u32 class)
{
	struct sim_object *object;
	unsigned long handle;

	xa_for_each(&client->objects, handle, object) {
		/* of any other class, whoever has something that hangs on a channel is meant */
		if (class == NV20_SUBDEVICE_0 || class == MPS_COMPUTE ? object->class == class :
		    object->parent && object->parent->kind == KIND_KernelChannel && object->class == class) {
			if (object->gpu == gpu || class == MPS_COMPUTE)
				return true;
		}
	}
	return false;
}

static NV_STATUS pids(struct sim_ask *ask)
{
	u32 class = GET(NV2080_CTRL_GPU_GET_PIDS_PARAMS, id), count = 0;
	struct sim_client *client;
	unsigned long handle;

	if (GET(NV2080_CTRL_GPU_GET_PIDS_PARAMS, idType) != PIDS_BY_CLASS)
		return NV_ERR_INVALID_ARGUMENT;
	xa_for_each(&sim_clients, handle, client) {
		bool seen = false;

		if (!client->pid || !client_has(client, ask->object->gpu, class))
			continue;
		for (u32 i = 0; i < count && !seen; i++)
			seen = NV_GETI(ask->params, NV2080_CTRL_GPU_GET_PIDS_PARAMS, pidTbl, i) == client->pid;
		if (!seen && count < PIDS_MAX)
			NV_PUTI(ask->params, NV2080_CTRL_GPU_GET_PIDS_PARAMS, pidTbl, count++, client->pid);
	}
	PUT(NV2080_CTRL_GPU_GET_PIDS_PARAMS, pidTblCount, count);
	return NV_OK;
}

struct usage {
	u64 mine, shared_owned, shared_duped;
};

/* Each memory once for a process, however many handles it has there. */
static bool counted_before(struct sim_client *client, struct sim_object *object)
{
	struct sim_object *other;
	unsigned long handle;

	xa_for_each(&client->objects, handle, other) {
		if (other == object)
			return false;
		if (sim_kind_isa(other->kind, KIND_Memory) && other->memory == object->memory)
			return true;
	}
	return false;
}

static void add_client(struct sim_client *client, struct sim_gpu *gpu, struct usage *usage)
{
	struct sim_object *object;
	unsigned long handle;

	xa_for_each(&client->objects, handle, object) {
		struct sim_memory *memory;

		if (!sim_kind_isa(object->kind, KIND_Memory))
			continue;
		memory = object->memory;
		if (memory->type != SIM_VIDMEM || memory->gpu != gpu)
			continue;
		if (atomic_read(&memory->users) == 1)
			usage->mine += memory->size;
		else if (!counted_before(client, object))
			usage->shared_owned += memory->size;
	}
}

#define ENTRY(f, v)	NV_PUT(entry, NV2080_CTRL_GPU_PID_INFO, f, v)

static NV_STATUS pid_info(struct sim_ask *ask)
{
	u32 count = GET(NV2080_CTRL_GPU_GET_PID_INFO_PARAMS, pidInfoListCount);
	u8 *entry = NV_AT(ask->params, NV2080_CTRL_GPU_GET_PID_INFO_PARAMS, pidInfoList);

	if (!count || count > PID_INFO_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	for (u32 i = 0; i < count; i++, entry += NV_SIZE(NV2080_CTRL_GPU_PID_INFO)) {
		struct usage usage = { };
		struct sim_client *client;
		unsigned long handle;

		ENTRY(smcSubscription_computeInstanceId, NO_PARTITION);
		ENTRY(smcSubscription_gpuInstanceId, NO_PARTITION);
		if (NV_GET(entry, NV2080_CTRL_GPU_PID_INFO, index) !=
		    NV2080_CTRL_GPU_PID_INFO_INDEX_VIDEO_MEMORY_USAGE) {
			ENTRY(result, NV_ERR_INVALID_ARGUMENT);
			continue;
		}
		xa_for_each(&sim_clients, handle, client)
			if (client->pid && client->pid == NV_GET(entry, NV2080_CTRL_GPU_PID_INFO, pid))
				add_client(client, ask->object->gpu, &usage);
		ENTRY(result, NV_OK);
		ENTRY(data_vidMemUsage_memPrivate, usage.mine);
		ENTRY(data_vidMemUsage_memSharedOwned, usage.shared_owned);
		ENTRY(data_vidMemUsage_memSharedDuped, usage.shared_duped);
		ENTRY(data_vidMemUsage_protectedMemPrivate, 0);
		ENTRY(data_vidMemUsage_protectedMemSharedOwned, 0);
		ENTRY(data_vidMemUsage_protectedMemSharedDuped, 0);
	}
	return NV_OK;
}

/* NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS */
static NV_STATUS ctx_buffer_size(struct sim_ask *ask)
{
	struct {
		u32 channel, pad;
		u64 total;
	} *params = ask->params;
	struct sim_object *channel = sim_object_find(ask->object->client, params->channel);

	if (!channel || channel->kind != KIND_KernelChannel)
		return NV_ERR_OBJECT_NOT_FOUND;
	params->total = 0x52c000;	/* as recorded on an H100 */
	return NV_OK;
}

/* ---- processors: TPCs fill one GPC after the other ---- */

static u32 tpcs_of_gpc(const struct sim_gpu *gpu, u32 gpc)
{
	u32 tpcs = DIV_ROUND_UP(sim_engine_sms(gpu->engine), SIM_SMS_PER_TPC);

	return gpc * TPCS_PER_GPC < tpcs ? min(tpcs - gpc * TPCS_PER_GPC, TPCS_PER_GPC) : 0;
}

static NV_STATUS gpc_mask(struct sim_ask *ask)
{
	u32 mask = 0;

	for (u32 gpc = 0; gpc < GPCS_MAX; gpc++)
		if (tpcs_of_gpc(ask->object->gpu, gpc))
			mask |= 1u << gpc;
	PUT(NV2080_CTRL_GR_GET_GPC_MASK_PARAMS, gpcMask, mask);
	return NV_OK;
}

static NV_STATUS tpc_mask(struct sim_ask *ask)
{
	u32 gpc = GET(NV2080_CTRL_GR_GET_TPC_MASK_PARAMS, gpcId);
	u32 tpcs = gpc < GPCS_MAX ? tpcs_of_gpc(ask->object->gpu, gpc) : 0;

	if (!tpcs)
		return NV_ERR_INVALID_ARGUMENT;
	PUT(NV2080_CTRL_GR_GET_TPC_MASK_PARAMS, tpcMask, (1u << tpcs) - 1);
	return NV_OK;
}

const struct sim_handler sim_gpu_handlers[] = {
	{ NV2080_CTRL_CMD_GR_GET_GPC_MASK, false, gpc_mask },
	{ NV2080_CTRL_CMD_GR_GET_TPC_MASK, false, tpc_mask },
	{ NV2080_CTRL_CMD_GPU_GET_GID_INFO, false, gid },
	{ NV2080_CTRL_CMD_FB_GET_INFO_V2, false, fb_info_v2 },
	{ NV2080_CTRL_CMD_FB_GET_INFO, false, fb_info },
	{ NV0041_CTRL_CMD_GET_SURFACE_INFO, false, surface_info },
	{ NV2080_CTRL_CMD_GPU_GET_PIDS, false, pids },
	{ NV2080_CTRL_CMD_GPU_GET_PID_INFO, false, pid_info },
	{ NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE, false, ctx_buffer_size },
	{ },
};
