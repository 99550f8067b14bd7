// SPDX-License-Identifier: Apache-2.0
/* Events. One may be recorded on streams of its own context's group only, and waited for by any stream. */
#include "api.h"

CUresult event_of(CUevent handle, struct event **event)
{
	*event = handle_get(handle, OBJECT_EVENT);
	return *event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuEventCreate, CUevent *, handle, unsigned int, flags)
{
	struct context *context;
	struct event *event;

	TRY(context_current(&context));
	if (!handle || flags & ~7u || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	event = xalloc(sizeof(*event));
	handle_add(event, OBJECT_EVENT);
	event->context = context;
	event->flags = flags;
	*handle = (CUevent)event;
	return CUDA_SUCCESS;
}

API(cuEventDestroy_v2, CUevent, handle)
{
	struct event *event;

	TRY(event_of(handle, &event));
	handle_kill(event);
	op_put(event->record);
	event->record = NULL;
	return CUDA_SUCCESS;
}

SAME(cuEventDestroy, cuEventDestroy_v2, CUevent, handle)

static CUresult record(CUevent handle, CUstream to, bool per_thread, bool external)
{
	struct stream *stream;
	struct event *event;
	struct work work = { .type = WORK_EVENT_RECORD };
	struct op *op;

	TRY(event_of(handle, &event));
	TRY(stream_of(to, per_thread, &stream));
	if (event->context->group != stream->context->group)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return capture_record(stream, event, external);
	if (event->capture)
		event->capture = NULL;
	work.event.event = event;
	TRY(stream_issue(stream, &work, &op));
	op_put(event->record);
	event->record = op_get(op);
	return CUDA_SUCCESS;
}

STREAM(cuEventRecord, CUevent, handle, CUstream, stream)
{
	return record(handle, stream, per_thread, false);
}

STREAM(cuEventRecordWithFlags, CUevent, handle, CUstream, stream, unsigned int, flags)
{
	if (flags & ~CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return record(handle, stream, per_thread, flags & CU_EVENT_RECORD_EXTERNAL);
}

STREAM(cuStreamWaitEvent, CUstream, handle, CUevent, what, unsigned int, flags)
{
	struct stream *stream;
	struct event *event;
	struct op *op;

	TRY(stream_of(handle, per_thread, &stream));
	TRY(event_of(what, &event));
	if (flags & ~CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_EVENT_WAIT_EXTERNAL && stream->capture) {
		struct work work = { .type = WORK_EVENT_WAIT, .event = { event } };

		return capture_add(stream, &work);
	}
	if (event->capture)
		return capture_wait(stream, event);
	if (stream->capture) {
		if (event->record)
			return capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
		return CUDA_SUCCESS;
	}
	if (stream->kind == STREAM_LEGACY)
		TRY(capture_implicit(stream->context));
	if (!event->record)
		return CUDA_SUCCESS;
	op = op_new(stream->context, WORK_EVENT_WAIT);
	op->stream = stream;
	op->actor = stream->actor;
	stream_depend(stream, op);
	op_follow(op, event->record);
	op_put(stream->last);
	stream->last = op_get(op);
	op_submit(op);
	return CUDA_SUCCESS;
}

API(cuEventQuery, CUevent, handle)
{
	struct event *event;

	TRY(event_of(handle, &event));
	if (event->capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	TRY(check_capture_safe());
	if (event->record && event->record->state != OP_DONE)
		return CUDA_ERROR_NOT_READY;
	if (event->record)
		host_join(event->record->clock);
	return event->context->group->sticky;
}

API(cuEventSynchronize, CUevent, handle)
{
	struct event *event;

	TRY(event_of(handle, &event));
	if (event->capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	TRY(check_capture_safe());
	op_wait(event->record);
	return event->context->group->sticky;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
	struct event *first, *last;

	TRY(event_of(from, &first));
	TRY(event_of(to, &last));
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (first->capture || last->capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	if ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING || !first->record || !last->record ||
	    first->context->group != last->context->group)
		return CUDA_ERROR_INVALID_HANDLE;
	if (first->record->state != OP_DONE || last->record->state != OP_DONE)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(last->record->end_ns - first->record->end_ns) / 1e6);
	return CUDA_SUCCESS;
}

API(cuEventElapsedTime, float *, ms, CUevent, from, CUevent, to)
{
	return elapsed(ms, from, to);
}

API(cuEventElapsedTime_v2, float *, ms, CUevent, from, CUevent, to)
{
	return elapsed(ms, from, to);
}
