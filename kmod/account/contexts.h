/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many channel groups there may be for one limit. The driver takes tens of MiB of video memory for the contexts of each, which no handle
 * shows and nobody is charged for: their number is bounded instead, on each GPU by itself (module parameter groups_max).
 */
#ifndef DETSHARE_CONTEXTS_H
#define DETSHARE_CONTEXTS_H

#include <linux/list.h>
#include <linux/types.h>

struct ds_process;

/* A channel group that is being made. */
struct ds_context {
	struct list_head link;
	struct ds_process *process;
	u32 gpu;
};

/*
 * May the process have one more on this GPU? If so it counts until ds_context_end(), which is for when it is in its client's tree, or was not
 * made. Takes ds_limits_lock; the caller holds ds_file.order at most.
 */
bool ds_context_begin(struct ds_context *context, struct ds_process *process, u32 gpu);
void ds_context_end(struct ds_context *context);
/* Is there a bound? A channel in no group has a context too, and is not counted. */
bool ds_contexts_bounded(void);

#endif
