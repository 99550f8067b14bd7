/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a stream's next work goes, and the order of it.
 *
 * Between mirrors, and between a mirror and home, an event keeps the order: recorded behind the last work, waited for before the next.
 *
 * Mirrors are non-blocking streams, so the driver does not order them against the legacy stream; we do, and only while a default or blocking
 * stream is away from home (device->mirrored). Each piece of work then counts, *after* the driver took it: legacy_seq for the legacy stream,
 * blocking_seq for the others. Who finds the other side's count changed waits for it, once. While both sides are at home the driver orders them.
 * A stream leaves home by an event recorded at home, and that is ordered by the driver behind everything that was not counted.
 */
#include <sched.h>
#include <string.h>

#include "context.h"
#include "home.h"
#include "log.h"
#include "move.h"
#include "pool.h"

#define PATIENCE_NS 100000ULL
#define RETRY_NS 1000000ULL
#define HOME_NS 1000000000ULL

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static CUstream native(struct ds_stream *stream)
{
	return ds_stream_app(stream);
}

static bool has_event(struct ds_stream *stream)
{
	CUresult result;

	if (stream->event)
		return true;
	result = real->cuEventCreate(&stream->event, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		return true;
	stream->event = NULL;
	ds_debug("no event for a move: %s", ds_error_name(result));
	return false;
}

/* `behind` waits for what `from` has, by the event of `owner` */
static CUresult chain(struct ds_stream *owner, CUstream from, CUstream behind)
{
	CUresult result;

	if (!has_event(owner))
		return CUDA_ERROR_UNKNOWN;
	result = real->cuEventRecord(owner->event, from);
	if (result == CUDA_SUCCESS)
		result = real->cuStreamWaitEvent(behind, owner->event, 0);
	return result;
}

/* the program's attributes that a stream can have; priority is given when a mirror is made */
static void copy_attributes(struct ds_stream *stream, CUstream mirror)
{
	static const CUstreamAttrID ids[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
					     CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
	CUstreamAttrValue value;

	for (unsigned int i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		memset(&value, 0, sizeof(value));
		if (real->cuStreamGetAttribute(native(stream), ids[i], &value) == CUDA_SUCCESS)
			real->cuStreamSetAttribute(mirror, ids[i], &value);
	}
}

static CUstream handle_of(struct ds_stream *stream, unsigned int tier)
{
	if (!tier)
		return native(stream);
	if (!stream->mirrors[tier]) {
		stream->mirrors[tier] = ds_pool_stream(stream->device, tier, stream->priority);
		if (stream->mirrors[tier] && stream->attributes)
			copy_attributes(stream, stream->mirrors[tier]);
	}
	return stream->mirrors[tier];
}

static bool may_leave(struct ds_stream *stream)
{
	struct ds_device *device = stream->device;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (atomic_load(&stream->capturing) || atomic_load_explicit(&ds_process.exiting, memory_order_relaxed))
		return false;
	if (!atomic_load(&device->captures))
		return true;
	if (stream->flags & DS_STREAM_LEGACY)
		return !atomic_load(&device->ordered_captures);
	/* a stream that joined a capture in a way we do not see */
	return real->cuStreamIsCapturing(native(stream), &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* no user is inside a call */
static bool move_now(struct ds_stream *stream, unsigned int tier)
{
	struct ds_device *device = stream->device;
	bool ordered = stream->flags & DS_STREAM_ORDERED, leaves = stream->tier == 0;
	bool idle = ds_stream_count(stream) == atomic_load(&stream->idle_at);
	bool foreign = (stream->flags & DS_STREAM_PER_THREAD) && !pthread_equal(stream->owner, pthread_self());
	CUstream to = handle_of(stream, tier);
	CUresult result = CUDA_SUCCESS;

	if (!to || (foreign && (tier || leaves)))
		return false;
	/* before the record at home: who does not see it has given its work to the driver before that record */
	if (ordered && leaves)
		atomic_fetch_add(&device->mirrored, 1);
	if (foreign)
		/* its handle means another stream in this thread; its thread is not inside a call */
		result = real->cuStreamSynchronize(stream->cur);
	else if (!idle || (ordered && leaves))
		result = chain(stream, stream->cur, to);
	if (result != CUDA_SUCCESS && tier) {
		if (ordered && leaves)
			atomic_fetch_sub(&device->mirrored, 1);
		ds_debug("a stream stays on tier %u: %s", stream->tier, ds_error_name(result));
		return false;
	}
	stream->cur = to;
	stream->tier = tier;
	if (ordered && !tier)
		atomic_fetch_sub(&device->mirrored, 1);
	ds_pages_remap(device->pages);
	return true;
}

bool ds_move(struct ds_stream *stream, unsigned int tier, uint64_t patience_ns)
{
	uint64_t deadline = 0, now;
	bool moved = false;

	if (stream->tier == tier)
		return true;
	if (tier && (!ds_pool_ready(stream->device, tier) || !may_leave(stream)))
		return false;
	if (tier && stream->retry_ns && ds_now_ns() < stream->retry_ns)
		return false;
	stream->retry_ns = 0;
	atomic_fetch_or(&stream->word, DS_WORD_MOVING);
	while (atomic_load(&stream->word) & DS_WORD_USERS) {
		now = ds_now_ns();
		if (!deadline)
			deadline = now + patience_ns;
		if (now >= deadline) {
			stream->retry_ns = now + RETRY_NS;
			goto out;
		}
		relax();
	}
	moved = move_now(stream, tier);
	if (!moved)
		stream->retry_ns = ds_now_ns() + RETRY_NS;
out:
	atomic_fetch_and(&stream->word, ~DS_WORD_MOVING);
	return moved;
}

/* the legacy stream waits for what the blocking streams have */
static void join_blocking(struct ds_stream *legacy)
{
	struct ds_device *device = legacy->device;
	uint32_t seq = atomic_load(&device->blocking_seq);

	/* a record in the driver's legacy stream stands behind all blocking streams that are at home, of whatever thread */
	if (legacy->tier)
		chain(legacy, native(legacy), legacy->cur);
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
		if ((stream->flags & DS_STREAM_BLOCKING) && stream->tier)
			chain(stream, stream->cur, legacy->cur);
	atomic_store(&legacy->seen, seq);
}

/* a blocking stream waits for what the legacy stream has */
static void join_legacy(struct ds_stream *stream)
{
	struct ds_device *device = stream->device;
	struct ds_stream *legacy = device->legacy;
	uint32_t seq = atomic_load(&device->legacy_seq);

	if (legacy->tier)
		chain(legacy, legacy->cur, stream->cur);
	else if (stream->tier && legacy->event)
		/* recorded right behind its last work: a record now would also stand behind later work of other blocking streams,
		 * which may be waiting for this very stream */
		real->cuStreamWaitEvent(stream->cur, legacy->event, 0);
	atomic_store(&stream->seen, seq);
}

static void join(struct ds_stream *stream)
{
	if (atomic_load(&stream->capturing))
		return;
	if (stream->flags & DS_STREAM_LEGACY)
		join_blocking(stream);
	else
		join_legacy(stream);
}

/* What this thread is about to do waits for the program's memory. A thread that entered already is waited for, and goes on. */
static bool parked(struct ds_stream *stream, unsigned int tier)
{
	return ds_unlikely(atomic_load(&stream->word) & DS_WORD_PARKED) && tier != DS_TIER_ASK && !ds_thread.home;
}

CUstream ds_stream_slow(struct ds_stream *stream, unsigned int tier)
{
	struct ds_device *device = stream->device;
	struct ds_own own;
	CUstream cur;

	/* a profiler's call from inside one of ours */
	if (ds_thread.locked)
		return stream->cur;
	atomic_fetch_sub(&stream->word, DS_WORD_CALL + 1);
	ds_lock(device);
	while (parked(stream, tier)) {
		ds_unlock(device);
		ds_home_fetch(stream);
		ds_lock(device);
	}
	if (ds_stream_app(stream)) {
		ds_own_begin(&own, device);
		if (tier < DS_TIER_ASK)
			ds_move(stream, tier, PATIENCE_NS);
		if (ds_stream_unordered(stream))
			join(stream);
		ds_own_end(&own);
	}
	atomic_fetch_add(&stream->word, DS_WORD_CALL + 1);
	cur = stream->cur;
	ds_unlock(device);
	return cur;
}

void ds_stream_work_done(struct ds_stream *stream)
{
	struct ds_device *device = stream->device;
	struct ds_own own;

	if (!(stream->flags & DS_STREAM_LEGACY)) {
		atomic_fetch_add(&device->blocking_seq, 1);
		return;
	}
	if (!stream->tier && !ds_thread.locked && !atomic_load(&device->ordered_captures)) {
		ds_lock(device);
		ds_own_begin(&own, device);
		if (!stream->tier && has_event(stream))
			real->cuEventRecord(stream->event, native(stream));
		ds_own_end(&own);
		ds_unlock(device);
	}
	atomic_fetch_add(&device->legacy_seq, 1);
}

void ds_stream_home(struct ds_stream *stream)
{
	uint64_t deadline = 0;
	CUstream handle;

	while (1) {
		handle = ds_stream_use(stream, 0);
		if (ds_likely(!stream->tier) || ds_thread.locked)
			return;
		if (!deadline)
			deadline = ds_now_ns() + HOME_NS;
		if (ds_now_ns() > deadline)
			break;
		atomic_fetch_sub(&stream->word, DS_WORD_CALL + 1);
		sched_yield();
	}
	/* Another thread is held inside a launch, or this one is (a profiler's call from inside it). What comes next runs at home without a move,
	 * behind everything. */
	real->cuStreamSynchronize(handle);
}

void ds_stream_fetch_home(struct ds_stream *stream)
{
	ds_stream_home(stream);
	ds_stream_done_quiet(stream);
}

CUresult ds_stream_after(struct ds_stream *stream, struct ds_stream *other)
{
	struct ds_device *device = stream->device;
	struct ds_own own;
	CUresult result;

	if (stream == other)
		return CUDA_SUCCESS;
	if (device != other->device || ds_thread.locked)
		return CUDA_ERROR_NOT_SUPPORTED;
	/* nobody but its thread can name a per-thread stream that is at home */
	if ((other->flags & DS_STREAM_PER_THREAD) && !other->tier && !pthread_equal(other->owner, pthread_self()))
		return CUDA_ERROR_NOT_SUPPORTED;
	ds_lock(device);
	/* it may have ended since the caller heard of it: who ends a stream takes care of what others wait for (lifecycle.h) */
	result = CUDA_ERROR_INVALID_HANDLE;
	if (ds_stream_app(other)) {
		ds_own_begin(&own, device);
		result = chain(other, other->cur, stream->cur);
		atomic_fetch_add(&stream->word, DS_WORD_CALL);
		ds_own_end(&own);
	}
	ds_unlock(device);
	return result;
}

uint64_t ds_stream_mark(struct ds_stream *stream)
{
	uint64_t word = atomic_load(&stream->word);

	/* another thread's call that is counted may not be with the driver yet */
	return (word & DS_WORD_USERS) == 1 ? word | DS_WORD_USERS : 0;
}

void ds_stream_idle(struct ds_stream *stream, uint64_t mark)
{
	if (mark && (uint32_t)(mark / DS_WORD_CALL) == ds_stream_count(stream))
		atomic_store(&stream->idle_at, (uint32_t)(mark / DS_WORD_CALL));
}
