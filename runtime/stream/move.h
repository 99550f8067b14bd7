/* SPDX-License-Identifier: Apache-2.0 */
/* Where a stream's next work goes, and the order of it. */
#ifndef DS_MOVE_H
#define DS_MOVE_H

#include "stream.h"

/*
 * The handle for work of `tier`, after a move if one is needed: order with all earlier work of the stream is kept. It may be of another tier
 * (see stream->tier) where a move cannot be made now. Between this call and ds_stream_done() the stream does not move. Nothing waits for the GPU.
 */
static inline CUstream ds_stream_use(struct ds_stream *stream, unsigned int tier);
/* the handle for calls that follow: no move */
static inline CUstream ds_stream_cur(struct ds_stream *stream);
/* the same for calls that put no work into it: they need no memory (home.h) */
static inline CUstream ds_stream_ask(struct ds_stream *stream);
static inline void ds_stream_done(struct ds_stream *stream);
/* as done, after a call that put no work into the stream */
static inline void ds_stream_done_quiet(struct ds_stream *stream);
/* moves home, however long other threads are inside calls; then as ds_stream_use(stream, 0) */
void ds_stream_home(struct ds_stream *stream);
/* the stream's next work waits for all work that `other` has now. Neither is in use by this thread. */
CUresult ds_stream_after(struct ds_stream *stream, struct ds_stream *other);
/* For a call that finds out that the stream has no work left: mark while in use by this thread, before the wait; idle after it succeeded. */
uint64_t ds_stream_mark(struct ds_stream *stream);
void ds_stream_idle(struct ds_stream *stream, uint64_t mark);

#define DS_TIER_ANY 0xffU
#define DS_TIER_ASK 0xfeU
CUstream ds_stream_slow(struct ds_stream *stream, unsigned int tier);
void ds_stream_work_done(struct ds_stream *stream);

static inline bool ds_stream_unordered(struct ds_stream *stream)
{
	struct ds_device *device = stream->device;
	uint32_t seq;

	if (ds_likely(!(stream->flags & DS_STREAM_ORDERED) || !atomic_load_explicit(&device->mirrored, memory_order_seq_cst)))
		return false;
	seq = stream->flags & DS_STREAM_LEGACY ? atomic_load_explicit(&device->blocking_seq, memory_order_acquire)
					       : atomic_load_explicit(&device->legacy_seq, memory_order_acquire);
	return seq != atomic_load_explicit(&stream->seen, memory_order_relaxed);
}

static inline CUstream ds_stream_use(struct ds_stream *stream, unsigned int tier)
{
	uint64_t word = atomic_fetch_add_explicit(&stream->word, DS_WORD_CALL + 1, memory_order_acquire);

	if (ds_unlikely((word & (DS_WORD_MOVING | DS_WORD_PARKED)) || stream->tier != tier || ds_stream_unordered(stream)))
		return ds_stream_slow(stream, tier);
	return stream->cur;
}

static inline CUstream ds_stream_cur(struct ds_stream *stream)
{
	uint64_t word = atomic_fetch_add_explicit(&stream->word, DS_WORD_CALL + 1, memory_order_acquire);

	if (ds_unlikely((word & (DS_WORD_MOVING | DS_WORD_PARKED)) || ds_stream_unordered(stream)))
		return ds_stream_slow(stream, DS_TIER_ANY);
	return stream->cur;
}

static inline CUstream ds_stream_ask(struct ds_stream *stream)
{
	uint64_t word = atomic_fetch_add_explicit(&stream->word, DS_WORD_CALL + 1, memory_order_acquire);

	if (ds_unlikely((word & DS_WORD_MOVING) || ds_stream_unordered(stream)))
		return ds_stream_slow(stream, DS_TIER_ASK);
	return stream->cur;
}

static inline void ds_stream_done_quiet(struct ds_stream *stream)
{
	atomic_fetch_sub_explicit(&stream->word, 1, memory_order_release);
}

static inline void ds_stream_done(struct ds_stream *stream)
{
	if (ds_unlikely((stream->flags & DS_STREAM_ORDERED) &&
			atomic_load_explicit(&stream->device->mirrored, memory_order_seq_cst)))
		ds_stream_work_done(stream);
	ds_stream_done_quiet(stream);
}

/* as ds_move home, however long it takes; takes the lock by itself */
void ds_stream_fetch_home(struct ds_stream *stream);

/*
 * Under device->lock. Moves to `tier`, if no other thread stays inside a call on the stream for longer than patience_ns, and nothing else forbids it.
 * What a driver's error forbids is left as it was, but a move home always succeeds then: the context is beyond repair.
 */
bool ds_move(struct ds_stream *stream, unsigned int tier, uint64_t patience_ns);

#endif
