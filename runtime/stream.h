/* SPDX-License-Identifier: Apache-2.0 */
/* What device.c, stream.c, move.c and capture.c know of each other's streams. */
#ifndef DS_STREAM_H
#define DS_STREAM_H

#include "runtime.h"

/* Under device->lock, which is never taken inside a driver's call of this thread. */
static inline void ds_lock(struct ds_device *device)
{
	pthread_mutex_lock(&device->lock);
	ds_thread.locked = true;
}

static inline void ds_unlock(struct ds_device *device)
{
	ds_thread.locked = false;
	pthread_mutex_unlock(&device->lock);
}

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
/* gives twins and events back to the driver; the stream is at home */
void ds_stream_strip(struct ds_stream *stream);

/*
 * Moves to `tier`, if no other thread stays inside a call on the stream for longer than patience_ns, and nothing else forbids it.
 * What a driver's error forbids is left as it was, but a move home always succeeds then: the context is beyond repair.
 */
bool ds_move(struct ds_stream *stream, unsigned int tier, uint64_t patience_ns);
/* captures that ended are noticed */
void ds_captures_recount(struct ds_device *device, struct ds_stream *ended);

void ds_stream_child(void); /* in a forked child */
void ds_capture_child(void);

/* the event was recorded by what is being captured: who waits for it joins */
void ds_capture_note(CUevent event);

/* as ds_move home, however long it takes; takes the lock by itself */
void ds_stream_fetch_home(struct ds_stream *stream);

#endif
