/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture. What is captured is captured natively: the stream is brought home before, and stays there until the capture ends. A stream joins a
 * capture by waiting for an event that was recorded in it, so those events are remembered.
 */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "home.h"
#include "lifecycle.h"
#include "move.h"

/* events recorded by streams under capture; under events_lock, which is taken last */
static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static CUevent *events;
static unsigned int event_room;
static _Atomic(unsigned int) event_count;

void ds_capture_note(CUevent event)
{
	unsigned int count;

	pthread_mutex_lock(&events_lock);
	count = atomic_load(&event_count);
	for (unsigned int i = 0; i < count; i++)
		if (events[i] == event)
			goto out;
	if (count == event_room) {
		CUevent *more = realloc(events, (event_room * 2 + 16) * sizeof(*events));

		if (!more)
			goto out;
		events = more;
		event_room = event_room * 2 + 16;
	}
	events[count] = event;
	atomic_store(&event_count, count + 1);
out:
	pthread_mutex_unlock(&events_lock);
}

static bool event_known(CUevent event, bool forget)
{
	bool known = false;
	unsigned int count;

	if (ds_likely(!atomic_load_explicit(&event_count, memory_order_acquire)))
		return false;
	pthread_mutex_lock(&events_lock);
	count = atomic_load(&event_count);
	for (unsigned int i = 0; i < count && !known; i++)
		if (events[i] == event) {
			known = true;
			if (forget) {
				events[i] = events[count - 1];
				atomic_store(&event_count, count - 1);
			}
		}
	pthread_mutex_unlock(&events_lock);
	return known;
}

static void child(void)
{
	pthread_mutex_init(&events_lock, NULL);
	atomic_store(&event_count, 0);
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);

static bool still_captured(struct ds_stream *stream)
{
	CUstreamCaptureStatus status;

	if ((stream->flags & DS_STREAM_PER_THREAD) && !pthread_equal(stream->owner, pthread_self()))
		return true;
	return real->cuStreamIsCapturing(ds_stream_app(stream), &status) != CUDA_SUCCESS ||
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* under device->lock; `ended`: the origin whose capture may have ended */
void ds_captures_recount(struct ds_device *device, struct ds_stream *ended)
{
	unsigned int all = 0, ordered = 0;
	bool origins = false;

	if (ended && !still_captured(ended))
		atomic_store(&ended->capturing, DS_CAPTURE_NONE);
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
		if (atomic_load(&stream->capturing) == DS_CAPTURE_ORIGIN)
			origins = true;
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next) {
		if (atomic_load(&stream->capturing) == DS_CAPTURE_JOINED && (!origins || !still_captured(stream)))
			atomic_store(&stream->capturing, DS_CAPTURE_NONE);
		if (!atomic_load(&stream->capturing))
			continue;
		all++;
		if (stream->flags & DS_STREAM_ORDERED)
			ordered++;
	}
	atomic_store(&device->captures, all);
	atomic_store(&device->ordered_captures, ordered);
}

static void recount(struct ds_stream *stream)
{
	ds_lock(stream->device);
	ds_captures_recount(stream->device, stream);
	ds_unlock(stream->device);
}

/* home, and kept there. A stream that is not ordered against the legacy stream leaves that one alone. */
static void enter(struct ds_stream *stream, uint8_t as)
{
	struct ds_device *device = stream->device;

	ds_lock(device);
	if (atomic_load(&stream->capturing) < as)
		atomic_store(&stream->capturing, as);
	atomic_fetch_add(&device->captures, 1);
	if (stream->flags & DS_STREAM_ORDERED)
		atomic_fetch_add(&device->ordered_captures, 1);
	ds_unlock(device);
	ds_stream_fetch_home(stream);
	/* a use of the legacy stream meets the driver's rules for it only if it is the driver's */
	if ((stream->flags & DS_STREAM_BLOCKING) && device->legacy->tier)
		ds_stream_fetch_home(device->legacy);
}

