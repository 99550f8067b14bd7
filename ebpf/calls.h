/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call of an exported function of libcuda, as a uprobe on its first instruction sees it. Which function it is says
 * the probe's cookie, an index into the map `probes`, filled by detshare.ebpf.probes.
 */
#ifndef DETSHARE_EBPF_CALLS_H
#define DETSHARE_EBPF_CALLS_H

#include "kernel.h"

#define DS_PROBES	1024
#define DS_LEGACY	1u	/* flags: sizes and pointers of 32 bits, the interface before CUDA 3.2 */
#define DS_PER_THREAD	2u	/* a null stream is the thread's own */
#define DS_STREAM_PER_THREAD	2	/* CU_STREAM_PER_THREAD */

/* Arguments are counted from 1; 0: the function has none of that kind. */
struct ds_probe {
	u16 kind;
	u8 flags;
	u8 stream;
	u8 target;
	u8 bytes;
	u8 second;	/* a factor of bytes, or another argument that the kind tells of */
	u8 third;
	u32 scale;	/* of bytes */
	u32 spare;
	u64 entry;	/* offset of the function in its file */
	u64 code;	/* offset and size of the part of the file that holds its code */
	u64 code_size;
};

struct ds_call {
	struct ds_probe *probe;
	u64 args[11];	/* six in registers, five from the stack */
	u32 pid;
};

MAP(BPF_MAP_TYPE_ARRAY, probes, 4, sizeof(struct ds_probe))
MAP(BPF_MAP_TYPE_ARRAY, only, 4, 4)	/* the one process that is watched; 0: all */

#define DS_STACKED 5

/*
 * Reads a call. False: it is not ours to tell of: another process, or libcuda calls itself, which it may do from one
 * exported function to another; counting both would count one launch twice.
 */
static __always_inline bool call_read(struct ds_regs *regs, void *ctx, struct ds_call *call)
{
	u64 stack[1 + DS_STACKED] = { 0 };
	u32 index = (u32)bpf_get_attach_cookie(ctx), zero = 0;
	u32 *watched = map_find(only, &zero);
	u64 back;

	call->pid = (u32)(bpf_get_current_pid_tgid() >> 32);
	if (watched && *watched && *watched != call->pid)
		return false;
	call->probe = map_find(probes, &index);
	if (!call->probe || !call->probe->kind)
		return false;
	if (bpf_probe_read_user(stack, sizeof(stack), (void *)regs->sp)) {
		/* near the end of a stack there may be less than we ask for */
		if (bpf_probe_read_user(stack, sizeof(u64), (void *)regs->sp))
			note_trouble(DS_UNREAD);
	}
	/* where the call returns to, as an offset in the file that the function lies in */
	back = stack[0] - regs->ip + call->probe->entry;
	if (back - call->probe->code < call->probe->code_size)
		return false;
	call->args[0] = regs->di;
	call->args[1] = regs->si;
	call->args[2] = regs->dx;
	call->args[3] = regs->cx;
	call->args[4] = regs->r8;
	call->args[5] = regs->r9;
	call->args[6] = stack[1];
	call->args[7] = stack[2];
	call->args[8] = stack[3];
	call->args[9] = stack[4];
	call->args[10] = stack[5];
	return true;
}

/* The argument of that number, from 1; 0 for number 0. */
static __always_inline u64 call_arg(const struct ds_call *call, u8 number)
{
	u64 value = 0;

#define DS_ONE(n) \
	if (number == n) \
		value = call->args[n - 1];
	DS_ONE(1)
	DS_ONE(2)
	DS_ONE(3)
	DS_ONE(4)
	DS_ONE(5)
	DS_ONE(6)
	DS_ONE(7)
	DS_ONE(8)
	DS_ONE(9)
	DS_ONE(10)
	DS_ONE(11)
#undef DS_ONE
	return value;
}

static __always_inline u64 call_stream(const struct ds_call *call)
{
	u64 stream = call_arg(call, call->probe->stream);

	return !stream && call->probe->flags & DS_PER_THREAD ? DS_STREAM_PER_THREAD : stream;
}

static __always_inline u64 call_size(const struct ds_call *call, u8 number)
{
	u64 size = call_arg(call, number);

	return call->probe->flags & DS_LEGACY ? (u32)size : size;
}

#endif
