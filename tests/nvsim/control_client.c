// SPDX-License-Identifier: GPL-2.0-only
/* Controls of a client: what the control plane asks to find objects, policies, and the list of GPUs. */
#include <linux/string.h>
#include <linux/uaccess.h>

#include "control.h"

#define ADDR_SYSTEM	1
#define ADDR_DEVICE	2
#define ADDR_REGISTERS	3
#define NO_GPU		0xffffffffu
#define ALL_RIGHTS	0xf	/* what an H200 says of a client's own objects */
#define IDS_MAX		32	/* NV0000_CTRL_GPU_MAX_PROBED_GPUS, ..._ATTACHED_GPUS */

#define GET(s, f)	NV_GET(ask->params, s, f)
#define PUT(s, f, v)	NV_PUT(ask->params, s, f, v)

static NV_STATUS handle_info(struct sim_ask *ask)
{
	struct sim_client *client = ask->object->client;
	struct sim_object *found = sim_object_find(client, GET(NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS, hObject));

	if (!found)
		return NV_ERR_OBJECT_NOT_FOUND;
	switch (GET(NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS, index)) {
	case NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT:
		PUT(NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS, data_hResult, found->parent ? found->parent->handle : 0);
		return NV_OK;
	case NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID:
		PUT(NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS, data_iResult, found->class);
		return NV_OK;
	}
	return NV_ERR_INVALID_ARGUMENT;
}

/* The child of lowest handle of an internal class. */
static NV_STATUS child_handle(struct sim_ask *ask)
{
	enum sim_kind kind = sim_kind_of_nvoc(GET(NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE_PARAMS, classId));
	struct sim_object *parent, *child, *best = NULL;

	parent = sim_object_find(ask->object->client, GET(NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE_PARAMS, hParent));
	if (!parent || kind == KIND_NONE)
		return NV_ERR_OBJECT_NOT_FOUND;
	list_for_each_entry(child, &parent->children, sibling)
		if (child->kind == kind && (!best || child->handle < best->handle))
			best = child;
	if (!best)
		return NV_ERR_OBJECT_NOT_FOUND;
	PUT(NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE_PARAMS, hObject, best->handle);
	return NV_OK;
}

/* What this client may do with an object of any client; of one of its own, everything. */
static NV_STATUS access_rights(struct sim_ask *ask)
{
	struct sim_client *of = sim_client_any(GET(NV0000_CTRL_CLIENT_GET_ACCESS_RIGHTS_PARAMS, hClient));
	struct sim_object *found;
	u32 mask = ALL_RIGHTS;

	if (!of)
		return NV_ERR_INVALID_CLIENT;
	found = sim_object_find(of, GET(NV0000_CTRL_CLIENT_GET_ACCESS_RIGHTS_PARAMS, hObject));
	if (!found)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (of != ask->object->client)
		mask = sim_may_dup(found, ask->object->client, ask->by) ? SIM_RIGHT_DUP : 0;
	PUT(NV0000_CTRL_CLIENT_GET_ACCESS_RIGHTS_PARAMS, maskResult_limbs, mask);
	return NV_OK;
}

static NV_STATUS database(struct sim_ask *ask)
{
	PUT(NV0000_CTRL_SYSTEM_GET_CLIENT_DATABASE_INFO_PARAMS, clientCount, sim_client_count);
	PUT(NV0000_CTRL_SYSTEM_GET_CLIENT_DATABASE_INFO_PARAMS, resourceCount, sim_object_count);
	return NV_OK;
}

static NV_STATUS addr_space_type(struct sim_ask *ask)
{
	struct {	/* NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS */
		u32 object, map_flags, type;
	} *params = ask->params;
	struct sim_object *found = sim_object_find(ask->object->client, params->object);

	if (!found)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!sim_kind_isa(found->kind, KIND_Memory))
		return NV_ERR_INVALID_OBJECT;
	switch (found->memory->type) {
	case SIM_VIDMEM:
		params->type = ADDR_DEVICE;
		break;
	case SIM_REGISTERS:
		/* mapped through BAR1 it counts as device memory */
		params->type = found->memory->flags ? ADDR_DEVICE : ADDR_REGISTERS;
		break;
	default:
		params->type = ADDR_SYSTEM;
	}
	return NV_OK;
}

/* RS_SHARE_POLICY, as NVOS57 has it */
struct policy {
	u32 target, mask;
	u16 type;
	u8 action, pad;
};

static NV_STATUS set_inherited_policy(struct sim_ask *ask)
{
	const struct policy *policy = ask->params;

	return sim_share(ask->object->client->root, policy->target, policy->mask, policy->type, policy->action);
}

static NV_STATUS share_object(struct sim_ask *ask)
{
	const struct {	/* NV0000_CTRL_CLIENT_SHARE_OBJECT_PARAMS */
		u32 object;
		struct policy policy;
	} *params = ask->params;
	struct sim_object *found = sim_object_find(ask->object->client, params->object);

	if (!found)
		return NV_ERR_OBJECT_NOT_FOUND;
	return sim_share(found, params->policy.target, params->policy.mask, params->policy.type, params->policy.action);
}

