// SPDX-License-Identifier: GPL-2.0-only
/*
 * What each process may have written of its GPU memory. Words that may be addresses are kept, not matched: readers know
 * the allocations. Nothing that may write is left out: where we cannot tell, DS_ANYWHERE is kept.
 *
 * Words carry the number of their epoch. A reader raises it, waits until no program that saw the old number can run any
 * more, and then reads what nobody changes.
 */
#include "bounds.h"
#include "calls.h"
#include "dirty.h"
#include "images.h"

MAP(BPF_MAP_TYPE_RINGBUF, events, 0, 0)
MAP(BPF_MAP_TYPE_ARRAY, epoch, 4, 8)
MAP(BPF_MAP_TYPE_HASH, touched, sizeof(struct ds_touch_key), sizeof(struct ds_touch))
MAP(BPF_MAP_TYPE_HASH, threads, 8, 8)	/* pid_tgid -> when it called last */
MAP(BPF_MAP_TYPE_HASH, syncs, sizeof(struct ds_sync_key), sizeof(struct ds_sync))
MAP(BPF_MAP_TYPE_HASH, layouts, sizeof(struct ds_layout_key), sizeof(struct ds_layout))
MAP(BPF_MAP_TYPE_HASH, inside, 8, sizeof(struct ds_open))
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, scratch, 4, sizeof(struct ds_dirty_record))
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, scan, 4, sizeof(struct ds_scan))

#define AT_2D_HOST	80
#define AT_3D_HOST	128

struct writing {
	u64 now;
	u64 stream;
	u32 pid;
	u32 tid;
	u64 low, span;	/* of all allocations; with none, an address that is no program's */
	u64 epoch;
	u64 captured;
	long full;
};

static __always_inline void writing_begin(struct writing *writing, u32 pid, u64 stream)
{
	u64 id = bpf_get_current_pid_tgid();
	struct ds_bounds *known = map_find(bounds, &pid);
	u32 zero = 0;
	u64 *number = map_find(epoch, &zero);

	writing->epoch = number ? *number : 0;
	writing->full = 0;
	writing->now = bpf_ktime_get_ns();
	writing->stream = stream;
	writing->pid = pid;
	writing->tid = (u32)id;
	writing->low = 1ull << 62;
	writing->span = 0;
	writing->captured = 0;
	if (known) {
		if (known->high) {
			writing->low = known->low;
			writing->span = known->high - known->low;
		}
		writing->captured = known->captures ? 1 : 0;
	}
	if (map_set(threads, &id, &writing->now, BPF_ANY))
		note_trouble(DS_FULL);
}

static __always_inline void writing_end(const struct writing *writing)
{
	if (writing->full)
		note_trouble(DS_FULL);
}

static __always_inline void keep(struct writing *writing, u64 word)
{
	struct ds_touch_key key = { .pid = writing->pid, .tid = writing->tid, .stream = writing->stream, .word = word,
				    .epoch = writing->epoch };
	struct ds_touch fresh = { .when = writing->now, .graph = writing->captured }, *known = map_find(touched, &key);

	if (!known) {
		writing->full |= map_set(touched, &key, &fresh, BPF_ANY);
	} else {
		known->when = writing->now;
		known->graph |= writing->captured;
	}
}

/* A word that may be an address; one past the end of an allocation is one too. */
static __always_inline void keep_address(struct writing *writing, u64 word, u64 flags)
{
	if (word - writing->low <= writing->span)
		keep(writing, word | flags);
}

static __always_inline struct ds_dirty_record *record_new(u32 kind, u32 pid)
{
	u32 zero = 0;
	struct ds_dirty_record *record = map_find(scratch, &zero);

	if (!record)
		return 0;
	record->when = bpf_ktime_get_ns();
	record->pid = pid;
	record->tid = (u32)bpf_get_current_pid_tgid();
	record->kind = kind;
	record->status = 0;
	record->a = 0;
	record->b = 0;
	record->c = 0;
	return record;
}

