// SPDX-License-Identifier: GPL-2.0-only
/* RM_CONTROL: the checks in the driver's order, nested parameters and lists, and who answers. */
#include <linux/capability.h>
#include <linux/slab.h>

#include "control.h"

#define LEGACY_GSS		0x8000u		/* RM_GSS_LEGACY_MASK: to the firmware, unparsed, any size */
#define LEGACY_GSS_ROOT		0x4000u
#define LIST_MAX		4096

/* Commands with lists in user memory behind pointers of their parameters. */
struct nested {
	u32 cmd;
	u16 count_at, pointer_at, pointer2_at, element, element2;
	bool out_only;		/* the second list only receives */
};

static const struct nested nested_lists[] = {
	{ NV2080_CTRL_CMD_FB_GET_INFO, NV2080_CTRL_FB_GET_INFO_PARAMS__fbInfoListSize__at,
	  NV2080_CTRL_FB_GET_INFO_PARAMS__fbInfoList__at, 0, 8 },
	{ NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS__numChannels__at,
	  NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS__pChannelHandleList__at,
	  NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS__pChannelList__at, 4, 4, true },
	{ NV0041_CTRL_CMD_GET_SURFACE_INFO, NV0041_CTRL_GET_SURFACE_INFO_PARAMS__surfaceInfoListSize__at,
	  NV0041_CTRL_GET_SURFACE_INFO_PARAMS__surfaceInfoList__at, 0, 8 },
};

const struct sim_handler *sim_handler_find(u32 cmd)
{
	static const struct sim_handler *const tables[] = {
		sim_client_handlers, sim_gpu_handlers, sim_fifo_handlers, sim_fd_handlers,
		sim_sched_handlers, sim_event_handlers,
	};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sim_handler *h = tables[i]; h->run; h++)
			if (h->cmd == cmd)
				return h;
	return NULL;
}

static const struct nested *find_nested(u32 cmd)
{
	for (size_t i = 0; i < ARRAY_SIZE(nested_lists); i++)
		if (nested_lists[i].cmd == cmd)
			return &nested_lists[i];
	return NULL;
}

static u64 pointer_of(const void *params, u32 at)
{
	return sim_get(params, at, 8);
}

/* A deprecated command works without an export, and so without a size that was compared. */
static bool holds_lists(const struct nested *n, u32 size)
{
	u32 last = max(n->pointer_at, n->pointer2_at);

	return size >= max(n->count_at + sizeof(u32), last + sizeof(u64));
}

static NV_STATUS copy_lists_in(const struct nested *n, struct sim_ask *ask, struct sim_params *one,
			       struct sim_params *two)
{
	NV_STATUS status;

