// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "act.h"

/* NVOS30_FLAGS_* */
/*
 * BEHAVIOR, bits 3:0: on an H100 (580) FORCE_BUSY_CHECK tells of a running kernel and leaves it alone. QUERY, 2, says NV_OK of one: it
 * looks at what is queued.
 */
#define IDLE_FORCE_BUSY_CHECK 3u
#define IDLE_LIST (0u << 4)		/* CHANNEL, bits 7:4 */
#define IDLE_PUSH_BUFFER (1u << 8)	/* IDLE, bits 30:8 */
#define IDLE_GRAPHICS (4u << 8)
/* How long the firmware may wait for "idle". An H100 has looked after 200 us and not after 100, when it says "busy" of all. */
#define IDLE_WAIT_US 400u
/* Of one entry of a TPC table: globalTpcIndex, then lmemBlockIndex. */
#define TPC_ENTRY_SIZE 4

static void begin(struct rm_step *step, u32 client, u32 object, u32 cmd, u32 size)
{
	if (RM_BUG(size > RM_STEP_PARAMS_MAX))
		size = 0;
	step->client = client;
	step->object = object;
	step->cmd = cmd;
	step->size = size;
	memset(step->params, 0, size);
}

void rm_act_get_slice(const struct rm_abi *abi, u32 client, u32 tsg, struct rm_step *step)
{
	begin(step, client, tsg, NVA06C_CTRL_CMD_GET_TIMESLICE, abi->timeslice.len);
}

u64 rm_act_slice(const struct rm_abi *abi, const struct rm_step *step)
{
	return rm_get64(step->params, abi->timeslice.timesliceUs);
}

void rm_act_set_slice(const struct rm_abi *abi, u32 client, u32 tsg, u64 us, struct rm_step *step)
{
	begin(step, client, tsg, NVA06C_CTRL_CMD_SET_TIMESLICE, abi->timeslice.len);
	rm_put64(step->params, abi->timeslice.timesliceUs, us);
}

void rm_act_set_level(const struct rm_abi *abi, u32 client, u32 tsg, u32 level, struct rm_step *step)
{
	begin(step, client, tsg, NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, abi->interleave.len);
	rm_put32(step->params, abi->interleave.tsgInterleaveLevel, level);
}

void rm_act_preempt(const struct rm_abi *abi, u32 client, u32 tsg, struct rm_step *step)
{
	begin(step, client, tsg, NVA06C_CTRL_CMD_PREEMPT, abi->tsg_preempt.len);
	rm_put8(step->params, abi->tsg_preempt.bWait, true);
}

void rm_act_no_realtime(const struct rm_abi *abi, u32 client, u32 tsg, struct rm_step *step)
{
	begin(step, client, tsg, NVA06C_CTRL_CMD_MAKE_REALTIME, abi->realtime.len);
	rm_put8(step->params, abi->realtime.bRealtime, false);
}

void rm_act_preemptible(const struct rm_abi *abi, u32 client, u32 subdevice, u32 tsg, struct rm_step *step)
{
	begin(step, client, subdevice, NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, abi->ctxsw_mode.len);
	rm_put32(step->params, abi->ctxsw_mode.flags, RM_CTXSW_CILP_SET);
	rm_put32(step->params, abi->ctxsw_mode.hChannel, tsg);
	rm_put32(step->params, abi->ctxsw_mode.cilpPreemptMode, RM_CTXSW_CILP);
}

int rm_act_disable(const struct rm_abi *abi, u32 client, u32 subdevice, const struct rm_channel *channels, unsigned int count,
		   bool off, struct rm_step *step)
{
	unsigned int i;

	if (!count || count > RM_CHANNELS_MAX)
		return -EINVAL;
	begin(step, client, subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, abi->disable_channels.len);
	rm_put8(step->params, abi->disable_channels.bDisable, off);
	rm_put32(step->params, abi->disable_channels.numChannels, count);
	for (i = 0; i < count; i++) {
		struct rm_f32 client_at = { abi->disable_channels.hClientList.off + 4 * i };
		struct rm_f32 channel_at = { abi->disable_channels.hChannelList.off + 4 * i };

		rm_put32(step->params, client_at, channels[i].client);
		rm_put32(step->params, channel_at, channels[i].channel);
	}
	return 0;
}

void rm_act_restart_runlist(const struct rm_abi *abi, u32 client, u32 channel, bool force, struct rm_step *step)
{
	begin(step, client, channel, NVA06F_CTRL_CMD_RESTART_RUNLIST, abi->restart_runlist.len);
	rm_put8(step->params, abi->restart_runlist.bForceRestart, force);
}

int rm_act_ask_idle(const struct rm_abi *abi, const u32 *channels, unsigned int count, void *params)
{
	unsigned int i;

	if (!count || count > RM_CHANNELS_MAX)
		return -EINVAL;
	rm_put32(params, abi->idle_channels.numChannels, count);
	for (i = 0; i < count; i++) {
		struct rm_f32 channel_at = { abi->idle_channels.hChannels.off + 4 * i };

		rm_put32(params, channel_at, channels[i]);
	}
	rm_put32(params, abi->idle_channels.flags, IDLE_FORCE_BUSY_CHECK | IDLE_LIST | IDLE_PUSH_BUFFER | IDLE_GRAPHICS);
	rm_put32(params, abi->idle_channels.timeout, IDLE_WAIT_US);
	return 0;
}

void rm_act_tpc_mode(const struct rm_abi *abi, u32 client, u32 tsg, enum rm_tpc_mode mode, bool all, struct rm_step *step)
{
	begin(step, client, tsg, NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE, abi->tpc_mode.len);
	rm_put32(step->params, abi->tpc_mode.mode, mode);
	rm_put8(step->params, abi->tpc_mode.bEnableAllTpcs, all);
}

int rm_act_tpc_table(const struct rm_abi *abi, u32 client, u32 ctxshare, unsigned int used, struct rm_step *step)
{
	unsigned int i;

	if (!used || used > RM_TPCS_MAX || used * TPC_ENTRY_SIZE > abi->tpc_table.tpcList.size)
		return -EINVAL;
	begin(step, client, ctxshare, NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE, abi->tpc_table.len);
	rm_put16(step->params, abi->tpc_table.numUsedTpc, (u16)used);
	for (i = 0; i < used; i++) {
		struct rm_f16 tpc = { abi->tpc_table.tpcList.off + TPC_ENTRY_SIZE * i };
		struct rm_f16 block = { tpc.off + 2 };

		rm_put16(step->params, tpc, (u16)i);
		/* of use in mode STATIC: local memory block i is TPC i's */
		rm_put16(step->params, block, (u16)i);
	}
	return 0;
}

unsigned int rm_tpcs_of(unsigned int all, u32 percent)
{
	unsigned int used;

	if (percent >= 100)
		return all;
	used = (all * percent + 50) / 100;
	return used ? used : 1;
}