static __always_inline void record_tell(struct ds_dirty_record *record, u32 bytes)
{
	if (bpf_ringbuf_output(MAP_OF(events), record, DS_DIRTY_HEAD + bytes, 0))
		note_trouble(DS_LOST);
}

/* A launch before its module was looked at: its reader, who will know the layout, is given the bytes. */
static __always_inline void write_unknown(struct writing *writing, u64 function, u64 params, u64 buffer)
{
	struct ds_dirty_record *record = record_new(DS_UNKNOWN, writing->pid);
	u64 at;
	u32 i;

	if (!record) {
		keep(writing, DS_ANYWHERE);
		return;
	}
	record->a = function;
	record->raw.stream = writing->stream;
	record->raw.epoch = writing->epoch;
	record->raw.captured = writing->captured;
	record->raw.packed = buffer != 0;
	record->when = writing->now;
	__builtin_memset(record->raw.bytes, 0, DS_RAW);
	for (i = 0; i < DS_RAW_PARAMETERS; i++) {
		at = buffer + i * DS_RAW_BYTES;
		if (!buffer && bpf_probe_read_user(&at, sizeof(at), (void *)(params + 8 * i)))
			break;
		/* what lies behind the last parameter is anything: a failed read leaves zeros, which point nowhere */
		if (bpf_probe_read_user(record->raw.bytes + i * DS_RAW_BYTES, DS_RAW_BYTES, (void *)at))
			record->status |= 1 << i;
	}
	if (bpf_ringbuf_output(MAP_OF(events), record, DS_DIRTY_HEAD + 32 + DS_RAW, 0))
		note_trouble(DS_LOST);
}

/* Every word that may be an address, of what was read: structures, of which nobody says what is where. */
static __always_inline void write_scanned(struct writing *writing, const struct ds_scan *seen)
{
	u32 i, end = seen->used / 4;

	for (i = 1; i < DS_SCAN / 4; i++) {
		if (i >= end)
			break;
		keep_address(writing, seen->words[i - 1] | (u64)seen->words[i] << 32, 0);
	}
}

/* Puts a run of bytes behind those that are there already. */
static __always_inline void scan_add(struct ds_scan *seen, u32 size, u64 at)
{
	u32 used = seen->used;

	if (size > DS_SCAN || used > DS_SCAN || used + size > DS_SCAN) {
		seen->bad = 1;
		return;
	}
	if (bpf_probe_read_user((u8 *)seen->words + used, size, (void *)at))
		seen->bad = 1;
	seen->used = used + ((size + 3) & ~3u);
}

static __always_inline void write_words(struct writing *writing, u64 function, u64 params, u64 extra)
{
	struct ds_layout_key key = { .pid = writing->pid, .function = function };
	struct ds_layout *layout = map_find(layouts, &key);
	u64 pair[2], at, word, buffer = 0;
	struct ds_scan *seen;
	u32 i, zero = 0;

	if (layout && layout->count > DS_WORDS) {
		keep(writing, DS_ANYWHERE);
		return;
	}
	if (!params && extra) {
		/* CU_LAUNCH_PARAM_BUFFER_POINTER 1, _BUFFER_SIZE 2, in any order, then 0 */
		for (i = 0; i < 2; i++) {
			if (bpf_probe_read_user(pair, sizeof(pair), (void *)(extra + 16 * i)))
				break;
			if (pair[0] == 1)
				buffer = pair[1];
			if (!pair[0])
				break;
		}
	}
	if (!layout) {
		write_unknown(writing, function, params, buffer);
		return;
	}
	if (!params && !buffer) {
		if (layout->count)
			keep(writing, DS_ANYWHERE);
		return;
	}
	seen = map_find(scan, &zero);
	if (!seen) {
		keep(writing, DS_ANYWHERE);
		return;
	}
	seen->used = 0;
	seen->bad = 0;
	for (i = 0; i < DS_WORDS; i++) {
		if (i >= layout->count)
			break;
		if (buffer) {
			at = buffer + layout->words[i].packed;
		} else {
			at = 0;
			if (bpf_probe_read_user(&at, sizeof(at), (void *)(params + 8 * layout->words[i].parameter)))
				seen->bad = 1;
			at += layout->words[i].offset;
		}
		if (layout->words[i].size > sizeof(word)) {
			scan_add(seen, layout->words[i].size, at);
			continue;
		}
		word = 0;
		if (bpf_probe_read_user(&word, sizeof(word), (void *)at))
			seen->bad = 1;
		keep_address(writing, word, 0);
	}
	write_scanned(writing, seen);
	if (seen->bad)
		keep(writing, DS_ANYWHERE);
}

