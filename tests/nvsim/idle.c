// SPDX-License-Identifier: GPL-2.0-only
/*
 * RM_IDLE_CHANNELS: takes channels off the GPU and waits until they are idle, or, as a question, only looks whether they are. Whose they
 * are is not asked.
 */
#include "sim.h"

#define CHANNEL_LO	4
#define CHANNEL_HI	7
#define CHANNEL_SINGLE	1	/* NVOS30_FLAGS_CHANNEL */
#define BEHAVIOR_LO	0
#define BEHAVIOR_HI	3
#define BEHAVIOR_QUERY	2	/* NVOS30_FLAGS_BEHAVIOR */
#define BEHAVIOR_CHECK	3	/* FORCE_BUSY_CHECK */
#define LOOK_US		150	/* on an H100 a time limit of 100 us is over before anything was looked at, 200 us are not */
#define DEFAULT_US	4000000

/* Of all channels of a call together. */
u64 sim_idle_end(u32 us)
{
	return ktime_get_ns() + (u64)(us ?: DEFAULT_US) * NSEC_PER_USEC;
}

/*
 * A question takes nothing off the GPU. As on an H100, QUERY tells whether all was fetched, not whether it has ended, and a channel that
 * is off is idle, whatever it had begun.
 */
static bool is_idle(struct sim_chan *chan, u32 behavior, u32 us, u64 end)
{
	if (behavior < BEHAVIOR_QUERY)
		return sim_chan_idle(chan, end);
	if (us && us < LOOK_US)
		return false;
	if (behavior == BEHAVIOR_QUERY)
		return sim_chan_is_fetched(chan);
	return sim_chan_is_off(chan) || sim_chan_wait_idle(chan, end);
}

NV_STATUS sim_idle_one(u32 client_handle, u32 handle, u32 flags, u32 us, u64 end)
{
	struct sim_client *client = sim_client_any(client_handle);
	struct sim_object *found = client ? sim_object_find(client, handle) : NULL;

	if (!found || found->kind != KIND_KernelChannel)
		return NV_ERR_INVALID_CHANNEL;
	return is_idle(found->channel->chan, NV_BITS(flags, BEHAVIOR), us, end) ? NV_OK : NV_ERR_TIMEOUT;
}

static NV_STATUS idle_listed(const struct sim_caller *by, const void *block, u32 us)
{
	u32 count = NV_GET(block, NVOS30_PARAMETERS, numChannels), flags = NV_GET(block, NVOS30_PARAMETERS, flags);
	struct sim_params clients = { }, channels = { };
	u64 end = sim_idle_end(us);
	NV_STATUS status;

	if (!count || count > SIM_IDLE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	status = sim_params_in(&clients, by, NV_GET(block, NVOS30_PARAMETERS, phClients), count * sizeof(u32));
	if (status == NV_OK)
		status = sim_params_in(&channels, by, NV_GET(block, NVOS30_PARAMETERS, phChannels), count * sizeof(u32));
	if (status == NV_OK && (!clients.data || !channels.data))
		status = NV_ERR_INVALID_ARGUMENT;
	down_read(&sim_api_lock);
	for (u32 i = 0; i < count && status == NV_OK; i++)
		status = sim_idle_one(((u32 *)clients.data)[i], ((u32 *)channels.data)[i], flags, us, end);
	up_read(&sim_api_lock);
	sim_params_out(&clients, NV_ERR_GENERIC);	/* only read */
	sim_params_out(&channels, NV_ERR_GENERIC);
	return status;
}

void sim_idle_channels(const struct sim_caller *by, void *block)
{
	u32 handle = NV_GET(block, NVOS30_PARAMETERS, hClient), us = NV_GET(block, NVOS30_PARAMETERS, timeout);
	u32 flags = NV_GET(block, NVOS30_PARAMETERS, flags);
	NV_STATUS status = NV_OK;

	down_read(&sim_api_lock);
	if (!sim_client_find(handle, by))
		status = NV_ERR_INVALID_CLIENT;
	else if (NV_BITS(flags, CHANNEL) == CHANNEL_SINGLE)
		status = sim_idle_one(handle, NV_GET(block, NVOS30_PARAMETERS, hChannel), flags, us, sim_idle_end(us));
	up_read(&sim_api_lock);
	if (status == NV_OK && NV_BITS(flags, CHANNEL) != CHANNEL_SINGLE)
		status = idle_listed(by, block, us);
	NV_PUT(block, NVOS30_PARAMETERS, status, status);
}
