// SPDX-License-Identifier: GPL-2.0-only
/* Devices, VA spaces, TSGs, context shares, and the objects that have no state here. */
#include <linux/err.h>
#include <linux/slab.h>

#include "files.h"
#include "sim.h"

#define DEVICES_MAX	32		/* NV_MAX_DEVICES */
#define VA_SIZE		0x1fffffffff000ull
#define VA_EXTERNAL	(1u << 3)	/* NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED */
#define ENGINE_GR0	1u
#define ENGINE_COPY0	9u
#define ENGINE_LAST	0x53u		/* NV2080_ENGINE_TYPE_LAST of the oldest version */

static NV_STATUS device_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	/* without parameters it is the first (deviceConstruct) */
	u32 instance = alloc->params ? NV_GET(alloc->params, NV0080_ALLOC_PARAMETERS, deviceId) : 0;

	if (instance >= DEVICES_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	object->gpu = sim_gpu_by_instance(instance);
	if (!object->gpu)
		return NV_ERR_INVALID_STATE;
	if (alloc->by->level < SIM_CALLER_KERNEL && !sim_gpu_is_open_here(object->gpu))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	return NV_OK;
}

static void device_destroy(struct sim_object *object)
{
	sim_vas_put(object->vas);
}

const struct sim_ops sim_device_ops = { .construct = device_construct, .destroy = device_destroy };

/* A device has one at most. */
static NV_STATUS subdevice_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	struct sim_object *other;

	if (alloc->params && NV_GET(alloc->params, NV2080_ALLOC_PARAMETERS, subDeviceId))
		return NV_ERR_INVALID_ARGUMENT;
	list_for_each_entry(other, &object->parent->children, sibling)
		if (other != object && other->class == NV20_SUBDEVICE_0)
			return NV_ERR_INSUFFICIENT_RESOURCES;
	return NV_OK;
}

const struct sim_ops sim_subdevice_ops = { .construct = subdevice_construct };

/* The VA space of a handle, or the device's own for 0. `object` is NULL for the latter. No reference is taken. */
NV_STATUS sim_find_vas(struct sim_client *client, struct sim_object *device, u32 handle, struct sim_vas **vas,
		       struct sim_object **object)
{
	struct sim_object *found;

	*object = NULL;
	if (handle) {
		found = sim_object_find(client, handle);
		if (!found)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (found->kind != KIND_VaSpaceApi)
			return NV_ERR_INVALID_OBJECT_HANDLE;
		*object = found;
		*vas = found->vas;
		return NV_OK;
	}
	if (!device)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (!device->vas)
		device->vas = sim_vas_create(device->gpu, false);
	*vas = device->vas;
	return device->vas ? NV_OK : NV_ERR_NO_MEMORY;
}

static NV_STATUS vas_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u32 flags = NV_GET(alloc->params, NV_VASPACE_ALLOCATION_PARAMETERS, flags);

	object->vas = sim_vas_create(object->gpu, flags & VA_EXTERNAL);
	if (!object->vas)
		return NV_ERR_NO_MEMORY;
	if (!NV_GET(alloc->params, NV_VASPACE_ALLOCATION_PARAMETERS, vaSize))
		NV_PUT(alloc->params, NV_VASPACE_ALLOCATION_PARAMETERS, vaSize, VA_SIZE);
	return NV_OK;
}

static void vas_destroy(struct sim_object *object)
{
	sim_vas_put(object->vas);
}

static NV_STATUS vas_copy(struct sim_object *object, struct sim_object *from)
{
	if (object->gpu != from->gpu)
		return NV_ERR_INVALID_OBJECT_PARENT;
	object->vas = sim_vas_get(from->vas);
	return NV_OK;
}

const struct sim_ops sim_vas_object_ops = { .construct = vas_construct, .destroy = vas_destroy, .copy = vas_copy };

/* ---- TSGs ---- */

static void group_release(struct kref *ref)
{
	struct sim_group *group = container_of(ref, struct sim_group, ref);

	sim_tsg_destroy(group->tsg);
	kfree(group);
}

void sim_group_put(struct sim_group *group)
{
	if (group)
		kref_put(&group->ref, group_release);
}

struct sim_group *sim_group_create(struct sim_object *object, u32 engine, NV_STATUS *status)
{
	const struct sim_tsg_owner owner = { .client = object->client->handle, .handle = object->handle,
					     .pid = object->client->pid, .uid = object->client->euid };
	struct sim_group *group;

	*status = NV_ERR_INVALID_ARGUMENT;
	if (engine != ENGINE_GR0 && (engine < ENGINE_COPY0 || engine > ENGINE_LAST))
		return NULL;
	*status = NV_ERR_NO_MEMORY;
	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return NULL;
	kref_init(&group->ref);
	group->gpu = object->gpu;
	group->engine = engine;
	group->tsg = sim_tsg_create(object->gpu->engine, engine, &owner);
	if (IS_ERR(group->tsg)) {
		kfree(group);
		return NULL;
	}
	*status = NV_OK;
	return group;
}