#define BEGIN(name, per_thread, declared, ...)                                  \
	CUresult name declared                                                  \
	{                                                                       \
		struct ds_stream *stream = ds_stream_of(handle, per_thread);    \
		CUresult result;                                                \
                                                                                \
		if (!stream)                                                    \
			return real->name(__VA_ARGS__);                         \
		/* while it goes on nothing comes home */                       \
		ds_home_enter();                                                \
		enter(stream, DS_CAPTURE_ORIGIN);                               \
		result = real->name(__VA_ARGS__);                               \
		if (result != CUDA_SUCCESS)                                     \
			recount(stream);                                        \
		ds_home_leave();                                                \
		return result;                                                  \
	}

BEGIN(cuStreamBeginCapture, false, (CUstream handle), handle)
BEGIN(cuStreamBeginCapture_ptsz, true, (CUstream handle), handle)
BEGIN(cuStreamBeginCapture_v2, false, (CUstream handle, CUstreamCaptureMode mode), handle, mode)
BEGIN(cuStreamBeginCapture_v2_ptsz, true, (CUstream handle, CUstreamCaptureMode mode), handle, mode)
BEGIN(cuStreamBeginCaptureToGraph, false,
      (CUstream handle, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
       CUstreamCaptureMode mode),
      handle, graph, nodes, edges, count, mode)
BEGIN(cuStreamBeginCaptureToGraph_ptsz, true,
      (CUstream handle, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
       CUstreamCaptureMode mode),
      handle, graph, nodes, edges, count, mode)

static CUresult end(struct ds_stream *stream, CUresult result)
{
	if (stream)
		recount(stream);
	return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	return end(ds_stream_of(handle, false), real->cuStreamEndCapture(handle, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream handle, CUgraph *graph)
{
	return end(ds_stream_of(handle, true), real->cuStreamEndCapture_ptsz(handle, graph));
}

static void recorded(struct ds_stream *stream, CUevent event)
{
	if (ds_unlikely(atomic_load_explicit(&stream->capturing, memory_order_relaxed)))
		ds_capture_note(event);
	else
		event_known(event, true);
}

#define RECORD(name, per_thread, declared, ...)                                 \
	CUresult name declared                                                  \
	{                                                                       \
		struct ds_stream *stream = ds_stream_of(handle, per_thread);    \
		CUstream actual = handle;                                       \
		CUresult result;                                                \
                                                                                \
		if (!stream)                                                    \
			return real->name(__VA_ARGS__);                         \
		actual = ds_stream_cur(stream);                                 \
		result = real->name(__VA_ARGS__);                               \
		recorded(stream, event);                                        \
		ds_stream_done(stream);                                         \
		return result;                                                  \
	}

RECORD(cuEventRecord, false, (CUevent event, CUstream handle), event, actual)
RECORD(cuEventRecord_ptsz, true, (CUevent event, CUstream handle), event, actual)
RECORD(cuEventRecordWithFlags, false, (CUevent event, CUstream handle, unsigned int flags), event, actual, flags)
RECORD(cuEventRecordWithFlags_ptsz, true, (CUevent event, CUstream handle, unsigned int flags), event, actual, flags)

static CUresult wait_event(CUstream handle, bool per_thread, CUevent event, unsigned int flags,
			   CUresult (*next)(CUstream, CUevent, unsigned int))
{
	struct ds_stream *stream = ds_stream_of(handle, per_thread);
	bool joins = false;
	CUresult result;

	if (!stream)
		return next(handle, event, flags);
	if (ds_unlikely(atomic_load_explicit(&stream->device->captures, memory_order_relaxed)) &&
	    !atomic_load(&stream->capturing) && event_known(event, false)) {
		joins = true;
		enter(stream, DS_CAPTURE_JOINED);
	}
	result = next(ds_stream_cur(stream), event, flags);
	ds_stream_done(stream);
	/* it is no captured event any more, or the driver does not let this stream join */
	if (joins)
		recount(stream);
	return result;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	return wait_event(handle, false, event, flags, real->cuStreamWaitEvent);
}

CUresult cuStreamWaitEvent_ptsz(CUstream handle, CUevent event, unsigned int flags)
{
	return wait_event(handle, true, event, flags, real->cuStreamWaitEvent_ptsz);
}

CUresult cuEventDestroy(CUevent event)
{
	event_known(event, true);
	return real->cuEventDestroy(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
	event_known(event, true);
	return real->cuEventDestroy_v2(event);
}