static __always_inline void write_launch(const struct ds_call *call)
{
	struct writing writing;
	u64 function, params, extra, stream;

	if (call->probe->kind == DS_D_LAUNCH_CONFIG) {
		stream = 0;
		bpf_probe_read_user(&stream, sizeof(stream), (void *)(call->args[0] + 32));
		if (!stream && call->probe->flags & DS_PER_THREAD)
			stream = DS_STREAM_PER_THREAD;
		function = call->args[1];
		params = call->args[2];
		extra = call->args[3];
	} else {
		stream = call_stream(call);
		function = call->args[0];
		params = call->args[9];
		extra = call->probe->kind == DS_D_COOPERATIVE ? 0 : call->args[10];
	}
	writing_begin(&writing, call->pid, stream);
	write_words(&writing, function, params, extra);
	writing_end(&writing);
}

/* The target of a copy by structure: a device's address, or a host's, which with unified addresses may be the device's. */
static __always_inline void write_block(const struct ds_call *call, struct writing *writing)
{
	u64 at = call_arg(call, call->probe->target), two[2] = { 0 };

	at += call->probe->kind == DS_D_WRITE_2D ? AT_2D_HOST : AT_3D_HOST;
	if (bpf_probe_read_user(two, sizeof(two), (void *)at)) {
		keep(writing, DS_ANYWHERE);
		return;
	}
	keep_address(writing, two[0], DS_FORWARD);
	keep_address(writing, two[1], DS_FORWARD);
}

static __always_inline void call_open(const struct ds_call *call, u64 cookie)
{
	u64 id = bpf_get_current_pid_tgid();
	struct ds_dirty_record *record;
	struct ds_open open = { 0 };

	open.began = bpf_ktime_get_ns();
	open.kind = call->probe->kind;
	open.pid = call->pid;
	open.cookie = cookie;
	open.args[0] = call_arg(call, call->probe->target);
	open.args[1] = call_arg(call, call->probe->second);
	open.args[2] = call->probe->kind == DS_D_MODULE ? call->probe->third : call_arg(call, call->probe->third);
	open.bytes = call_size(call, call->probe->bytes);
	open.stream = call->probe->stream ? call_stream(call) : DS_CONTEXT_SYNC;
	if (map_set(inside, &id, &open, BPF_ANY))
		note_trouble(DS_FULL);
	map_set(threads, &id, &open.began, BPF_ANY);
	if (open.kind == DS_D_FREE) {
		record = record_new(DS_FREEING, call->pid);
		if (!record)
			return;
		record->a = open.args[0];
		record->b = open.bytes;
		record_tell(record, 0);
	}
}

SEC("uprobe")
int opened(struct pt_regs *ctx)
{
	struct ds_call call = { 0 };

	if (call_read((struct ds_regs *)ctx, ctx, &call))
		call_open(&call, bpf_get_attach_cookie(ctx));
	return 0;
}

SEC("uprobe")
int launched(struct pt_regs *ctx)
{
	struct ds_call call = { 0 };

	if (call_read((struct ds_regs *)ctx, ctx, &call))
		write_launch(&call);
	return 0;
}

