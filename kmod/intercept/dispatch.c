// SPDX-License-Identifier: GPL-2.0-only
#include <linux/uaccess.h>

#include "adopt.h"
#include "alloc.h"
#include "binding.h"
#include "compat.h"
#include "dispatch.h"
#include "driver.h"
#include "dup.h"
#include "filter.h"
#include "limit.h"
#include "map.h"
#include "memref.h"
#include "shield.h"
#include "stats.h"
#include "trace.h"
#include "transfer.h"

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

bool ds_calls_file(const struct file *file)
{
	struct ds_shadow_head *head = ds_shadow_current();
	struct ds_shadow *shadow;

	if (!head || head->kind != DS_SHADOW_CALL)
		return true;
	shadow = container_of(head, struct ds_shadow, head);
	if (shadow->transfer)
		return ds_transfer_file(shadow->transfer, file);
	if (shadow->claim)
		return ds_map_take(shadow, file);
	if (shadow->taken) {
		ds_file_put(*shadow->taken);
		*shadow->taken = ds_file_get(file);
		return *shadow->taken;
	}
	if (shadow->shown)
		*shadow->shown = file;
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
	if (call->client && call->asked.op != RM_OP_FREE && ds_payers_follow(call->client->process))
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
	else if (makes_client(call) && ds_enforcing() && ds_binding_astray(call))
		ds_call_refuse(call, NV_ERR_INVALID_STATE);
	else
		decide(call);
	ds_memrefs_unlock(call->known);
	ds_file_put(call->known);
	ds_call_tell(call);
}

/* A control that is no transfer: the order of calls on its file does not matter for it. */
static void control(struct ds_call *call)
{
	if (ds_abi() && ds_filter_wants(call->abi, call->shadow->block))
		ds_filter_control(call);
	else
		call->ret = ds_call_original(call);
}

/* What nobody sees done is not done: else an object would be there that nobody pays for. */
static bool unshielded(const struct ds_call *call)
{
	if (!ds_enforcing() || ds_shield_armed())
		return false;
	pr_warn_once("the kernel has disarmed its kprobes: calls fail, and what the driver does is not seen\n");
	return call->asked.op != RM_OP_CONTROL || control_wanted(call->abi, call->shadow->block);
}

/* Reads the block and, for calls that matter, decides. */
static void take(struct ds_call *call)
{
	struct ds_shadow *shadow;
	int err;

	if (_IOC_SIZE(call->cmd) > DS_SHADOW_BLOCK_MAX) {
		call->ret = ds_call_original(call);	/* which refuses it: no call of interest is that large */
		return;
	}
	shadow = ds_shadow_alloc();
	if (!shadow) {
		call->ret = -ENOMEM;
		return;
	}
	call->shadow = shadow;
	shadow->head.kind = DS_SHADOW_CALL;
	shadow->nr = _IOC_NR(call->cmd);
	shadow->size = _IOC_SIZE(call->cmd);
	if (copy_from_user(shadow->block, (void __user *)call->arg, shadow->size)) {
		call->ret = -EFAULT;
		goto free;
	}
	err = rm_decode(call->abi, shadow->nr, shadow->block, shadow->size, &call->asked);
	trace_detshare_call(&call->asked, err);
	if (err)
		call->ret = ds_call_original(call);	/* which refuses it: its size is wrong */
	else if (unshielded(call))
		call->ret = -EINVAL;
	else if (call->asked.op == RM_OP_CONTROL && !ds_transfer_is(call->asked.cmd))
		control(call);
	else
		handle(call);
free:
	ds_shadow_free(shadow);
}

static void unwrap(struct ds_call *call)
{
	struct ds_shadow_head opaque = { .kind = DS_SHADOW_OPAQUE };
	u32 nr, size;
	u8 header[16];
	u64 at;

	if (_IOC_SIZE(call->cmd) != sizeof(header)) {
		call->ret = ds_call_original(call);
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
			call->ret = ds_call_original(call);
		return;
	}
	/* the driver refuses this by itself, unless it finds another header there than we did */
	ds_call_framed(call, &opaque);
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
