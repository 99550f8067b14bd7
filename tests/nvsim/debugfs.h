/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NVSIM_DEBUGFS_H
#define NVSIM_DEBUGFS_H

#include "sim.h"

struct dentry;
void sim_debugfs_maps(struct sim_gpu *gpu, struct dentry *folder);
void sim_debugfs_failing(struct dentry *folder);
void sim_debugfs_waiting(struct dentry *folder);

/* What a test wants this call of another kernel module to say. NV_OK: what it is. late: it is done all the same. */
NV_STATUS sim_failing(u32 cmd, bool *late);
#define SIM_FAILING_STACK 0x1	/* in the place of a control: alloc_stack() has no memory */
#define SIM_FAILING_FREE 0x2	/* RM_FREE */
#define SIM_FAILING_ALLOC 0x3	/* RM_ALLOC */

/* Of a call of another kernel module; it waits there as long as a test wants. */
enum sim_stage { SIM_BEGUN, SIM_DONE, SIM_ANSWERED, SIM_STAGES };
void sim_waiting(u32 cmd, enum sim_stage stage);

#endif
