/* SPDX-License-Identifier: GPL-2.0-only */
/* From what is asked for to what is charged and made: the way that all allocations go. */
#ifndef DETSHARE_PLAN_H
#define DETSHARE_PLAN_H

#include "calls.h"

/* What an allocation will be, and what was promised for it. */
struct ds_plan {
	struct rm_alloc alloc;
	u32 parent;
	u32 gpu;
	struct ds_vctx *vctx;	/* who is charged */
	u64 charged;
	struct rm_memory *held;	/* memory that was there before and that the object keeps: one hold of vctx's payer */
};

/* The GPU on which an object below this parent will be. Under client->tree. */
u32 ds_gpu_below(struct ds_client *client, u32 parent);
/*
 * From plan to object. `bytes_of` tells what the driver took, from its answer. false: there is no new object, whatever stands in the
 * caller's block.
 */
bool ds_plan_allocate(struct ds_call *call, struct ds_plan *plan, u64 (*bytes_of)(struct ds_call *call, const struct ds_plan *plan));
/* A charge that was not granted: counts it, tells it, refuses the call. `refusal` NULL: the kernel has no memory. */
void ds_alloc_refused(struct ds_call *call, struct ds_vctx *vctx, const struct ds_refusal *refusal);

#endif
