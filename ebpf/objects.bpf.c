// SPDX-License-Identifier: GPL-2.0-only
/*
 * RM calls of every process, and what becomes of the open files that RM's clients hang on: both as events in one ring,
 * for births and deaths mean something in their order only. Which escapes matter and how long their parameter blocks
 * are stands in the map `escapes`, filled from the ABI tables of the loaded driver: nothing here knows a layout.
 */
#include "files.h"
#include "objects.h"

struct pending {
	u64 file;
	u64 block;	/* address in the process */
	u32 fd;
	u16 minor;
	u16 escape;
	u32 bytes;
};

MAP(BPF_MAP_TYPE_RINGBUF, events, 0, 0)
MAP(BPF_MAP_TYPE_ARRAY, escapes, 4, 4)	/* escape -> bytes of its block, 0: of no interest; slot 256: the XFER escape */
MAP(BPF_MAP_TYPE_ARRAY, control, 4, sizeof(struct ds_control))
MAP(BPF_MAP_TYPE_HASH, calls, 8, sizeof(struct pending))	/* pid_tgid -> a call inside the driver */
MAP(BPF_MAP_TYPE_HASH, holders, 4, 4)	/* processes that hold or held a file of the driver */
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, scratch, 4, sizeof(struct ds_object_record))

#define XFER_SLOT 256

static __always_inline struct ds_object_record *record_new(u16 event)
{
	u32 zero = 0;
	struct ds_object_record *record = map_find(scratch, &zero);

	if (!record)
		return 0;
	record->when = bpf_ktime_get_ns();
	record->file = 0;
	record->pid = (u32)(bpf_get_current_pid_tgid() >> 32);
	record->fd = 0;
	record->other = 0;
	record->ret = 0;
	record->event = event;
	record->minor = 0;
	record->escape = 0;
	record->bytes = 0;
	return record;
}

static __always_inline void record_tell(struct ds_object_record *record, u32 bytes)
{
	if (bpf_ringbuf_output(MAP_OF(events), record, DS_RECORD_HEAD + bytes, 0))
		note_trouble(DS_LOST);
}

static __always_inline bool known(u32 pid)
{
	return map_find(holders, &pid) != 0;
}

static __always_inline void learn(u32 pid)
{
	u32 one = 1;

	if (!known(pid) && map_set(holders, &pid, &one, BPF_ANY))
		note_trouble(DS_FULL);
}

/* Whether a call is a control that nobody wants to be told of: most calls are. */
static __always_inline bool needless(u32 escape, u64 block)
{
	u32 zero = 0, command = 0;
	struct ds_control *wanted = map_find(control, &zero);

	if (!wanted || !wanted->command || escape != wanted->escape)
		return false;
	if (bpf_probe_read_user(&command, sizeof(command), (void *)(block + wanted->offset)))
		return true;
	return command != wanted->command;
}

