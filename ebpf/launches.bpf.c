// SPDX-License-Identifier: GPL-2.0-only
/*
 * Launches, copies, fills and waits of every process, counted in the kernel by process and stream. Calls are counted as
 * they are made, so a refused one too. No event leaves the kernel: readers look at the sums.
 */
#include "calls.h"
#include "launches.h"
#include "log2.h"

MAP(BPF_MAP_TYPE_HASH, counts, sizeof(struct ds_count_key), sizeof(struct ds_count))
MAP(BPF_MAP_TYPE_HASH, shapes, sizeof(struct ds_shape), 8)
MAP(BPF_MAP_TYPE_HASH, waits, 8, sizeof(struct ds_wait))
MAP(BPF_MAP_TYPE_HASH, begun, 4, 8)
MAP(BPF_MAP_TYPE_HASH, requests, sizeof(struct ds_request_key), 8)

/* CUlaunchConfig, CUDA_MEMCPY2D, CUDA_MEMCPY3D: the interface of programs, fixed since their _v2. */
struct launch_config {
	u32 grid[3];
	u32 block[3];
	u32 shared;
	u32 pad;
	u64 stream;
};

#define AT_2D_SOURCE	16
#define AT_2D_TARGET	72
#define AT_2D_WIDTH	112
#define AT_3D_SOURCE	32
#define AT_3D_TARGET	120
#define AT_3D_WIDTH	176
#define MEMORY_HOST	1
#define MEMORY_DEVICE	2
#define MEMORY_ARRAY	3

static __always_inline void count(u32 pid, u32 kind, u64 stream, u64 bytes, u64 ns)
{
	struct ds_count_key key = { .pid = pid, .kind = kind, .stream = stream };
	struct ds_count fresh = { 0 }, *known = map_find(counts, &key);

	if (!known) {
		map_set(counts, &key, &fresh, BPF_NOEXIST);
		known = map_find(counts, &key);
	}
	if (!known) {
		note_trouble(DS_FULL);
		return;
	}
	__sync_fetch_and_add(&known->calls, 1);
	if (bytes)
		__sync_fetch_and_add(&known->bytes, bytes);
	if (ns) {
		__sync_fetch_and_add(&known->ns, ns);
		if (ns > known->most_ns)
			known->most_ns = ns;
	}
}

static __always_inline void count_shape(struct ds_shape *shape)
{
	u64 none = 0, *known = map_find(shapes, shape);

	if (!known) {
		map_set(shapes, shape, &none, BPF_NOEXIST);
		known = map_find(shapes, shape);
	}
	if (known)
		__sync_fetch_and_add(known, 1);
	else
		note_trouble(DS_FULL);
}

/* What looks like a request from outside: from the first launch after a wait to the end of the next wait. */
static __always_inline void request_begins(u32 pid)
{
	u64 now;

	if (map_find(begun, &pid))
		return;
	now = bpf_ktime_get_ns();
	if (map_set(begun, &pid, &now, BPF_ANY))
		note_trouble(DS_FULL);
}

static __always_inline void request_ends(u32 pid)
{
	struct ds_request_key key = { .pid = pid };
	u64 none = 0, ns, *known, *since = map_find(begun, &pid);
	u32 octave;

	if (!since)
		return;
	ns = bpf_ktime_get_ns() - *since;
	if (map_drop(begun, &pid))
		return; /* another thread was first */
	octave = log2_of(ns);
	key.bucket = octave << DS_REQUEST_BITS;
	if (octave >= DS_REQUEST_BITS)
		key.bucket |= (ns >> (octave - DS_REQUEST_BITS)) & ((1 << DS_REQUEST_BITS) - 1);
	known = map_find(requests, &key);
	if (!known) {
		map_set(requests, &key, &none, BPF_NOEXIST);
		known = map_find(requests, &key);
	}
	if (known)
		__sync_fetch_and_add(known, 1);
	else
		note_trouble(DS_FULL);
}

static __always_inline u32 direction(u32 source, u32 target)
{
	bool from_host = source == MEMORY_HOST, to_host = target == MEMORY_HOST;
	bool from_device = source == MEMORY_DEVICE || source == MEMORY_ARRAY;
	bool to_device = target == MEMORY_DEVICE || target == MEMORY_ARRAY;

	if (from_host && to_device)
		return DS_COPY_HTOD;
	if (from_device && to_host)
		return DS_COPY_DTOH;
	return from_device && to_device ? DS_COPY_DTOD : DS_COPY_OTHER;
}