SEC("uprobe")
int wrote(struct pt_regs *ctx)
{
	struct ds_call call = { 0 };
	struct writing writing;
	u32 kind;

	if (!call_read((struct ds_regs *)ctx, ctx, &call))
		return 0;
	kind = call.probe->kind;
	if (kind == DS_D_CAPTURE || kind == DS_D_CAPTURED) {
		capture(call.pid, kind == DS_D_CAPTURE ? 1 : -1);
		return 0;
	}
	if (kind == DS_D_UNLOAD) {
		unload(call.pid);
		return 0;
	}
	writing_begin(&writing, call.pid, call_stream(&call));
	if (kind == DS_D_WRITE_2D || kind == DS_D_WRITE_3D) {
		write_block(&call, &writing);
	} else if (kind == DS_D_WRITE) {
		keep_address(&writing, call_arg(&call, call.probe->target), DS_FORWARD);
	} else if (kind == DS_D_GRAPH) {
		keep(&writing, DS_GRAPHS);
	} else {
		/* of a change of a graph: launches of graphs may write anything from now on */
		writing.captured |= kind == DS_D_GRAPH_CHANGE;
		keep(&writing, DS_ANYWHERE);
	}
	writing_end(&writing);
	return 0;
}

static __always_inline void made(struct ds_open *open, struct ds_dirty_record *record)
{
	struct ds_layout_key function = { 0 };
	struct ds_bounds *known;
	struct ds_layout *layout;
	u64 value = 0, pitch = 0;
	u32 bytes = 0;
	long length;

	if (open->kind != DS_D_MAP && bpf_probe_read_user(&value, sizeof(value), (void *)open->args[0])) {
		note_trouble(DS_UNREAD);
		return;
	}
	record->a = open->kind == DS_D_MAP ? open->args[0] : value;
	record->b = open->bytes;
	switch (open->kind) {
	case DS_D_PITCH:
		if (bpf_probe_read_user(&pitch, sizeof(pitch), (void *)open->args[1]))
			note_trouble(DS_UNREAD);
		record->b = pitch * open->args[2];
		widen(open->pid, record->a, record->b);
		break;
	case DS_D_ALLOC:
	case DS_D_MANAGED:
		widen(open->pid, record->a, record->b);
		break;
	case DS_D_MAP:
		record->c = open->args[1];
		widen(open->pid, record->a, record->b);
		break;
	case DS_D_MODULE:
		record->b = open->args[1];
		record->c = open->args[2];
		if (open->args[2]) {
			length = bpf_probe_read_user_str(record->name, DS_NAME, (void *)open->args[1]);
			bytes = length > 0 ? (u32)length : 0;
		} else {
			image_tell(MAP_OF(events), open->pid, open->args[1]);
		}
		break;
	case DS_D_FUNCTION:
		/*
		 * Libraries get the same function again and again. Only after an unload a handle may be another one's: until
		 * its reader says what it is now, its launches are told in full.
		 */
		function.pid = open->pid;
		function.function = value;
		known = map_find(bounds, &open->pid);
		layout = map_find(layouts, &function);
		record->c = known ? known->unloads : 0;
		if (layout && layout->unloads != (u32)record->c)
			map_drop(layouts, &function);
		record->b = open->args[1];
		if (open->args[2]) {
			length = bpf_probe_read_user_str(record->name, DS_NAME, (void *)open->args[2]);
			bytes = length > 0 ? (u32)length : 0;
		}
		break;
	}
	if (bytes > DS_NAME)
		bytes = DS_NAME;
	record_tell(record, bytes);
}

SEC("uprobe")
int left(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct ds_open *open = map_find(inside, &id);
	struct ds_dirty_record *record;
	struct ds_sync_key key = { 0 };
	struct ds_sync sync = { 0 };
	s32 status = (s32)((struct ds_regs *)ctx)->ax;

	if (!open || open->cookie != bpf_get_attach_cookie(ctx))
		return 0;
	if (open->kind == DS_D_SYNC) {
		key.pid = open->pid;
		key.stream = open->stream;
		sync.began = open->began;
		sync.tid = (u32)id;
		if (!status && map_set(syncs, &key, &sync, BPF_ANY))
			note_trouble(DS_FULL);
		goto out;
	}
	record = record_new(open->kind, open->pid);
	if (!record)
		goto out;
	record->status = status;
	if (open->kind == DS_D_FREE) {
		record->a = open->args[0];
		record->b = open->bytes;
		record_tell(record, 0);
	} else if (!status) {
		made(open, record);
	}
out:
	map_drop(inside, &id);
	return 0;
}