static NV_STATUS group_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u32 hvas = NV_GET(alloc->params, NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, hVASpace);
	u32 engine = NV_GET(alloc->params, NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, engineType);
	struct sim_object *vas_object = NULL;
	struct sim_vas *vas = NULL;
	NV_STATUS status = NV_OK;

	if (hvas)
		status = sim_find_vas(object->client, object->parent, hvas, &vas, &vas_object);
	if (status == NV_OK)
		status = sim_depend(object, vas_object);
	if (status != NV_OK)
		return status;
	object->group = sim_group_create(object, engine, &status);
	if (!object->group)
		return status;
	object->engine = engine;
	object->space = sim_vas_get(vas);
	return NV_OK;
}

static void group_destroy(struct sim_object *object)
{
	sim_vas_put(object->space);
	sim_group_put(object->group);
}

/*
 * A copy dies with what is, by its handle, the first of its client's handles below its device on the VA space that it works in
 * (kchangrpapiCopyConstruct, kctxshareapiCopyConstruct). What is exported to a descriptor is a copy in no client.
 */
static NV_STATUS depend_on_space(struct sim_object *object, const struct sim_vas *space)
{
	struct sim_object *found;
	unsigned long handle;

	if (!object->client)
		return NV_OK;
	xa_for_each(&object->client->objects, handle, found)
		if (found->kind == KIND_VaSpaceApi && found->parent == sim_object_device(object) && found->vas == space)
			return sim_depend(object, found);
	return NV_OK;
}

static NV_STATUS group_copy(struct sim_object *object, struct sim_object *from)
{
	NV_STATUS status;

	if (object->parent->kind != KIND_Device || object->gpu != from->gpu)
		return NV_ERR_INVALID_OBJECT_PARENT;
	status = depend_on_space(object, from->space);
	if (status != NV_OK)
		return status;
	object->group = from->group;
	kref_get(&from->group->ref);
	object->engine = from->engine;
	object->space = sim_vas_get(from->space);
	return NV_OK;
}

/* The group that RM makes around a channel which has none; its handle is in the channel's client. Each dies with the other. */
NV_STATUS sim_group_wrap(struct sim_object *channel, struct sim_group *group, struct sim_vas *space, struct sim_object *vas_object)
{
	struct sim_object *object = kzalloc(sizeof(*object), GFP_KERNEL);
	NV_STATUS status;

	if (!object)
		return NV_ERR_NO_MEMORY;
	sim_assign_handle(channel->client, &object->handle);
	object->class = KEPLER_CHANNEL_GROUP_A;
	object->kind = KIND_KernelChannelGroupApi;
	object->ops = &sim_plain_ops;
	status = sim_object_insert(channel->client, channel->parent, object);
	if (status != NV_OK) {
		kfree(object);
		return status;
	}
	channel->wrapper = object;
	status = sim_depend(object, vas_object);
	if (status == NV_OK)
		status = sim_depend(channel, object);
	if (status != NV_OK)
		return status;
	object->group = group;
	kref_get(&group->ref);
	object->engine = group->engine;
	object->space = sim_vas_get(space);
	object->ops = &sim_group_ops;
	return NV_OK;
}

const struct sim_ops sim_group_ops = { .construct = group_construct, .destroy = group_destroy, .copy = group_copy };

/* ---- context shares ---- */

static NV_STATUS ctxshare_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u32 hvas = NV_GET(alloc->params, NV_CTXSHARE_ALLOCATION_PARAMETERS, hVASpace);
	struct sim_group *group = object->parent->group;
	struct sim_object *vas_object;
	struct sim_vas *vas;
	NV_STATUS status;
	int veid = SIM_VEIDS - 1;

	while (veid >= 0 && group->veid_users[veid])
		veid--;
	if (veid < 0)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	status = sim_find_vas(object->client, sim_object_device(object), hvas, &vas, &vas_object);
	if (status == NV_OK)
		status = sim_depend(object, vas_object);
	if (status != NV_OK)
		return status;
	object->veid = veid;
	group->veid_users[veid] = 1;
	object->space = sim_vas_get(vas);
	NV_PUT(alloc->params, NV_CTXSHARE_ALLOCATION_PARAMETERS, subctxId, veid);
	return NV_OK;
}

static void ctxshare_destroy(struct sim_object *object)
{
	if (!--object->parent->group->veid_users[object->veid])
		sim_tsg_set_sms(object->parent->group->tsg, object->veid, 0);
	sim_vas_put(object->space);
}