static __always_inline void count_block(const struct ds_call *call)
{
	bool flat = call->probe->kind == DS_COPY_2D;
	u64 at = call_arg(call, call->probe->target), size[3] = { 0 };
	u32 source = 0, target = 0;
	long bad;

	size[2] = 1;
	bad = bpf_probe_read_user(&source, sizeof(source), (void *)(at + (flat ? AT_2D_SOURCE : AT_3D_SOURCE)));
	bad |= bpf_probe_read_user(&target, sizeof(target), (void *)(at + (flat ? AT_2D_TARGET : AT_3D_TARGET)));
	if (flat)
		bad |= bpf_probe_read_user(size, 16, (void *)(at + AT_2D_WIDTH));
	else
		bad |= bpf_probe_read_user(size, 24, (void *)(at + AT_3D_WIDTH));
	if (bad) {
		note_trouble(DS_UNREAD);
		count(call->pid, DS_COPY_OTHER, call_stream(call), 0, 0);
		return;
	}
	count(call->pid, direction(source, target), call_stream(call), size[0] * size[1] * size[2], 0);
}

static __always_inline void count_launch(const struct ds_call *call)
{
	struct launch_config config = { 0 };
	struct ds_shape shape = { 0 };
	u64 stream;

	shape.pid = call->pid;
	if (call->probe->kind == DS_LAUNCH_CONFIG) {
		if (bpf_probe_read_user(&config, sizeof(config), (void *)call->args[0]))
			note_trouble(DS_UNREAD);
		shape.grid[0] = config.grid[0];
		shape.grid[1] = config.grid[1];
		shape.grid[2] = config.grid[2];
		shape.block[0] = config.block[0];
		shape.block[1] = config.block[1];
		shape.block[2] = config.block[2];
		shape.function = call->args[1];
		stream = config.stream;
		if (!stream && call->probe->flags & DS_PER_THREAD)
			stream = DS_STREAM_PER_THREAD;
	} else {
		shape.function = call->args[0];
		shape.grid[0] = 1;
		shape.grid[1] = 1;
		shape.grid[2] = 1;
		if (call->probe->kind == DS_LAUNCH) {
			shape.grid[0] = (u32)call->args[1];
			shape.grid[1] = (u32)call->args[2];
			shape.grid[2] = (u32)call->args[3];
			shape.block[0] = (u32)call->args[4];
			shape.block[1] = (u32)call->args[5];
			shape.block[2] = (u32)call->args[6];
		} else if (call->probe->second) {
			shape.grid[0] = (u32)call->args[1];
			shape.grid[1] = (u32)call->args[2];
		}
		stream = call_stream(call);
	}
	count(call->pid, DS_LAUNCH, stream, 0, 0);
	request_begins(call->pid);
	count_shape(&shape);
}

SEC("uprobe")
int entered(struct pt_regs *ctx)
{
	struct ds_call call = { 0 };
	struct ds_wait wait = { 0 };
	u64 bytes, id;
	u16 kind;

	if (!call_read((struct ds_regs *)ctx, ctx, &call))
		return 0;
	kind = call.probe->kind;
	if (kind <= DS_LAUNCH_OLD) {
		count_launch(&call);
	} else if (kind == DS_COPY_2D || kind == DS_COPY_3D) {
		count_block(&call);
	} else if (kind >= DS_SYNC) {
		id = bpf_get_current_pid_tgid();
		wait.since = bpf_ktime_get_ns();
		wait.stream = kind == DS_SYNC ? call_stream(&call) : 0;
		wait.pid = call.pid;
		wait.cookie = (u32)bpf_get_attach_cookie(ctx);
		if (map_set(waits, &id, &wait, BPF_ANY))
			note_trouble(DS_FULL);
	} else {
		if (kind == DS_GRAPH)
			request_begins(call.pid);
		bytes = call_size(&call, call.probe->bytes);
		if (call.probe->second)
			bytes *= call_size(&call, call.probe->second);
		if (call.probe->scale)
			bytes *= call.probe->scale;
		count(call.pid, kind, call_stream(&call), bytes, 0);
	}
	return 0;
}

SEC("uprobe")
int left(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct ds_wait *wait = map_find(waits, &id);

	if (!wait || wait->cookie != (u32)bpf_get_attach_cookie(ctx))
		return 0;
	count(wait->pid, DS_SYNC, wait->stream, 0, bpf_ktime_get_ns() - wait->since);
	request_ends(wait->pid);
	map_drop(waits, &id);
	return 0;
}
