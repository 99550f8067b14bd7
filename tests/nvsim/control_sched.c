// SPDX-License-Identifier: GPL-2.0-only
/*
 * Controls by which a tenant could undo what others decided for it: properties, real time, policies, preemption modes, SMs
 * of context shares; and questions about other clients' channels. Who may ask what is the driver's rule, not a better one.
 */
#include "control.h"
#include "engine.h"

#define PROPERTY_SLICE_US	0u	/* NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_... */
#define PROPERTY_SLICE_OFF	2u
#define POLICY_RESTORE		1u	/* NV2080_CTRL_CMD_FIFO_RUNLIST_SCHED_POLICY_FLAGS_RESTORE */
#define POLICY_DEFAULT		0u	/* NV2080_CTRL_FIFO_RUNLIST_SCHED_POLICY_... */
#define POLICY_LAST		2u
#define CILP_SET		1u	/* NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP */
#define CILP_WFI		0u
#define CILP_LAST		2u
#define UNIQUE_MAX		128u

#define GET(s, f)	NV_GET(ask->params, s, f)
#define PUT(s, f, v)	NV_PUT(ask->params, s, f, v)

static struct sim_object *find_kind(struct sim_client *client, u32 handle, enum sim_kind kind)
{
	struct sim_object *found = client ? sim_object_find(client, handle) : NULL;

	return found && found->kind == kind ? found : NULL;
}

/* A TSG by its own handle or by one of its channels'; NULL: it is neither. */
static struct sim_group *group_of(struct sim_object *object)
{
	if (!object)
		return NULL;
	return object->kind == KIND_KernelChannelGroupApi ? object->group :
	       object->kind == KIND_KernelChannel ? object->channel->group : NULL;
}

static NV_STATUS set_properties(struct sim_ask *ask)
{
	struct sim_object *channel = find_kind(ask->object->client,
					       GET(NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS, hChannel),
					       KIND_KernelChannel);
	u64 value = GET(NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS, value);

	if (!channel)
		return NV_ERR_INVALID_CHANNEL;
	switch (GET(NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS, property)) {
	case PROPERTY_SLICE_US:
		sim_tsg_set_timeslice(channel->channel->group->tsg, value);
		return NV_OK;
	case PROPERTY_SLICE_OFF:
		/* whatever the value; another slice ends it */
		sim_tsg_disable_timeslice(channel->channel->group->tsg);
		return NV_OK;
	default:
		return NV_ERR_NOT_SUPPORTED;
	}
}

static NV_STATUS make_realtime(struct sim_ask *ask)
{
	bool on = GET(NVA06C_CTRL_MAKE_REALTIME_PARAMS, bRealtime);

	return sim_tsg_make_realtime(ask->object->group->tsg, on) ? NV_ERR_INVALID_STATE : NV_OK;
}

static NV_STATUS restart_runlist(struct sim_ask *ask)
{
	sim_chan_restart_runlist(ask->object->channel->chan, GET(NVA06F_CTRL_RESTART_RUNLIST_PARAMS, bForceRestart));
	return NV_OK;
}

static NV_STATUS sched_policy(struct sim_ask *ask)
{
	u32 policy = GET(NV2080_CTRL_FIFO_RUNLIST_SET_SCHED_POLICY_PARAMS, schedPolicy);
	bool restore = GET(NV2080_CTRL_FIFO_RUNLIST_SET_SCHED_POLICY_PARAMS, flags) & POLICY_RESTORE;

	if (policy > POLICY_LAST)
		return NV_ERR_INVALID_ARGUMENT;
	return sim_engine_interleave(ask->object->gpu->engine, ask->object->client->handle,
				     restore || policy != POLICY_DEFAULT) ? NV_ERR_INVALID_STATE : NV_OK;
}

/* ---- preemption modes ---- */

static NV_STATUS preemption_mode(struct sim_group *group, u32 flags, u32 mode)
{
	if (!group)
		return NV_ERR_INVALID_CHANNEL;
	if (!(flags & CILP_SET))
		return NV_OK;
	if (mode > CILP_LAST)
		return NV_ERR_INVALID_ARGUMENT;
	sim_tsg_set_wfi(group->tsg, mode == CILP_WFI);
	return NV_OK;
}

