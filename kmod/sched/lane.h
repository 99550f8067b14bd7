/* SPDX-License-Identifier: GPL-2.0-only */
/* How runs begin and end, and how all of them are let go. */
#ifndef DETSHARE_LANE_H
#define DETSHARE_LANE_H

#include "rotation.h"
#include "run.h"

/*
 * The run of this client on a GPU, made if need be; lent as long as the client has it. The caller holds the order of the
 * client's file, and not client->tree. NULL: no memory, or the client has no vCtx there.
 */
struct ds_run *ds_run_of(struct ds_client *client, u32 gpu);
/* The vCtx goes: the run is dropped with what it holds. No lock but ds_file.order. */
void ds_run_drop(struct ds_vctx *vctx);

/*
 * Everybody is let go and stays so, until it is taken back: the machine is being suspended, or the module goes. Waits until gates are
 * open and the driver has put channels back.
 */
void ds_runs_let_go(void);
void ds_runs_take_back(void);
/* The module goes, nobody calls any more: what was to be tried again is not. */
void ds_runs_forget(void);

/* What the turns of a GPU below RM_GPUS are at. Sleeps. */
void ds_lane_tell(u32 gpu, struct ds_rotation_info *info);

int ds_lane_init(void);
void ds_lane_exit(void);

#endif