static NV_STATUS ctxshare_copy(struct sim_object *object, struct sim_object *from)
{
	NV_STATUS status;

	/* in whatever group: an H200 let it be that of another program (docs/results/forwarded-hostile.md) */
	if (object->parent->kind != KIND_KernelChannelGroupApi)
		return NV_ERR_INVALID_OBJECT_PARENT;
	status = depend_on_space(object, from->space);
	if (status != NV_OK)
		return status;
	object->space = sim_vas_get(from->space);
	object->veid = from->veid;
	object->parent->group->veid_users[object->veid]++;
	return NV_OK;
}

const struct sim_ops sim_ctxshare_ops = {
	.construct = ctxshare_construct, .destroy = ctxshare_destroy, .copy = ctxshare_copy,
};

/* ---- what hangs on a channel, and the rest ---- */

static NV_STATUS engine_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u32 group_engine = object->parent->channel->group->engine;
	u32 version, which;

	object->engine = ENGINE_GR0;
	if (object->kind == KIND_KernelCeContext) {
		object->engine = group_engine == ENGINE_GR0 ? ENGINE_COPY0 : group_engine;
		if (alloc->params) {
			version = NV_GET(alloc->params, NVB0B5_ALLOCATION_PARAMETERS, version);
			which = NV_GET(alloc->params, NVB0B5_ALLOCATION_PARAMETERS, engineType);
			object->engine = version ? which : ENGINE_COPY0 + which;
		}
		return object->engine < ENGINE_COPY0 || object->engine > ENGINE_LAST ? NV_ERR_INVALID_ARGUMENT : NV_OK;
	}
	/* no H100 was asked whether its copy engines on the graphics run list take one: the worst is that they do */
	if (sim_tsg_runlist(object->parent->channel->group->tsg))
		return NV_ERR_INVALID_CLASS;
	object->parent->channel->group->graphics = true;
	sim_chan_compute(object->parent->channel->chan);
	return NV_OK;
}

const struct sim_ops sim_engine_object_ops = { .construct = engine_construct };

static NV_STATUS event_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	if (!NV_GET(alloc->params, NV0005_ALLOC_PARAMETERS, hSrcResource))
		NV_PUT(alloc->params, NV0005_ALLOC_PARAMETERS, hSrcResource, object->parent->handle);
	return NV_OK;
}

static NV_STATUS plain_copy(struct sim_object *object, struct sim_object *from)
{
	return NV_OK;
}

const struct sim_ops sim_event_ops = { .construct = event_construct };
const struct sim_ops sim_plain_ops = { };
const struct sim_ops sim_dup_ops = { .copy = plain_copy };

const struct sim_ops *sim_ops_of(enum sim_kind kind)
{
	static const struct sim_ops *const ops[KIND_COUNT] = {
		[KIND_Device] = &sim_device_ops,
		[KIND_Subdevice] = &sim_subdevice_ops,
		[KIND_VaSpaceApi] = &sim_vas_object_ops,
		[KIND_KernelChannelGroupApi] = &sim_group_ops,
		[KIND_KernelCtxShareApi] = &sim_ctxshare_ops,
		[KIND_KernelChannel] = &sim_channel_ops,
		[KIND_KernelGraphicsObject] = &sim_engine_object_ops,
		[KIND_KernelCeContext] = &sim_engine_object_ops,
		[KIND_Event] = &sim_event_ops,
		[KIND_EventBuffer] = &sim_event_buffer_ops,
		[KIND_VideoMemory] = &sim_vidmem_ops,
		[KIND_SystemMemory] = &sim_sysmem_ops,
		[KIND_NoDeviceMemory] = &sim_deviceless_ops,
		[KIND_OsDescMemory] = &sim_osdesc_ops,
		[KIND_VirtualMemory] = &sim_virtual_ops,
		[KIND_VirtualMemoryRange] = &sim_virtual_range_ops,
		[KIND_MemoryFabric] = &sim_fabric_ops,
		[KIND_PhysicalMemory] = &sim_physical_ops,
		[KIND_UserModeApi] = &sim_usermode_ops,
		[KIND_RegisterMemory] = &sim_register_ops,
		[KIND_GpuUserSharedData] = &sim_shared_data_ops,
		/* known, without state */
		[KIND_MpsApi] = &sim_plain_ops,
		[KIND_ConfidentialComputeApi] = &sim_plain_ops,
		[KIND_BinaryApi] = &sim_plain_ops,
		[KIND_BinaryApiPrivileged] = &sim_plain_ops,
		[KIND_ThirdPartyP2P] = &sim_plain_ops,
		[KIND_P2PApi] = &sim_plain_ops,
		[KIND_GenericEngineApi] = &sim_plain_ops,
		[KIND_KernelSMDebuggerSession] = &sim_plain_ops,
		[KIND_ContextDma] = &sim_plain_ops,
		[KIND_MemoryMapper] = &sim_plain_ops,
		[KIND_SemaphoreSurface] = &sim_dup_ops,
		[KIND_TimerApi] = &sim_plain_ops,
		[KIND_ProfilerBase] = &sim_plain_ops,
	};

	return ops[kind];
}
