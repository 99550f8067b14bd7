/* SPDX-License-Identifier: GPL-2.0-only */
/* What is known of each GPU that programs use. */
#ifndef DETSHARE_GPU_H
#define DETSHARE_GPU_H

#include <linux/types.h>

struct ds_gpu {
	bool seen;
	char uuid[48];	/* "": not known yet */
	u64 total;	/* bytes, 0: not known yet */
};

/*
 * A client has made this subdevice: through it the GPU is asked who it is, which is waited for, killably, DS_RM_PATIENCE at most. The order of the
 * client's file is held, nothing below it.
 */
void ds_gpu_seen(u32 gpu, u32 client, u32 subdevice);
/*
 * The index of the GPU behind a subdevice, by its UUID: one that is known, else the first that no program has used.
 * RM_GPU_NONE: the driver does not tell, or not in DS_RM_PATIENCE, or there are too many GPUs.
 */
u32 ds_gpu_ask(u32 client, u32 subdevice);
/* false: no program has used it. */
bool ds_gpu_get(u32 gpu, struct ds_gpu *info);
unsigned int ds_gpu_count(void);
/* The driver is gone. */
void ds_gpu_forget(void);

#endif
