// SPDX-License-Identifier: GPL-2.0-only
#include <linux/atomic.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "adopt.h"
#include "alloc.h"
#include "binding.h"
#include "calls.h"
#include "compat.h"
#include "driver.h"
#include "dup.h"
#include "filter.h"
#include "limit.h"
#include "map.h"
#include "shield.h"
#include "stats.h"
#include "trace.h"
#include "transfer.h"

/* Calls inside the driver whose return must be seen: there is one probe instance for each. */
static atomic_t framed;
static DECLARE_WAIT_QUEUE_HEAD(framed_wait);

static __always_inline bool interesting(unsigned int nr)
{
	switch (nr) {
	case NV_ESC_RM_ALLOC:
	case NV_ESC_RM_FREE:
	case NV_ESC_RM_DUP_OBJECT:
	case NV_ESC_RM_VID_HEAP_CONTROL:
	case NV_ESC_RM_ALLOC_MEMORY:
	case NV_ESC_RM_ALLOC_OBJECT:
	case NV_ESC_RM_ALLOC_CONTEXT_DMA2:
	case NV_ESC_RM_MAP_MEMORY:
	case NV_ESC_RM_MAP_MEMORY_DMA:
	case NV_ESC_RM_IDLE_CHANNELS:
	case NV_ESC_REGISTER_FD:
		return true;
	default:
		return false;
	}
}

/* Is this RM_CONTROL decided on? `block` is its argument block, or as much of it as CONTROL_HEAD. */
static bool control_wanted(const struct rm_abi *abi, const void *block)
{
	return ds_transfer_is(rm_get32(block, abi->nvos54.cmd)) || ds_filter_wants(abi, block);
}

/* Client, object, command and flags of an RM_CONTROL come first in its block. */
#define CONTROL_HEAD 16

/* Atomic context: the RM_CONTROL at this address of the caller's memory. */
static bool control_maybe(unsigned long user)
{
	const struct rm_abi *abi = ds_abi();
	u8 head[CONTROL_HEAD];

	if (!abi)
		return false;
	/* what is not in memory just now is read with more patience later */
	return copy_from_user_nofault(head, (void __user *)user, sizeof(head)) || control_wanted(abi, head);
}

bool ds_calls_wanted(struct ftrace_regs *fregs)
{
	unsigned int nr = _IOC_NR(ds_regs_argument(fregs, 1));

	if (nr == NV_ESC_RM_CONTROL)
		return control_maybe(ds_regs_argument(fregs, 2));
	return interesting(nr) || nr == NV_ESC_IOCTL_XFER_CMD;
}

static long original(struct ds_call *call)
{
	return ds_hook_call(call->hook, (unsigned long)call->file, call->cmd, call->arg);
}

static bool take_place(void)
{
	return atomic_add_unless(&framed, 1, DS_SHIELD_CALLS_MAX);
}

static void leave_place(void)
{
	if (atomic_dec_return(&framed) >= DS_SHIELD_CALLS_MAX - 1)
		wake_up(&framed_wait);
}

/* false: the task is being killed, the driver was not called. */
static bool framed_call(struct ds_call *call, struct ds_frame_head *head)
{
	if (!take_place() && wait_event_killable(framed_wait, take_place())) {
		call->ret = -EINTR;
		return false;
	}
	ds_frame_open(head);
	call->ret = original(call);
	ds_frame_close(head);
	leave_place();
	return true;
}

bool ds_call_driver(struct ds_call *call)
{
	struct ds_frame *frame = call->frame;

	if (!framed_call(call, &frame->head))
		return false;
	if (!frame->returned)
		return false;
	rm_decode(call->abi, frame->nr, frame->block, frame->size, &call->done);
	return !frame->rm_status && !call->done.status;
}

bool ds_call_aside(struct ds_call *call)
{
	struct ds_call aside = *call;
	bool done;

	aside.cmd = _IO(NV_IOCTL_MAGIC, DS_NO_ESCAPE);
	call->frame->ours = true;
	done = ds_call_driver(&aside);
	call->done = aside.done;
	call->ret = aside.ret;
	return done;
}

/* The answer of a call that went aside. As with the driver, what was made stays where the caller cannot be told of it. */
static void tell(struct ds_call *call)
{
	struct ds_frame *frame = call->frame;
	struct rm_f32 at = { call->asked.off_status };

	if (!frame->ours || !frame->returned)
		return;
	if (frame->answered && at.off != RM_ABSENT &&
	    copy_to_user((void __user *)frame->user_params, frame->params, frame->params_size))
		rm_put32(frame->block, at, NV_ERR_INVALID_ADDRESS);
	if (copy_to_user((void __user *)call->arg, frame->block, frame->size))
		call->ret = -EFAULT;
}

void ds_call_refuse(struct ds_call *call, u32 status)
{
	struct rm_f32 at = { call->asked.off_status };

	ds_count(refused);
	call->frame->ours = false;
	if (at.off != RM_ABSENT)
		rm_put32(call->frame->block, at, status);
	call->ret = copy_to_user((void __user *)call->arg, call->frame->block, call->frame->size) ?
			    -EFAULT : 0;
}

