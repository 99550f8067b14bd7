/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls to the helper over the one queue. */
#ifndef NVFWD_QUEUE_H
#define NVFWD_QUEUE_H

#include <linux/completion.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "wire.h"

/*
 * A call has two owners: who waits, and the queue. The later one to let go frees it. Whoever does not wait, or gives up, leaves `late` to
 * look at the answer, in a context that may sleep.
 */
struct nvf_call {
	struct nvf_req req;
	struct nvf_rep rep;
	u8 *in, *out;
	u32 room;
	int state;
	struct completion done;
	struct work_struct work;
	void (*late)(struct nvf_call *call);
	void *owner;		/* of `late` */
};

/* Room for `len` bytes there and `room` bytes back. NULL: no memory. */
struct nvf_call *nvf_call_new(u32 op, s32 handle, u32 len, u32 room);
/* 0: call->rep and call->out are the answer, and the caller frees. Else the call is gone: -ERESTARTSYS, -ENODEV, -EIO. */
int nvf_call_wait(struct nvf_call *call);
/* Sends and does not wait. The call is gone. */
void nvf_call_send(struct nvf_call *call);
void nvf_call_free(struct nvf_call *call);
/*
 * A question whose answer may never come, before it is sent, and after its answer. These take half of the queue at most, so that a call
 * waits for other calls only. -EBUSY: they do, and the kernel log says so.
 */
int nvf_question_begin(void);
void nvf_question_end(void);
/*
 * What takes something back: never fails for lack of memory, waits for the answer unless the helper takes half a minute. May be asked
 * by a task that is being killed.
 */
void nvf_undo(u32 op, s32 handle, u64 a);

/* Guest physical address of the shared region, 0: no device. */
u64 nvf_shared_base(void);
u64 nvf_shared_size(void);

int nvf_queue_init(void);
void nvf_queue_exit(void);

#endif
