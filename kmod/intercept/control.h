/* SPDX-License-Identifier: GPL-2.0-only */
/* RM_CONTROL calls that matter for their answers: those about memory. */
#ifndef DETSHARE_CONTROL_H
#define DETSHARE_CONTROL_H

#include "shadow.h"

/* Lives in the probe's instance data from entry to return of rm_ioctl(); see shield.h. */
struct ds_control {
	struct ds_shadow_head head;
	u32 client;
	u32 object;
	u32 cmd;
	u32 params_size;
	unsigned long params;	/* in the caller's memory */
	unsigned long list;	/* FB_GET_INFO: the list, once the parameters were read; 0 before */
	u32 list_entries;
};

/* Atomic context: is it one of those, and if so, fill in *control from the block. */
bool ds_control_begin(struct ds_control *control, const void *block, u32 size);
/* The driver has read `n` bytes of the caller's memory at `user` to `kernel`: NV_STATUS of the read. */
u32 ds_control_read(struct ds_control *control, unsigned long user, void *kernel, u32 n);
/*
 * The driver is about to answer `n` bytes at `kernel` to the caller's memory at `user`: NULL, or what to answer
 * instead, to be freed by kvfree().
 */
void *ds_control_answer(struct ds_control *control, unsigned long user, const void *kernel, u32 n);

#endif
