// SPDX-License-Identifier: GPL-2.0-only
/* How long calls into the driver, faults on doorbells, gates and pauses take: histograms by process, kept in the kernel. */
#include "files.h"
#include "latency.h"
#include "log2.h"

MAP(BPF_MAP_TYPE_HASH, histograms, sizeof(struct ds_latency_key), sizeof(struct ds_latency))
MAP(BPF_MAP_TYPE_HASH, since, sizeof(struct ds_since_key), sizeof(struct ds_since))
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, empty, 4, sizeof(struct ds_latency))
MAP(BPF_MAP_TYPE_ARRAY, commands, 4, 4)	/* numbers of detshare's gated, opened, paused, resumed */

static __always_inline void begin(u64 who, u64 kind, u64 detail)
{
	struct ds_since_key key = { .who = who, .kind = kind };
	struct ds_since value = { .when = bpf_ktime_get_ns(), .detail = detail };

	if (map_set(since, &key, &value, BPF_ANY))
		note_trouble(DS_FULL);
}

static __always_inline void end(u64 who, u64 kind, u32 pid)
{
	struct ds_since_key open = { .who = who, .kind = kind };
	struct ds_latency_key key = { .pid = pid, .kind = (u16)kind };
	struct ds_since *began = map_find(since, &open);
	struct ds_latency *known, *fresh;
	u32 bucket, zero = 0;
	u64 ns;

	if (!began)
		return;
	ns = bpf_ktime_get_ns() - began->when;
	key.detail = (u16)began->detail;
	map_drop(since, &open);
	known = map_find(histograms, &key);
	if (!known) {
		fresh = map_find(empty, &zero);
		if (!fresh)
			return;
		map_set(histograms, &key, fresh, BPF_NOEXIST);
		known = map_find(histograms, &key);
	}
	if (!known) {
		note_trouble(DS_FULL);
		return;
	}
	bucket = log2_of(ns);
	if (bucket >= DS_BUCKETS)
		bucket = DS_BUCKETS - 1;
	__sync_fetch_and_add(&known->count, 1);
	__sync_fetch_and_add(&known->sum, ns);
	if (ns > known->most)
		known->most = ns;
	__sync_fetch_and_add(&known->buckets[bucket], 1);
}

SEC("tracepoint/syscalls/sys_enter_ioctl")
int ioctl_enter(struct ds_sys_enter *ctx)
{
	if (ds_minor(ds_file((u32)ctx->args[0])) >= 0)
		begin(bpf_get_current_pid_tgid(), DS_L_IOCTL, ctx->args[1] & 0xff);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_ioctl")
int ioctl_exit(struct ds_sys_exit *ctx)
{
	u64 id = bpf_get_current_pid_tgid();

	end(id, DS_L_IOCTL, (u32)(id >> 32));
	return 0;
}

/* On functions of nvidia.ko and detshare.ko; the cookie is the kind. */
SEC("kprobe")
int function_enter(struct pt_regs *ctx)
{
	begin(bpf_get_current_pid_tgid(), bpf_get_attach_cookie(ctx), 0);
	return 0;
}

SEC("kprobe")
int function_exit(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();

	end(id, bpf_get_attach_cookie(ctx), (u32)(id >> 32));
	return 0;
}

/* The format of detshare:detshare_hold (kmod/event/trace.h). */
struct hold {
	u64 common;
	u64 vctx;
	u64 when;
	u32 pid;
	u32 gpu;
	u32 reasons;
	u8 command;
};

static __always_inline bool is_command(u32 slot, u8 command)
{
	u32 *number = map_find(commands, &slot);

	return number && *number == command;
}

SEC("tracepoint/detshare/detshare_hold")
int held(struct hold *ctx)
{
	u8 command = ctx->command;
	u64 vctx = ctx->vctx;
	u32 pid = ctx->pid, gpu = ctx->gpu;

	if (is_command(0, command))
		begin(vctx, DS_L_HELD, gpu);
	else if (is_command(1, command))
		end(vctx, DS_L_HELD, pid);
	else if (is_command(2, command))
		begin(vctx, DS_L_PAUSED, gpu);
	else if (is_command(3, command))
		end(vctx, DS_L_PAUSED, pid);
	return 0;
}
