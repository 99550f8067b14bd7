// SPDX-License-Identifier: GPL-2.0-only
/* Controls of TSGs and channels: slices, levels, pauses, tokens. Others that steer: control_sched.c. */
#include "control.h"
#include "engine.h"

#define MANUAL_TIMEOUT_MAX_US	1000000u

#define GET(s, f)	NV_GET(ask->params, s, f)
#define PUT(s, f, v)	NV_PUT(ask->params, s, f, v)

static NV_STATUS tsg_info(struct sim_ask *ask)
{
	PUT(NVA06C_CTRL_GET_INFO_PARAMS, tsgID, sim_tsg_id(ask->object->group->tsg));
	return NV_OK;
}

static NV_STATUS get_slice(struct sim_ask *ask)
{
	PUT(NVA06C_CTRL_TIMESLICE_PARAMS, timesliceUs, sim_tsg_timeslice(ask->object->group->tsg));
	return NV_OK;
}

static NV_STATUS set_slice(struct sim_ask *ask)
{
	sim_tsg_set_timeslice(ask->object->group->tsg, GET(NVA06C_CTRL_TIMESLICE_PARAMS, timesliceUs));
	return NV_OK;
}

static NV_STATUS level_of(struct sim_tsg *tsg, u32 level)
{
	if (level > NVA06C_CTRL_INTERLEAVE_LEVEL_HIGH)
		return NV_ERR_NOT_SUPPORTED;
	return sim_tsg_set_interleave(tsg, level) ? NV_ERR_INVALID_STATE : NV_OK;
}

static NV_STATUS set_level(struct sim_ask *ask)
{
	return level_of(ask->object->group->tsg, GET(NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS, tsgInterleaveLevel));
}

static NV_STATUS set_channel_level(struct sim_ask *ask)
{
	return level_of(ask->object->channel->group->tsg, *(u32 *)ask->params);
}

static NV_STATUS preempt(struct sim_ask *ask)
{
	if (GET(NVA06C_CTRL_PREEMPT_PARAMS, bManualTimeout) &&
	    GET(NVA06C_CTRL_PREEMPT_PARAMS, timeoutUs) > MANUAL_TIMEOUT_MAX_US)
		return NV_ERR_INVALID_ARGUMENT;
	sim_tsg_preempt(ask->object->group->tsg, GET(NVA06C_CTRL_PREEMPT_PARAMS, bWait));
	return NV_OK;
}

/* A channel whose page tables are UVM's runs only once UVM knows it. */
static bool schedulable(struct sim_channel *channel)
{
	return !channel->vas->external || channel->registered;
}

static NV_STATUS schedule_group(struct sim_ask *ask)
{
	bool enable = GET(NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, bEnable);
	struct sim_object *child;

	list_for_each_entry(child, &ask->object->children, sibling)
		if (enable && child->kind == KIND_KernelChannel && !schedulable(child->channel))
			return NV_ERR_INVALID_STATE;
	return sim_tsg_schedule(ask->object->group->tsg, enable) ? NV_ERR_INVALID_STATE : NV_OK;
}

static NV_STATUS schedule_channel(struct sim_ask *ask)
{
	bool enable = GET(NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, bEnable);

	if (enable && !schedulable(ask->object->channel))
		return NV_ERR_INVALID_STATE;
	return sim_chan_schedule(ask->object->channel->chan, enable) ? NV_ERR_INVALID_STATE : NV_OK;
}