static void put_ids(u32 *ids, bool all)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < sim_gpu_count; i++)
		if (all || READ_ONCE(sim_gpus[i].attached))
			ids[count++] = sim_gpus[i].id;
	while (count < IDS_MAX)
		ids[count++] = NO_GPU;
}

/* NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS: gpuIds[32], excludedGpuIds[32], ... */
static NV_STATUS probed_ids(struct sim_ask *ask)
{
	u32 *ids = ask->params;

	put_ids(ids, true);
	for (unsigned int i = 0; i < IDS_MAX; i++)
		ids[IDS_MAX + i] = NO_GPU;
	return NV_OK;
}

static NV_STATUS attached_ids(struct sim_ask *ask)
{
	put_ids(ask->params, false);
	return NV_OK;
}

/* NV0000_CTRL_GPU_ATTACH_IDS_PARAMS: gpuIds[32] ending with NO_GPU (first 0: all), failedId */
static NV_STATUS attach_ids(struct sim_ask *ask)
{
	u32 *ids = ask->params;

	for (unsigned int i = 0; i < IDS_MAX && ids[0] && ids[i] != NO_GPU; i++) {
		struct sim_gpu *gpu = sim_gpu_by_id(ids[i]);

		if (!gpu) {
			ids[IDS_MAX] = ids[i];
			return NV_ERR_INVALID_ARGUMENT;
		}
		WRITE_ONCE(gpu->attached, true);
	}
	for (unsigned int i = 0; i < sim_gpu_count && !ids[0]; i++)
		WRITE_ONCE(sim_gpus[i].attached, true);
	return NV_OK;
}

/* GET_ID_INFO and _V2: gpuId, flags, deviceInstance, subDeviceInstance, ...; the rest as recorded for the first GPU. */
static NV_STATUS id_info(struct sim_ask *ask, u32 cmd, u32 instance_at)
{
	struct sim_gpu *gpu = sim_gpu_by_id(*(u32 *)ask->params);
	u8 *params = ask->params;

	if (!gpu)
		return NV_ERR_INVALID_ARGUMENT;
	*(u32 *)params = sim_gpus[0].id;
	sim_answer(cmd, params, ask->size);
	*(u32 *)params = gpu->id;
	*(u32 *)(params + instance_at) = gpu->index;
	return NV_OK;
}

static NV_STATUS id_info_v1(struct sim_ask *ask)
{
	return id_info(ask, NV0000_CTRL_CMD_GPU_GET_ID_INFO, 8);
}

static NV_STATUS id_info_v2(struct sim_ask *ask)
{
	return id_info(ask, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, 8);
}

const struct sim_handler sim_client_handlers[] = {
	{ NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, false, handle_info },
	{ NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS, false, access_rights },
	{ NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE, false, child_handle },
	{ NV0000_CTRL_CMD_SYSTEM_GET_CLIENT_DATABASE_INFO, false, database },
	{ NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE, false, addr_space_type },
	{ NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, true, set_inherited_policy },
	{ NV0000_CTRL_CMD_CLIENT_SHARE_OBJECT, true, share_object },
	{ NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, false, probed_ids },
	{ NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, false, attached_ids },
	{ NV0000_CTRL_CMD_GPU_ATTACH_IDS, false, attach_ids },
	{ NV0000_CTRL_CMD_GPU_GET_ID_INFO, false, id_info_v1 },
	{ NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, false, id_info_v2 },
	{ },
};

/* ---- before the tables: SYSTEM_GET_BUILD_VERSION, 0x101 ---- */

#define BUILD_VERSION	0x101u

struct build_version {
	u32 size, pad;
	u64 driver, version, title;
	u32 changelist, official;
};

static NV_STATUS put_text(const struct sim_caller *by, u64 to, u32 room, const char *text)
{
	char copy[128] = { };

	if (!to || !room)
		return NV_OK;
	room = min_t(u32, room, sizeof(copy));
	strscpy(copy, text, room);
	if (by->user_params)
		return os_memcpy_to_user((void *)(unsigned long)to, copy, room);
	memcpy((void *)(unsigned long)to, copy, room);
	return NV_OK;
}

NV_STATUS sim_control_deprecated(const struct sim_caller *by, u32 client, u32 cmd, u64 from, u32 size, bool *done)
{
	struct build_version *version;
	struct sim_params params;
	NV_STATUS status = NV_ERR_INVALID_CLIENT;

	*done = cmd == BUILD_VERSION;
	if (!*done)
		return NV_OK;
	down_read(&sim_api_lock);
	if (sim_client_find(client, by))
		status = NV_OK;
	up_read(&sim_api_lock);
	if (status != NV_OK)
		return status;
	if (size != sizeof(*version) || !from)
		return NV_ERR_INVALID_ARGUMENT;
	status = sim_params_in(&params, by, from, size);
	if (status != NV_OK)
		return status;
	version = params.data;
	status = put_text(by, version->driver, version->size, sim_version);
	if (status == NV_OK)
		status = put_text(by, version->version, version->size, sim_version);
	if (status == NV_OK)
		status = put_text(by, version->title, version->size, "NVIDIA UNIX Open Kernel Module (simulated)");
	version->official = 1;
	return sim_params_out(&params, status);
}
