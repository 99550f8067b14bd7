/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NVSIM_DEBUGFS_H
#define NVSIM_DEBUGFS_H

#include "sim.h"

struct dentry;
void sim_debugfs_maps(struct sim_gpu *gpu, struct dentry *folder);

#endif
