// SPDX-License-Identifier: GPL-2.0-only
#include <linux/atomic.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "adopt.h"
#include "alloc.h"
#include "calls.h"
#include "compat.h"
#include "driver.h"
#include "dup.h"
#include "limit.h"
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
		return true;
	default:
		return false;
	}
}

bool ds_calls_wanted(struct ftrace_regs *fregs)
{
	unsigned int nr = _IOC_NR(ds_regs_argument(fregs, 1));

	if (nr == NV_ESC_RM_CONTROL)
		return ds_transfer_maybe(ds_regs_argument(fregs, 2));
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

void ds_call_refuse(struct ds_call *call, u32 status)
{
	struct rm_f32 at = { call->asked.off_status };

	ds_count(refused);
	if (at.off != RM_ABSENT)
		rm_put32(call->frame->block, at, status);
	call->ret = copy_to_user((void __user *)call->arg, call->frame->block, call->frame->size) ?
			    -EFAULT : 0;
}

bool ds_call_owns(struct ds_call *call, u32 client)
{
	const struct rm_abi *abi = call->abi;
	struct ds_call ask = *call;
	struct ds_frame *frame = ds_frame_alloc();
	bool owns;

	if (!frame)
		return false;
	/*
	 * An RM_CONTROL whose block and parameters exist in the frame only (frame->ours): nothing of the caller's memory is
	 * read or written, which other threads of his may be using. The address only names the parameters.
	 */
	frame->ours = true;
	frame->nr = NV_ESC_RM_CONTROL;
	frame->size = abi->nvos54.len;
	frame->user_params = call->arg;
	frame->params_size = abi->handle_info.len;
	frame->params = frame->own;
	memset(frame->own, 0, frame->params_size);
	rm_put32(frame->own, abi->handle_info.hObject, client);
	rm_put32(frame->own, abi->handle_info.index,
		 NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID);
	memset(frame->block, 0, frame->size);
	rm_put32(frame->block, abi->nvos54.hClient, client);
	rm_put32(frame->block, abi->nvos54.hObject, client);
	rm_put32(frame->block, abi->nvos54.cmd, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO);
	rm_put64(frame->block, abi->nvos54.params, frame->user_params);
	rm_put32(frame->block, abi->nvos54.paramsSize, frame->params_size);
	ask.cmd = _IO(NV_IOCTL_MAGIC, DS_NO_ESCAPE);
	ask.frame = frame;
	owns = ds_call_driver(&ask);
	ds_frame_free(frame);
	return owns;
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

static void decide(struct ds_call *call)
{
	if (!ds_enforcing()) {
		observe(call);
		return;
	}
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
	default:
		ds_call_driver(call);
		break;
	}
}

static bool is_control_file(const struct file *file)
{
	return iminor(file_inode(file)) == DS_CTL_MINOR;
}

/*
 * The file on which the client named by the call was made, locked. The driver lets memory be allocated through a
 * device file by the legacy call, for a client of the control file that the device file is bound to.
 */
static long lock_file(struct ds_call *call)
{
	struct ds_client *client;

	if (is_control_file(call->file)) {
		call->known = ds_file_get(call->file);
		if (!call->known)
			return -ENOMEM;
		return mutex_lock_killable(&call->known->order);
	}
	/* the client's process uses its own files; what others do with them is the driver's business */
	down_read(&ds_clients_lock);
	client = ds_client_find(call->asked.client);
	if (client && client->process->pid == task_tgid(current))
		call->known = ds_file_hold(client->file);
	up_read(&ds_clients_lock);
	return call->known ? mutex_lock_killable(&call->known->order) : 0;
}

static void handle(struct ds_call *call)
{
	call->ret = lock_file(call);
	if (call->ret)
		goto put;
	if (!call->known) {
		ds_call_driver(call);
		return;
	}
	call->client = ds_client_of_file(call->known, call->asked.client);
	if (!call->client && !makes_client(call) && ds_enforcing())
		call->client = ds_adopt(call);
	if (call->client && call->asked.op != RM_OP_FREE && ds_holders_follow(call->client->process))
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
	else
		decide(call);
	mutex_unlock(&call->known->order);
put:
	ds_file_put(call->known);
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
		call->ret = original(call);
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