/*
 * A question of our own rides on a call without a block: block and parameters exist in the frame only (frame->ours).
 * Nothing of the caller's memory is read or written, which other threads of his may be using; the address only names
 * the parameters. false: the driver was not asked; else *ask->frame has its answer.
 */
static bool put_question(const struct ds_call *call, struct ds_call *ask, u32 nr, u32 size, u32 params_size)
{
	struct ds_frame *frame = ds_frame_alloc();

	if (!frame)
		return false;
	frame->ours = true;
	frame->nr = nr;
	frame->size = size;
	frame->user_params = call->arg;
	frame->params_size = params_size;
	frame->params = frame->own;
	memset(frame->own, 0, params_size);
	memset(frame->block, 0, size);
	*ask = *call;
	ask->cmd = _IO(NV_IOCTL_MAGIC, DS_NO_ESCAPE);
	ask->frame = frame;
	return true;
}

bool ds_call_owns(struct ds_call *call, u32 client)
{
	const struct rm_abi *abi = call->abi;
	struct ds_frame *frame;
	struct ds_call ask;
	bool owns;

	if (!put_question(call, &ask, NV_ESC_RM_SHARE, abi->nvos57.len, 0))
		return false;
	frame = ask.frame;
	/*
	 * Object 0, which no client has: nothing is shared. That it is missing is said to who may use the client only, and
	 * no answer is logged; a control that names no client would be.
	 */
	rm_put32(frame->block, abi->nvos57.hClient, client);
	ds_call_driver(&ask);
	owns = frame->returned && !frame->rm_status && ask.done.status == NV_ERR_OBJECT_NOT_FOUND;
	ds_frame_free(frame);
	return owns;
}

bool ds_call_may_use(struct ds_call *call, u32 client)
{
	const struct rm_abi *abi = call->abi;
	struct ds_frame *frame;
	struct ds_call ask;
	bool may;

	if (!put_question(call, &ask, NV_ESC_RM_ALLOC, abi->nvos64.len, rm_alloc_params_size(abi, NV01_EVENT_OS_EVENT)))
		return false;
	frame = ask.frame;
	/*
	 * An event may be asked for on every file. It needs a parent, and none has the handle 0; but before the driver
	 * looks for a parent it looks whose the client is.
	 */
	rm_put32(frame->block, abi->nvos64.hRoot, client);
	rm_put32(frame->block, abi->nvos64.hObjectNew, client ^ 1);
	rm_put32(frame->block, abi->nvos64.hClass, NV01_EVENT_OS_EVENT);
	rm_put64(frame->block, abi->nvos64.pAllocParms, frame->user_params);
	ds_call_driver(&ask);
	/* how the missing parent is called has changed with the branches */
	may = frame->returned && !frame->rm_status &&
	      (ask.done.status == NV_ERR_INVALID_OBJECT || ask.done.status == NV_ERR_OBJECT_NOT_FOUND);
	ds_frame_free(frame);
	return may;
}

bool ds_call_is_bound(struct ds_call *call)
{
	const struct rm_abi *abi = call->abi;
	struct ds_frame *frame;
	struct ds_call ask;
	bool bound;

	if (!put_question(call, &ask, NV_ESC_REGISTER_FD, abi->register_fd.len, 0))
		return false;
	frame = ask.frame;
	rm_put32(frame->block, abi->register_fd.ctl_fd, -1);	/* no file: it stays as it is */
	ds_call_driver(&ask);
	bound = frame->returned && frame->rm_status == NV_ERR_INVALID_STATE;
	ds_frame_free(frame);
	return bound;
}

bool ds_calls_file(const struct file *file)
{
	struct ds_frame_head *head = ds_frame_current();
	struct ds_frame *frame;

	if (!head || head->kind != DS_FRAME_CALL)
		return true;
	frame = container_of(head, struct ds_frame, head);
	if (frame->transfer)
		return ds_transfer_file(frame->transfer, file);
	if (frame->claim)
		return ds_map_take(frame, file);
	if (frame->taken) {
		ds_file_put(*frame->taken);
		*frame->taken = ds_file_get(file);
		return *frame->taken;
	}
	if (frame->shown)
		*frame->shown = file;
	return true;
}

static bool makes_client(const struct ds_call *call)
{
	return (call->asked.op == RM_OP_ALLOC || call->asked.op == RM_OP_ALLOC_OBJECT) &&
	       rm_class_is_root(call->asked.class);
}

/* The block may be anybody's guess: only outer structures that never changed are looked at. */
static void observe(struct ds_call *call)
{
	if (!ds_call_driver(call))
		return;
	if (makes_client(call))
		ds_alloc_client(call);
	else if (call->asked.op == RM_OP_FREE && call->client &&
		 call->asked.object == call->client->rm.handle)
		ds_client_remove(call->client);
}

