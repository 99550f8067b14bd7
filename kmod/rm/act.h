/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What DetShare has the driver do to a program that runs: each act is one RM_CONTROL or a short sequence of them, on the
 * program's own handles. Built here for every version, sent by rmcall.c in the kernel, and by tools in user space that show on a
 * real GPU what the same calls do.
 *
 * Nothing here takes memory, sleeps or keeps state.
 */
#ifndef DETSHARE_RM_ACT_H
#define DETSHARE_RM_ACT_H

#include "abi.h"

#define RM_STEP_PARAMS_MAX 1040
#define RM_CHANNELS_MAX NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES
#define RM_TPCS_MAX 256

/* One RM_CONTROL of a client on one of its objects; params is read and written. */
struct rm_step {
	u32 client;
	u32 object;
	u32 cmd;
	u32 size;
	u8 params[RM_STEP_PARAMS_MAX] __attribute__((aligned(8)));
};

/* ---- a channel group -------------------------------------------------------- */

void rm_act_get_slice(const struct rm_abi *abi, u32 client, u32 tsg, struct rm_step *step);
/* The answer, in microseconds. It is what was set last through RM, not what the hardware does. */
u64 rm_act_slice(const struct rm_abi *abi, const struct rm_step *step);
void rm_act_set_slice(const struct rm_abi *abi, u32 client, u32 tsg, u64 us, struct rm_step *step);
/* level: NVA06C_CTRL_INTERLEAVE_LEVEL_*. */
void rm_act_set_level(const struct rm_abi *abi, u32 client, u32 tsg, u32 level, struct rm_step *step);
/* Off the engine once, and waits until it is off. It comes back at its turn. */
void rm_act_preempt(const struct rm_abi *abi, u32 client, u32 tsg, struct rm_step *step);

/*
 * What a program may have chosen for itself before somebody managed it, set back. Turning real time off sets the level, so that is to be
 * set after it. Who has switched its slice off has one again with rm_act_set_slice().
 */
void rm_act_no_realtime(const struct rm_abi *abi, u32 client, u32 tsg, struct rm_step *step);
/* Kernels are taken off the engine in their midst (CILP). subdevice: any of the client on that GPU. */
void rm_act_preemptible(const struct rm_abi *abi, u32 client, u32 subdevice, u32 tsg, struct rm_step *step);

/* ---- channels --------------------------------------------------------------- */

struct rm_channel {
	u32 client, channel;
};

/*
 * Takes channels of one GPU off the run list, and what runs in them off the engine, or puts them back. The driver counts for each
 * channel: off twice needs on twice. client and subdevice: any on that GPU. -EINVAL: none, or more than RM_CHANNELS_MAX.
 */
int rm_act_disable(const struct rm_abi *abi, u32 client, u32 subdevice, const struct rm_channel *channels, unsigned int count,
		   bool off, struct rm_step *step);
/* The present slice ends, the run list begins anew. `force`: even if this channel runs. */
void rm_act_restart_runlist(const struct rm_abi *abi, u32 client, u32 channel, bool force, struct rm_step *step);

/*
 * Have channels of a client nothing left to do? NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS on the client's device, as a question: it waits for a
 * microsecond, for 0 is the driver's own long timeout. NV_OK: nothing, NV_ERR_TIMEOUT: they have. `params`: abi->idle_channels.len zeroed
 * bytes, more than a step has. -EINVAL: no channel, or more than RM_CHANNELS_MAX.
 */
int rm_act_ask_idle(const struct rm_abi *abi, const u32 *channels, unsigned int count, void *params);

/* ---- TPC ceiling -------------------------------------------------------------- */

enum rm_tpc_mode {
	RM_TPC_NONE,
	RM_TPC_STATIC,
	RM_TPC_DYNAMIC,
};

/*
 * A ceiling is a mode of the channel group, then a table for each of its context shares. It is lifted by tables of all TPCs: going back to
 * mode NONE hung the program on an H100.
 * The channel group must have a compute object, and the firmware must know the context share: NV_ERR_OBJECT_NOT_FOUND before.
 */
void rm_act_tpc_mode(const struct rm_abi *abi, u32 client, u32 tsg, enum rm_tpc_mode mode, bool all, struct rm_step *step);
/* The first `used` TPCs. At kernel privilege only. -EINVAL: 0, or more than RM_TPCS_MAX. */
int rm_act_tpc_table(const struct rm_abi *abi, u32 client, u32 ctxshare, unsigned int used, struct rm_step *step);
/* How many TPCs are `percent` of all, at least one; 100 and more: all. */
unsigned int rm_tpcs_of(unsigned int all, u32 percent);

#endif /* DETSHARE_RM_ACT_H */
