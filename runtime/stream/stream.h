/* SPDX-License-Identifier: Apache-2.0 */
/* The program's streams. */
#ifndef DS_STREAM_H
#define DS_STREAM_H

#include "device.h"

enum {
	DS_STREAM_LEGACY = 1, /* the default stream of the context */
	DS_STREAM_PER_THREAD = 2, /* the default stream of one thread; BLOCKING too */
	DS_STREAM_BLOCKING = 4, /* ordered against the legacy stream */
	DS_STREAM_ORDERED = DS_STREAM_LEGACY | DS_STREAM_BLOCKING,
};

enum { DS_CAPTURE_NONE, DS_CAPTURE_JOINED, DS_CAPTURE_ORIGIN };

/* ds_stream.word: calls under way on the stream, whether it is moving, whether its memory may be away (home.h), and how many calls it has seen */
#define DS_WORD_USERS 0xffffULL
#define DS_WORD_MOVING 0x10000ULL
#define DS_WORD_PARKED 0x20000ULL
#define DS_WORD_CALL (1ULL << 32)

/* One stream of the program. Memory of this type is used again for other streams and never given back, so a pointer to a destroyed
 * one is stale but not wild. */
struct ds_stream {
	_Atomic(uint64_t) word; /* first; goes on counting when the memory serves another stream */
	CUstream cur; /* where its last work went; changed while MOVING with no user */
	struct ds_device *device;
	void *gate; /* what the folder gate/ has of it */
	uint8_t tier; /* of cur */
	uint8_t flags; /* DS_STREAM_* */
	_Atomic(uint8_t) capturing; /* DS_CAPTURE_*: natively at home until the capture ends */
	_Atomic(uint32_t) seen; /* legacy_seq (legacy stream: blocking_seq) that this stream's work is ordered behind */
	_Atomic(uint32_t) idle_at; /* the count of calls at which the program knew that it has no work left: a move needs no event */
	_Atomic(uint32_t) done_at; /* the same, but only the poller knew */
	_Atomic(CUstream) app; /* the program's handle, NULL once destroyed; CU_STREAM_LEGACY and CU_STREAM_PER_THREAD for default streams */
	int priority;

	/* below: under device->lock */
	bool attributes; /* the program set some: mirrors get them too */
	bool orphan; /* a per-thread stream whose thread ended */
	pthread_t owner; /* of a per-thread stream */
	CUevent event; /* orders moves; made at the first one */
	CUstream mirrors[DS_TIERS];
	uint64_t retry_ns; /* no move is tried before: another thread is inside a long call */
	struct ds_stream *next; /* device->streams */
};

/* The stream behind a handle that the program passed; NULL: not managed, call natively with the handle as it is. per_thread: what a null
 * handle means. */
struct ds_stream *ds_stream_of(CUstream app, bool per_thread);

static inline uint32_t ds_stream_count(struct ds_stream *stream)
{
	return (uint32_t)(atomic_load(&stream->word) / DS_WORD_CALL);
}

static inline CUstream ds_stream_app(struct ds_stream *stream)
{
	return atomic_load_explicit(&stream->app, memory_order_relaxed);
}

/* ---- under device->lock ---- */

/* a record for a stream of the program; NULL: no memory */
struct ds_stream *ds_stream_add(struct ds_device *device, CUstream app, unsigned int flags, int priority);
/* forgets it: what it has of ours is destroyed, if `context_lives`. The program's own stream is not touched. */
void ds_stream_remove(struct ds_stream *stream, bool context_lives);
/* forgets default streams of threads that ended, and whose work did */
void ds_stream_reap(struct ds_device *device);
/* gives mirrors and events back to the driver; the stream is at home */
void ds_stream_strip(struct ds_stream *stream);

#endif