/* What would make a doorbell that cannot be shut, or names another's channels, is answered here. */
static bool filtered(struct ds_call *call)
{
	switch (call->asked.op) {
	case RM_OP_MAP:
		return ds_filter_map(call);
	case RM_OP_MAP_DMA:
	case RM_OP_CTXDMA:
		return ds_filter_gpu_map(call, call->asked.src_object);
	case RM_OP_IDLE:
		return ds_filter_idle(call);
	default:
		return false;
	}
}

static void decide(struct ds_call *call)
{
	if (!ds_enforcing()) {
		observe(call);
		return;
	}
	if (filtered(call))
		return;
	switch (call->asked.op) {
	case RM_OP_ALLOC:
		ds_alloc(call);
		break;
	case RM_OP_VID_HEAP:
		ds_alloc_vid_heap(call);
		break;
	case RM_OP_ALLOC_MEMORY:
		ds_alloc_memory(call);
		break;
	case RM_OP_ALLOC_OBJECT:
	case RM_OP_CTXDMA:
		ds_alloc_object(call);
		break;
	case RM_OP_FREE:
		ds_alloc_free(call);
		break;
	case RM_OP_DUP:
		ds_dup(call);
		break;
	case RM_OP_CONTROL:
		ds_transfer(call);
		break;
	case RM_OP_MAP:
		ds_map(call);
		break;
	default:
		ds_call_driver(call);
		break;
	}
}

static void handle(struct ds_call *call)
{
	if (call->asked.op == RM_OP_REGISTER_FD) {
		ds_binding_register(call);
		return;
	}
	call->ret = ds_binding_lock(call);
	if (call->ret)
		return;
	call->client = ds_client_of_file(call->known, call->asked.client);
	if (!call->client && !makes_client(call) && ds_enforcing() && !ds_binding_astray(call))
		call->client = ds_adopt(call);
	if (call->client && call->asked.op != RM_OP_FREE && ds_holders_follow(call->client->process))
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
	else if (makes_client(call) && ds_enforcing() && ds_binding_astray(call))
		ds_call_refuse(call, NV_ERR_INVALID_STATE);
	else
		decide(call);
	mutex_unlock(&call->known->order);
	ds_file_put(call->known);
	tell(call);
}

/* A control that is no transfer: the order of calls on its file does not matter for it. */
static void control(struct ds_call *call)
{
	if (ds_abi() && ds_filter_wants(call->abi, call->frame->block))
		ds_filter_control(call);
	else
		call->ret = original(call);
}

/* Reads the block and, for calls that matter, decides. */
static void take(struct ds_call *call)
{
	struct ds_frame *frame;
	int err;

	if (_IOC_SIZE(call->cmd) > DS_FRAME_BLOCK_MAX) {
		call->ret = original(call);	/* which refuses it: no call of interest is that large */
		return;
	}
	frame = ds_frame_alloc();
	if (!frame) {
		call->ret = -ENOMEM;
		return;
	}
	call->frame = frame;
	frame->head.kind = DS_FRAME_CALL;
	frame->nr = _IOC_NR(call->cmd);
	frame->size = _IOC_SIZE(call->cmd);
	if (copy_from_user(frame->block, (void __user *)call->arg, frame->size)) {
		call->ret = -EFAULT;
		goto free;
	}
	err = rm_decode(call->abi, frame->nr, frame->block, frame->size, &call->asked);
	trace_detshare_call(&call->asked, err);
	if (err)
		call->ret = original(call);	/* which refuses it: its size is wrong */
	else if (call->asked.op == RM_OP_CONTROL && !ds_transfer_is(call->asked.cmd))
		control(call);
	else
		handle(call);
free:
	ds_frame_free(frame);
}

static void unwrap(struct ds_call *call)
{
	struct ds_frame_head opaque = { .kind = DS_FRAME_OPAQUE };
	u32 nr, size;
	u8 header[16];
	u64 at;

	if (_IOC_SIZE(call->cmd) != sizeof(header)) {
		call->ret = original(call);
		return;
	}
	if (copy_from_user(header, (void __user *)call->arg, sizeof(header))) {
		call->ret = -EFAULT;
		return;
	}
	if (!rm_decode_xfer(call->abi, header, sizeof(header), &nr, &size, &at) &&
	    nr <= _IOC_NRMASK && nr != NV_ESC_IOCTL_XFER_CMD && size <= _IOC_SIZEMASK) {
		call->cmd = _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, nr, size);
		call->arg = at;
		if (interesting(nr) || nr == NV_ESC_RM_CONTROL)
			take(call);
		else
			call->ret = original(call);
		return;
	}
	/* the driver refuses this by itself, unless it finds another header there than we did */
	framed_call(call, &opaque);
}

long ds_calls_ioctl(const struct ds_hook *hook, struct file *file, unsigned int cmd,
		    unsigned long arg)
{
	struct ds_call call = {
		.hook = hook,
		.file = file,
		.cmd = cmd,
		.arg = arg,
	};

	ds_count(calls);
	ds_driver_identify();
	call.abi = ds_abi_outer();
	if (_IOC_NR(cmd) == NV_ESC_IOCTL_XFER_CMD)
		unwrap(&call);
	else
		take(&call);
	return call.ret;
}