SEC("tracepoint/syscalls/sys_enter_ioctl")
int ioctl_enter(struct ds_sys_enter *ctx)
{
	u32 fd = (u32)ctx->args[0], request = (u32)ctx->args[1];
	u64 at = ctx->args[2], id = bpf_get_current_pid_tgid();
	u32 escape = request & 0xff, xfer = XFER_SLOT;
	struct pending call = { 0 };
	struct {
		u32 escape;
		u32 bytes;
		u64 at;
	} header = { 0 };
	u32 *bytes = map_find(escapes, &escape), *wrapped;
	struct file *file;
	int minor;

	wrapped = map_find(escapes, &xfer);
	if (!bytes || !wrapped || (!*bytes && escape != *wrapped))
		return 0;
	file = ds_file(fd);
	minor = ds_minor(file);
	if (minor < 0)
		return 0;
	call.bytes = request >> 16 & 0x3fff;
	if (escape == *wrapped) {
		if (bpf_probe_read_user(&header, sizeof(header), (void *)at)) {
			note_trouble(DS_UNREAD);
			return 0;
		}
		escape = header.escape;
		if (escape > 0xff)
			return 0;
		bytes = map_find(escapes, &escape);
		if (!bytes || !*bytes)
			return 0;
		call.bytes = header.bytes;
		at = header.at;
	}
	if (needless(escape, at))
		return 0;
	call.file = (u64)file;
	call.block = at;
	call.fd = fd;
	call.minor = (u16)minor;
	call.escape = (u16)escape;
	if (map_set(calls, &id, &call, BPF_ANY))
		note_trouble(DS_FULL);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_ioctl")
int ioctl_exit(struct ds_sys_exit *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct pending *call = map_find(calls, &id);
	struct ds_object_record *record;
	u32 escape, bytes;
	u32 *wanted;

	if (!call)
		return 0;
	escape = call->escape;
	wanted = map_find(escapes, &escape);
	record = record_new(DS_CALL);
	if (!record || !wanted)
		goto out;
	learn(record->pid);
	record->file = call->file;
	record->fd = call->fd;
	record->ret = (s32)ctx->ret;
	record->minor = call->minor;
	record->escape = call->escape;
	record->other = call->bytes;
	bytes = call->bytes < *wanted ? call->bytes : *wanted;
	if (bytes > DS_BLOCK)
		bytes = DS_BLOCK;
	if (bytes && bpf_probe_read_user(record->block, bytes, (void *)call->block)) {
		note_trouble(DS_UNREAD);
		bytes = 0;
	}
	record->bytes = (u16)bytes;
	record_tell(record, bytes);
out:
	map_drop(calls, &id);
	return 0;
}

/* A descriptor that a system call just gave, if it is one of the driver's; opened: of a file that is new too. */
static __always_inline int given(s64 fd, u32 opened)
{
	struct ds_object_record *record;
	struct file *file;
	int minor;

	if (fd < 0)
		return 0;
	file = ds_file((u32)fd);
	minor = ds_minor(file);
	if (minor < 0)
		return 0;
	record = record_new(DS_HOLD);
	if (!record)
		return 0;
	learn(record->pid);
	record->file = (u64)file;
	record->fd = (u32)fd;
	record->minor = (u16)minor;
	record->other = opened;
	record_tell(record, 0);
	return 0;
}

static __always_inline int taken(u32 fd)
{
	u32 pid = (u32)(bpf_get_current_pid_tgid() >> 32);
	struct ds_object_record *record;
	struct file *file;
	int minor;

	if (!known(pid))
		return 0;
	file = ds_file(fd);
	minor = ds_minor(file);
	if (minor < 0)
		return 0;
	record = record_new(DS_CLOSE);
	if (!record)
		return 0;
	record->file = (u64)file;
	record->fd = fd;
	record->minor = (u16)minor;
	record_tell(record, 0);
	return 0;
}

#define GIVES(call, opened) \
	SEC("tracepoint/syscalls/sys_exit_" #call) \
	int call##_exit(struct ds_sys_exit *ctx) \
	{ \
		return given(ctx->ret, opened); \
	}

GIVES(open, 1)
GIVES(openat, 1)
GIVES(openat2, 1)
GIVES(dup, 0)
GIVES(dup2, 0)
GIVES(dup3, 0)
GIVES(pidfd_getfd, 0)

#define F_DUPFD_		0
#define F_DUPFD_CLOEXEC_	1030

/* fcntl's other commands answer with numbers that are no descriptors. */
SEC("tracepoint/syscalls/sys_enter_fcntl")
int fcntl_enter(struct ds_sys_enter *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct pending call = { 0 };
	u32 pid = (u32)(id >> 32), command = (u32)ctx->args[1];

	if ((command != F_DUPFD_ && command != F_DUPFD_CLOEXEC_) || !known(pid))
		return 0;
	if (map_set(calls, &id, &call, BPF_ANY))
		note_trouble(DS_FULL);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_fcntl")
int fcntl_exit(struct ds_sys_exit *ctx)
{
	u64 id = bpf_get_current_pid_tgid();

	if (!map_find(calls, &id))
		return 0;
	map_drop(calls, &id);
	return given(ctx->ret, 0);
}

SEC("tracepoint/syscalls/sys_enter_close")
int close_enter(struct ds_sys_enter *ctx)
{
	return taken((u32)ctx->args[0]);
}

SEC("tracepoint/syscalls/sys_enter_dup2")
int dup2_enter(struct ds_sys_enter *ctx)
{
	return ctx->args[0] == ctx->args[1] ? 0 : taken((u32)ctx->args[1]);
}

SEC("tracepoint/syscalls/sys_enter_dup3")
int dup3_enter(struct ds_sys_enter *ctx)
{
	return ctx->args[0] == ctx->args[1] ? 0 : taken((u32)ctx->args[1]);
}

#define CLOSE_RANGE_CLOEXEC_ 4

SEC("tracepoint/syscalls/sys_enter_close_range")
int close_range_enter(struct ds_sys_enter *ctx)
{
	u32 pid = (u32)(bpf_get_current_pid_tgid() >> 32);
	struct ds_object_record *record;

	if (ctx->args[2] & CLOSE_RANGE_CLOEXEC_ || !known(pid))
		return 0;
	record = record_new(DS_CLOSE_RANGE);
	if (!record)
		return 0;
	record->fd = (u32)ctx->args[0];
	record->other = (u32)ctx->args[1];
	record_tell(record, 0);
	return 0;
}

struct ds_raw_args {
	u64 args[3];
};

/* (parent, child): also for threads, which share their process's descriptors. */
SEC("raw_tracepoint/sched_process_fork")
int process_fork(struct ds_raw_args *ctx)
{
	struct task_struct *parent = (struct task_struct *)ctx->args[0], *child = (struct task_struct *)ctx->args[1];
	struct ds_object_record *record;
	int from = 0, to = 0;

	member_read(&from, parent, tgid);
	member_read(&to, child, tgid);
	if (from == to || !known((u32)from))
		return 0;
	learn((u32)to);
	record = record_new(DS_FORK);
	if (!record)
		return 0;
	record->pid = (u32)from;
	record->other = (u32)to;
	record_tell(record, 0);
	return 0;
}

SEC("raw_tracepoint/sched_process_exec")
int process_exec(struct ds_raw_args *ctx)
{
	struct ds_object_record *record;

	if (!known((u32)(bpf_get_current_pid_tgid() >> 32)))
		return 0;
	record = record_new(DS_EXEC);
	if (record)
		record_tell(record, 0);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int process_exit(struct ds_raw_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	u64 id = bpf_get_current_pid_tgid();
	u32 pid = (u32)(id >> 32);
	struct ds_object_record *record;
	struct signal_struct *signal = 0;
	int live = 1;

	map_drop(calls, &id);
	if (!known(pid))
		return 0;
	member_read(&signal, task, signal);
	if (signal)
		member_read(&live, signal, live.counter);
	if (live > 0)
		return 0;
	map_drop(holders, &pid);
	record = record_new(DS_EXIT);
	if (record)
		record_tell(record, 0);
	return 0;
}