/* What is called a channel here is a TSG where CUDA asks. */
static NV_STATUS set_preemption(struct sim_ask *ask)
{
	u32 handle = GET(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, hChannel);

	return preemption_mode(group_of(sim_object_find(ask->object->client, handle)),
			       GET(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, flags),
			       GET(NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, cilpPreemptMode));
}

static NV_STATUS bind_preemption(struct sim_ask *ask)
{
	struct sim_client *client = sim_client_any(GET(NV2080_CTRL_GR_CTXSW_PREEMPTION_BIND_PARAMS, hClient));
	u32 handle = GET(NV2080_CTRL_GR_CTXSW_PREEMPTION_BIND_PARAMS, hChannel);

	return preemption_mode(client ? group_of(sim_object_find(client, handle)) : NULL,
			       GET(NV2080_CTRL_GR_CTXSW_PREEMPTION_BIND_PARAMS, flags),
			       GET(NV2080_CTRL_GR_CTXSW_PREEMPTION_BIND_PARAMS, cilpPreemptMode));
}

/* ---- SMs ---- */

/* There is nothing to partition before the TSG has a graphics context. */
static NV_STATUS tpc_mode(struct sim_group *group, u32 mode)
{
	if (!group || !group->graphics)
		return NV_ERR_OBJECT_NOT_FOUND;
	return sim_tsg_set_tpc_mode(group->tsg, mode) ? NV_ERR_INVALID_ARGUMENT : NV_OK;
}

static NV_STATUS set_tpc_mode(struct sim_ask *ask)
{
	return tpc_mode(group_of(ask->object), GET(NV0090_CTRL_TPC_PARTITION_MODE_PARAMS, mode));
}

static NV_STATUS get_tpc_mode(struct sim_ask *ask)
{
	struct sim_group *group = group_of(ask->object);

	if (!group->graphics)
		return NV_ERR_OBJECT_NOT_FOUND;
	PUT(NV0090_CTRL_TPC_PARTITION_MODE_PARAMS, mode, sim_tsg_tpc_mode(group->tsg));
	return NV_OK;
}

/* The device's and the subdevice's commands have the same layout. */
static NV_STATUS set_tpc_mode_of(struct sim_ask *ask)
{
	u32 handle = GET(NV0080_CTRL_GR_TPC_PARTITION_MODE_PARAMS, hChannelGroup);

	return tpc_mode(group_of(find_kind(ask->object->client, handle, KIND_KernelChannelGroupApi)),
			GET(NV0080_CTRL_GR_TPC_PARTITION_MODE_PARAMS, mode));
}

static NV_STATUS get_tpc_mode_of(struct sim_ask *ask)
{
	u32 handle = GET(NV0080_CTRL_GR_TPC_PARTITION_MODE_PARAMS, hChannelGroup);
	struct sim_object *found = find_kind(ask->object->client, handle, KIND_KernelChannelGroupApi);

	if (!found || !found->group->graphics)
		return NV_ERR_OBJECT_NOT_FOUND;
	PUT(NV0080_CTRL_GR_TPC_PARTITION_MODE_PARAMS, mode, sim_tsg_tpc_mode(found->group->tsg));
	return NV_OK;
}

/* {u16 global TPC, u16 local memory block}[]: which TPCs they are makes no difference here, only how many. */
static NV_STATUS set_tpc_table(struct sim_ask *ask)
{
	u32 used = GET(NV9067_CTRL_TPC_PARTITION_TABLE_PARAMS, numUsedTpc);
	struct sim_object *share = ask->object;
	struct sim_group *group = share->parent->group;

	if (!group->graphics || !sim_tsg_scheduled(group->tsg))
		return NV_ERR_OBJECT_NOT_FOUND;	/* the firmware does not know the share yet */
	if (sim_tsg_tpc_mode(group->tsg) == SIM_TPC_NONE)
		return NV_ERR_INVALID_STATE;
	if (!used)
		return NV_ERR_INVALID_ARGUMENT;
	return sim_tsg_set_sms(group->tsg, share->veid, used * SIM_SMS_PER_TPC) ? NV_ERR_INVALID_ARGUMENT : NV_OK;
}

/* ---- questions and orders that name other clients' channels ---- */

static u32 vas_number(const struct sim_channel *channel)
{
	return channel->vas ? channel->vas->unique : 0;
}