static NV_STATUS bind(struct sim_ask *ask)
{
	struct sim_group *group = ask->object->kind == KIND_KernelChannel ? ask->object->channel->group :
				  ask->object->group;

	return GET(NVA06F_CTRL_BIND_PARAMS, engineType) == group->engine ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

static NV_STATUS token(struct sim_ask *ask)
{
	PUT(NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS, workSubmitToken,
	    sim_chan_token(ask->object->channel->chan));
	return NV_OK;
}

static NV_STATUS context_id(struct sim_ask *ask)
{
	PUT(NVA06F_CTRL_GET_CONTEXT_ID_PARAMS, contextId, sim_tsg_id(ask->object->channel->group->tsg));
	return NV_OK;
}

static NV_STATUS engine_of(struct sim_ask *ask)
{
	u32 handle = GET(NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS, hObject);
	struct sim_object *found = sim_object_find(ask->object->client, handle);

	if (!found || found->parent != ask->object || !found->engine) {
		if (handle)	/* the driver asserts that there is one (kchannelCtrlCmdGetClassEngineid) */
			printk(KERN_NOTICE "NVRM: nvAssertOkFailedNoLog: Assertion failed: Requested object not found "
			       "[NV_ERR_OBJECT_NOT_FOUND] (0x00000057) returned from kchannelGetClassEngineID_HAL(pGpu, "
			       "pKernelChannel, pParams->hObject, &pParams->classEngineID, &pParams->classID, "
			       "&rmEngineType) @ kernel_channel.c:2965\n");
		return NV_ERR_OBJECT_NOT_FOUND;
	}
	PUT(NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS, classEngineID, found->class);
	PUT(NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS, classID, found->class);
	PUT(NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS, engineID, found->engine);
	return NV_OK;
}

/* The driver does not ask whose the listed channels are. */
static struct sim_object *channel_of(struct sim_ask *ask, u32 client_handle, u32 handle)
{
	struct sim_client *client = sim_client_any(client_handle);
	struct sim_object *found;

	if (!client)
		return NULL;
	found = sim_object_find(client, handle);
	return found && found->kind == KIND_KernelChannel && found->gpu == ask->object->gpu ? found : NULL;
}

static struct sim_object *listed(struct sim_ask *ask, u32 i)
{
	return channel_of(ask, NV_GETI(ask->params, NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, hClientList, i),
			  NV_GETI(ask->params, NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, hChannelList, i));
}

/*
 * As disable_channels(), for user space too: a count, the clients, the channels, and whether they come on again by themselves (here never).
 * The ABI data has the size only, of just these.
 */
static NV_STATUS disable_for_keys(struct sim_ask *ask)
{
	const u32 *count = ask->params, *clients = count + 1;
	const u32 *channels = clients + NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES;

	if (!*count || *count > NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES)
		return NV_ERR_INVALID_PARAM_STRUCT;
	for (u32 i = 0; i < *count; i++)
		if (!channel_of(ask, clients[i], channels[i]))
			return NV_ERR_INVALID_CHANNEL;
	for (u32 i = 0; i < *count; i++)
		sim_chan_disable(channel_of(ask, clients[i], channels[i])->channel->chan, true, false, false);
	sim_engine_settle(ask->object->gpu->engine, true);
	return NV_OK;
}

static NV_STATUS disable_channels(struct sim_ask *ask)
{
	u32 count = GET(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, numChannels);
	bool off = GET(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, bDisable);

	if (!count || count > NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES)
		return NV_ERR_INVALID_PARAM_STRUCT;
	if (GET(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, pRunlistPreemptEvent) && ask->by->level < SIM_CALLER_KERNEL)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	for (u32 i = 0; i < count; i++)
		if (!listed(ask, i))
			return NV_ERR_INVALID_CHANNEL;
	for (u32 i = 0; i < count; i++)
		sim_chan_disable(listed(ask, i)->channel->chan, off,
				 GET(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, bOnlyDisableScheduling),
				 GET(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, bRewindGpPut));
	sim_engine_settle(ask->object->gpu->engine, off);
	return NV_OK;
}

static NV_STATUS channel_list(struct sim_ask *ask)
{
	const u32 *handles = ask->list;
	u32 *numbers = ask->list2;

	if (!ask->count || !handles || !numbers)
		return NV_ERR_INVALID_ARGUMENT;
	for (u32 i = 0; i < ask->count; i++) {
		struct sim_object *found = sim_object_find(ask->object->client, handles[i]);

		numbers[i] = found && found->kind == KIND_KernelChannel ? sim_chan_chid(found->channel->chan) : ~0u;
	}
	return NV_OK;
}

const struct sim_handler sim_fifo_handlers[] = {
	{ NVA06C_CTRL_CMD_GET_INFO, false, tsg_info },
	{ NVA06C_CTRL_CMD_GET_TIMESLICE, false, get_slice },
	{ NVA06C_CTRL_CMD_SET_TIMESLICE, false, set_slice },
	{ NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, false, set_level },
	{ NVA06C_CTRL_CMD_PREEMPT, false, preempt },
	{ NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, false, schedule_group },
	{ NVA06C_CTRL_CMD_BIND, false, bind },
	{ NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, false, schedule_channel },
	{ NVA06F_CTRL_CMD_BIND, false, bind },
	{ NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL, false, set_channel_level },
	{ NVA06F_CTRL_CMD_GET_CONTEXT_ID, false, context_id },
	{ NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, false, token },
	{ NV906F_CTRL_GET_CLASS_ENGINEID, false, engine_of },
	{ NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, false, disable_channels },
	{ NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION, false, disable_for_keys },
	{ NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, false, channel_list },
	{ },
};