	ask->count = sim_get(ask->params, n->count_at, 4);
	if (ask->count > LIST_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (!ask->count)
		return NV_OK;
	if (!pointer_of(ask->params, n->pointer_at) || (n->pointer2_at && !pointer_of(ask->params, n->pointer2_at)))
		return NV_ERR_INVALID_ARGUMENT;
	status = sim_params_in(one, ask->by, pointer_of(ask->params, n->pointer_at), ask->count * n->element);
	if (status != NV_OK)
		return status;
	ask->list = one->data;
	if (!n->pointer2_at)
		return NV_OK;
	status = sim_params_in(two, ask->by, pointer_of(ask->params, n->pointer2_at), ask->count * n->element2);
	ask->list2 = two->data;
	return status;
}

static NV_STATUS check_rights(const struct sim_control *control, const struct sim_caller *by)
{
	if (control->nice && by->level < SIM_CALLER_ROOT && !capable(CAP_SYS_NICE))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	switch (control->priv) {
	case SIM_NON_PRIVILEGED:
		return NV_OK;
	case SIM_PRIVILEGED:
		return by->level >= SIM_CALLER_ROOT ? NV_OK : NV_ERR_INSUFFICIENT_PERMISSIONS;
	case SIM_INTERNAL:
		return NV_ERR_NOT_SUPPORTED;
	default:
		return by->level >= SIM_CALLER_KERNEL ? NV_OK : NV_ERR_INSUFFICIENT_PERMISSIONS;
	}
}

/*
 * To the firmware, unparsed. What it makes of it nobody outside knows; here it takes every command of a subdevice, as one
 * of class 0x2080 or 0x2081, and asks for no right: the worst that could be.
 */
static NV_STATUS binary_api(u32 cmd, struct sim_ask *ask)
{
	u32 plain = (cmd & 0xffff) | NV20_SUBDEVICE_0 << 16;
	const struct sim_control *control = sim_control_find(plain, KIND_Subdevice);
	const struct sim_handler *handler = sim_handler_find(plain);

	if (sim_answer(cmd, ask->params, ask->size))
		return NV_OK;
	if (!handler || !control || handler->writes || control->size[sim_abi] != ask->size)
		return NV_ERR_NOT_SUPPORTED;
	ask->object = ask->object->parent;
	return handler->run(ask);
}

/* As above, for the commands with bit 15: any object of any client, whatever its class. */
static NV_STATUS legacy_command(const struct sim_caller *by, u32 client_handle, u32 object_handle, u32 cmd, void *params,
				u32 size)
{
	const struct sim_handler *handler = sim_handler_find(cmd & ~(LEGACY_GSS | LEGACY_GSS_ROOT));
	struct sim_ask ask = { .by = by, .params = params, .size = size };
	NV_STATUS status = NV_ERR_NOT_SUPPORTED;
	const struct sim_control *control;
	struct sim_client *client;

	down_read(&sim_api_lock);
	client = sim_client_any(client_handle);
	ask.object = client ? sim_object_find(client, object_handle) : NULL;
	control = ask.object ? sim_control_find(cmd & ~(LEGACY_GSS | LEGACY_GSS_ROOT), ask.object->kind) : NULL;
	if (handler && !handler->writes && control && control->size[sim_abi] == size)
		status = handler->run(&ask);
	up_read(&sim_api_lock);
	return status;
}

static NV_STATUS run_locked(u32 client_handle, u32 object_handle, u32 cmd, const struct sim_handler *handler,
			    struct sim_ask *ask)
{
	struct sim_client *client = sim_client_find(client_handle, ask->by);
	const struct sim_control *control;
	NV_STATUS status;

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	ask->object = sim_object_find(client, object_handle);
	if (!ask->object)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (ask->object->kind == KIND_BinaryApi || ask->object->kind == KIND_BinaryApiPrivileged)
		return binary_api(cmd, ask);
	control = sim_control_find(cmd, ask->object->kind);
	if (!control && handler && ask->object->kind == KIND_Subdevice && cmd == NV2080_CTRL_CMD_FB_GET_INFO)
		return handler->run(ask);	/* deprecated: works without an export */
	if (!control)
		return sim_control_find(cmd, KIND_NONE) || !sim_answer(cmd, ask->params, ask->size) ?
		       NV_ERR_NOT_SUPPORTED : NV_OK;
	status = check_rights(control, ask->by);
	if (status != NV_OK)
		return status;
	if (ask->serialised)
		return NV_ERR_LIB_RM_VERSION_MISMATCH;
	if (handler)
		return handler->run(ask);
	return sim_answer(cmd, ask->params, ask->size) ? NV_OK : NV_ERR_NOT_SUPPORTED;
}

static NV_STATUS run(u32 client, u32 object, u32 cmd, struct sim_ask *ask)
{
	const struct sim_handler *handler = sim_handler_find(cmd);
	const struct nested *n = find_nested(cmd);
	struct sim_params one = { }, two = { };
	NV_STATUS status = NV_OK;

	if (ask->serialised) {
		n = NULL;	/* lists are in the blob */
	} else if (n && ask->params && !holds_lists(n, ask->size)) {
		return NV_ERR_INVALID_ARGUMENT;
	} else if (n && ask->params && ask->by->user_params) {
		status = copy_lists_in(n, ask, &one, &two);
	} else if (n && ask->params) {
		ask->count = sim_get(ask->params, n->count_at, 4);
		ask->list = (void *)(unsigned long)pointer_of(ask->params, n->pointer_at);
		ask->list2 = n->pointer2_at ? (void *)(unsigned long)pointer_of(ask->params, n->pointer2_at) : NULL;
	}
	if (status == NV_OK) {
		if (handler && handler->writes)
			down_write(&sim_api_lock);
		else
			down_read(&sim_api_lock);
		status = run_locked(client, object, cmd, handler, ask);
		if (handler && handler->writes)
			up_write(&sim_api_lock);
		else
			up_read(&sim_api_lock);
	}
	status = sim_params_out(&one, status);
	return sim_params_out(&two, status);
}

/* Forwarded to the firmware as they are. The client must exist, whoever owns it. */
static NV_STATUS legacy_gss(const struct sim_caller *by, u32 client, u32 object, u32 cmd, u64 from, u32 size)
{
	struct sim_params params;
	NV_STATUS status;
	bool known;

	down_read(&sim_api_lock);
	known = sim_client_any(client);
	up_read(&sim_api_lock);
	if (!known)
		return NV_ERR_INVALID_CLIENT;
	if ((cmd & LEGACY_GSS_ROOT) && by->level < SIM_CALLER_ROOT)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (!size != !from)
		return NV_ERR_INVALID_ARGUMENT;
	status = sim_params_in(&params, by, from, size);
	if (status != NV_OK)
		return status;
	if (!sim_answer(cmd, params.data, size))
		status = legacy_command(by, client, object, cmd, params.data, size);
	return sim_params_out(&params, status);
}

/*
 * What the driver says of each control that names no client, before it looks at anything else
 * (RmDeprecatedGetControlHandler). At a level that the console leaves out: hostile programs try thousands.
 */
static void log_no_client(u32 client)
{
	bool known;

	down_read(&sim_api_lock);
	known = sim_client_any(client);
	up_read(&sim_api_lock);
	if (!known)
		printk(KERN_NOTICE "NVRM: nvCheckOkFailedNoLog: Check failed: Object handle is not valid "
		       "[NV_ERR_INVALID_OBJECT_HANDLE] (0x00000033) returned from serverGetClientUnderLock(&g_resServ, "
		       "pArgs->hClient, &pClient) @ rmapi_deprecated_control.c:108\n");
}

NV_STATUS sim_rm_control(const struct sim_caller *by, u32 client, u32 object, u32 cmd, u32 flags, u64 from, u32 size)
{
	const struct sim_control *control = sim_control_find(cmd, KIND_NONE);
	struct sim_ask ask = { .by = by, .size = size, .serialised = flags & NVOS54_FLAGS_FINN_SERIALIZED };
	struct sim_params params;
	NV_STATUS status;
	bool done;

	log_no_client(client);
	if (!(cmd & 0xffff))	/* category 0, index 0: the null command of a class */
		return NV_OK;
	if (cmd & LEGACY_GSS)
		return legacy_gss(by, client, object, cmd, from, size);
	status = sim_control_deprecated(by, client, cmd, from, size, &done);
	if (done)
		return status;
	if (flags & (NVOS54_FLAGS_IRQL_RAISED | NVOS54_FLAGS_LOCK_BYPASS))
		return NV_ERR_INVALID_ARGUMENT;
	down_read(&sim_api_lock);
	done = sim_client_any(client);
	up_read(&sim_api_lock);
	if (!done)
		return NV_ERR_INVALID_CLIENT;
	if (!size != !from)
		return NV_ERR_INVALID_ARGUMENT;
	if (control && control->size[sim_abi] != SIM_ANY_SIZE && control->size[sim_abi] != size)
		return NV_ERR_INVALID_ARGUMENT;
	status = sim_params_in(&params, by, from, size);
	if (status != NV_OK)
		return status;
	ask.params = params.data;
	return sim_params_out(&params, run(client, object, cmd, &ask));
}