static NV_STATUS group_numbers(struct sim_ask *ask)
{
	struct sim_client *client = sim_client_any(GET(NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, hClient));
	u32 handle = GET(NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, hChannelOrTsg), count = 0;
	struct sim_object *object;
	struct sim_group *group;
	unsigned long i;

	group = client ? group_of(sim_object_find(client, handle)) : NULL;
	if (!group)
		return NV_ERR_OBJECT_NOT_FOUND;
	PUT(NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, tsgId, sim_tsg_unique(group->tsg));
	xa_for_each(&client->objects, i, object) {
		if (object->kind != KIND_KernelChannel || object->channel->group != group || count == UNIQUE_MAX)
			continue;
		NV_PUTI(ask->params, NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, channelUniqueID, count,
			sim_chan_unique(object->channel->chan));
		NV_PUTI(ask->params, NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, vasUniqueID, count,
			vas_number(object->channel));
		NV_PUTI(ask->params, NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, veid, count,
			object->channel->veid);
		count++;
	}
	PUT(NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS, numChannels, count);
	return NV_OK;
}

static NV_STATUS channel_numbers(struct sim_ask *ask)
{
	u32 count = GET(NV2080_CTRL_FIFO_QUERY_CHANNEL_UNIQUE_ID_PARAMS, numChannels);

	if (!count || count > UNIQUE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	for (u32 i = 0; i < count; i++) {
		struct sim_object *channel;

		channel = find_kind(sim_client_any(NV_GETI(ask->params, NV2080_CTRL_FIFO_QUERY_CHANNEL_UNIQUE_ID_PARAMS,
							   hClients, i)),
				    NV_GETI(ask->params, NV2080_CTRL_FIFO_QUERY_CHANNEL_UNIQUE_ID_PARAMS, hChannels, i),
				    KIND_KernelChannel);
		if (!channel)
			return NV_ERR_INVALID_CHANNEL;
		NV_PUTI(ask->params, NV2080_CTRL_FIFO_QUERY_CHANNEL_UNIQUE_ID_PARAMS, channelUniqueIDs, i,
			sim_chan_unique(channel->channel->chan));
	}
	return NV_OK;
}

/* Of the asking client; the escape of the same name takes other clients' too (dma.c). */
static NV_STATUS idle_channels(struct sim_ask *ask)
{
	u32 count = GET(NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS, numChannels);
	u32 us = GET(NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS, timeout), flags = GET(NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS, flags);
	u64 end;
	NV_STATUS status = NV_OK;

	if (count > SIM_IDLE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	/* to the firmware and back: it looks in between */
	sim_engine_take_time();
	end = sim_idle_end(us);
	for (u32 i = 0; i < count && status == NV_OK; i++)
		status = sim_idle_one(ask->object->client->handle,
				      NV_GETI(ask->params, NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS, hChannels, i), flags, us, end);
	sim_engine_take_time();
	return status;
}

const struct sim_handler sim_sched_handlers[] = {
	{ NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES, false, set_properties },
	{ NVA06C_CTRL_CMD_MAKE_REALTIME, false, make_realtime },
	{ NVA06F_CTRL_CMD_RESTART_RUNLIST, false, restart_runlist },
	{ NV2080_CTRL_CMD_FIFO_RUNLIST_SET_SCHED_POLICY, false, sched_policy },
	{ NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, false, set_preemption },
	{ NV2080_CTRL_CMD_GR_CTXSW_PREEMPTION_BIND, false, bind_preemption },
	{ NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE, false, set_tpc_mode },
	{ NV0090_CTRL_CMD_GET_TPC_PARTITION_MODE, false, get_tpc_mode },
	{ NV0080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, false, set_tpc_mode_of },
	{ NV0080_CTRL_CMD_GR_GET_TPC_PARTITION_MODE, false, get_tpc_mode_of },
	{ NV2080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, false, set_tpc_mode_of },
	{ NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE, false, set_tpc_table },
	{ NV2080_CTRL_CMD_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO, false, group_numbers },
	{ NV2080_CTRL_CMD_FIFO_QUERY_CHANNEL_UNIQUE_ID, false, channel_numbers },
	{ NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS, false, idle_channels },
	{ },
};
