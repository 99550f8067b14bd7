// SPDX-License-Identifier: Apache-2.0
/* Streams and the order between them: in order within one; the legacy stream against all blocking ones of a context. */
#include "api.h"

struct stream *stream_new(struct context *context, unsigned int flags, int priority)
{
	struct stream *stream = xalloc(sizeof(*stream));

	handle_add(stream, OBJECT_STREAM);
	stream->context = context;
	stream->flags = flags;
	stream->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
	stream->actor = actor_new();
	stream->thread = pthread_self();
	stream->next = context->streams;
	context->streams = stream;
	return stream;
}

void stream_close(struct stream *stream)
{
	handle_kill(stream);
	stream->closed = true;
	streams_prune(stream->context);
}

/* Drops closed streams whose work is done, and keeps what is ordered behind it. */
void streams_prune(struct context *context)
{
	struct stream **at = &context->streams;

	while (*at) {
		struct stream *stream = *at;

		if (!stream->closed || (stream->last && stream->last->state != OP_DONE)) {
			at = &stream->next;
			continue;
		}
		if (stream->last)
			context->ended = clock_join(context->ended, stream->last->clock);
		op_put(stream->last);
		stream->last = NULL;
		*at = stream->next;
		actor_free(stream->actor);
	}
}

static struct stream *per_thread_stream(struct context *context)
{
	struct stream *stream;

	for (unsigned int i = 0; i < self.default_count; i++)
		if (self.defaults[i]->context == context)
			return self.defaults[i];
	if (self.default_count == ARRAY_LENGTH(self.defaults))
		return NULL;
	stream = stream_new(context, CU_STREAM_DEFAULT, 0);
	stream->kind = STREAM_PER_THREAD;
	self.defaults[self.default_count++] = stream;
	return stream;
}

/* NULL is the legacy stream, or the thread's own one for the _ptsz and _ptds names. */
CUresult stream_of(CUstream handle, bool per_thread, struct stream **stream)
{
	struct context *context;

	if (handle != NULL && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
		*stream = handle_get(handle, OBJECT_STREAM);
		if (!*stream)
			return CUDA_ERROR_INVALID_HANDLE;
		if (!self.depth)
			return CUDA_ERROR_INVALID_CONTEXT;
		return (*stream)->context->group->sticky;
	}
	TRY(context_current(&context));
	if (handle == CU_STREAM_PER_THREAD || (handle == NULL && per_thread))
		*stream = per_thread_stream(context);
	else
		*stream = context->legacy;
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool blocking(const struct stream *stream)
{
	return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void stream_depend(struct stream *stream, struct op *op)
{
	op_follow(op, stream->last);
	if (stream->kind == STREAM_LEGACY) {
		for (struct stream *other = stream->context->streams; other; other = other->next)
			if (blocking(other))
				op_follow(op, other->last);
		if (stream->context->ended)
			op->submitted = clock_join(host_clock(), stream->context->ended);
	} else if (blocking(stream)) {
		op_follow(op, stream->context->legacy->last);
	}
}

/* Appends work to a stream, or to the graph that it captures into. The op is only valid until the lock is dropped. */
CUresult stream_issue(struct stream *stream, struct work *work, struct op **issued)
{
	struct op *op;

	if (issued)
		*issued = NULL;
	if (stream->capture)
		return capture_add(stream, work);
	if (stream->kind == STREAM_LEGACY) {
		CUresult result = capture_implicit(stream->context);

		if (result) {
			work_drop(work);
			return result;
		}
	}
	op = op_new(stream->context, work->type);
	op->work = *work;
	memset(work, 0, sizeof(*work));
	work->type = WORK_EMPTY;
	op->stream = stream;
	op->actor = stream->actor;
	if (op->work.type == WORK_KERNEL)
		op->work.kernel.context = stream->context;
	stream_depend(stream, op);
	op_put(stream->last);
	stream->last = op_get(op);
	if (issued)
		*issued = op;
	op_submit(op);
	return CUDA_SUCCESS;
}

CUresult stream_sync(struct stream *stream)
{
	op_wait(stream->last);
	if (stream->kind == STREAM_LEGACY) {
		for (struct stream *other = stream->context->streams; other; other = other->next)
			if (blocking(other))
				op_wait(other->last);
	} else if (blocking(stream)) {
		/* work that comes next would wait for it, so does the sync */
		op_wait(stream->context->legacy->last);
	}
	return stream->context->group->sticky;
}

static CUresult create(CUstream *handle, unsigned int flags, int priority)
{
	struct context *context;

	TRY(context_current(&context));
	if (!handle || flags & ~CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (context->green && !(flags & CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (CUstream)stream_new(context, flags, priority);
	return CUDA_SUCCESS;
}

API(cuStreamCreate, CUstream *, handle, unsigned int, flags)
{
	return create(handle, flags, 0);
}

API(cuStreamCreateWithPriority, CUstream *, handle, unsigned int, flags, int, priority)
{
	return create(handle, flags, priority);
}

API(cuStreamDestroy_v2, CUstream, handle)
{
	struct stream *stream;

	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(stream_of(handle, false, &stream));
	if (stream->capture)
		capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	stream_close(stream);
	return CUDA_SUCCESS;
}

SAME(cuStreamDestroy, cuStreamDestroy_v2, CUstream, handle)

static CUresult busy_capturing(struct stream *stream)
{
	if (stream->capture)
		return capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (stream->kind == STREAM_LEGACY)
		TRY(capture_implicit(stream->context));
	return check_capture_safe();
}

STREAM(cuStreamSynchronize, CUstream, handle)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	TRY(busy_capturing(stream));
	return stream_sync(stream);
}

static bool op_over(struct op *op)
{
	if (op && op->state != OP_DONE)
		return false;
	if (op)
		host_join(op->clock);
	return true;
}

STREAM(cuStreamQuery, CUstream, handle)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	TRY(busy_capturing(stream));
	if (!op_over(stream->last))
		return CUDA_ERROR_NOT_READY;
	if (stream->kind == STREAM_LEGACY)
		for (struct stream *other = stream->context->streams; other; other = other->next)
			if (blocking(other) && !op_over(other->last))
				return CUDA_ERROR_NOT_READY;
	return stream->context->group->sticky;
}

STREAM(cuStreamGetPriority, CUstream, handle, int *, priority)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetFlags, CUstream, handle, unsigned int *, flags)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetId, CUstream, handle, unsigned long long *, id)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	*id = stream->object.id;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetDevice, CUstream, handle, CUdevice *, ordinal)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	*ordinal = stream->context->device->ordinal;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetCtx, CUstream, handle, CUcontext *, context)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = (CUcontext)stream->context;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetCtx_v2, CUstream, handle, CUcontext *, context, CUgreenCtx *, green)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	*context = stream->context->green ? NULL : (CUcontext)stream->context;
	*green = (CUgreenCtx)stream->context->green;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetGreenCtx, CUstream, handle, CUgreenCtx *, green)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	*green = (CUgreenCtx)stream->context->green;
	return CUDA_SUCCESS;
}

static CUlaunchAttributeValue *attribute_of(struct stream *stream, CUstreamAttrID id)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return &stream->window;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return &stream->policy;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return &stream->domain;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return &stream->domain_map;
	default:
		return NULL;
	}
}

STREAM(cuStreamGetAttribute, CUstream, handle, CUstreamAttrID, id, CUstreamAttrValue *, value)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		value->priority = stream->priority;
	else if (attribute_of(stream, id))
		*value = *attribute_of(stream, id);
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

STREAM(cuStreamSetAttribute, CUstream, handle, CUstreamAttrID, id, const CUstreamAttrValue *, value)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		stream->priority = value->priority;
	else if (attribute_of(stream, id))
		*attribute_of(stream, id) = *value;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

STREAM(cuStreamCopyAttributes, CUstream, to, CUstream, from)
{
	struct stream *target, *source;

	TRY(stream_of(to, per_thread, &target));
	TRY(stream_of(from, per_thread, &source));
	target->window = source->window;
	target->policy = source->policy;
	target->domain = source->domain;
	target->domain_map = source->domain_map;
	target->priority = source->priority;
	return CUDA_SUCCESS;
}

STREAM(cuStreamAttachMemAsync, CUstream, handle, CUdeviceptr, address, size_t, length, unsigned int, flags)
{
	struct work work = { .type = WORK_EMPTY };
	struct stream *stream;

	(void)length;
	(void)flags;
	TRY(stream_of(handle, per_thread, &stream));
	if (!memory_find(address))
		return CUDA_ERROR_INVALID_VALUE;
	return stream_issue(stream, &work, NULL);
}

STREAM(cuLaunchHostFunc, CUstream, handle, CUhostFn, fn, void *, data)
{
	struct work work = { .type = WORK_HOST, .host = { fn, data } };
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_issue(stream, &work, NULL);
}

STREAM(cuStreamAddCallback, CUstream, handle, CUstreamCallback, fn, void *, data, unsigned int, flags)
{
	struct work work = { .type = WORK_CALLBACK, .callback = { fn, data, handle } };
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (!fn || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return stream_issue(stream, &work, NULL);
}

EXPORT unsigned int fakecuda_stream_sms(void *handle, uint16_t *ids, unsigned int room)
{
	uint16_t all[MAX_SMS];
	struct stream *stream;
	unsigned int n = 0;

	if (api_enter(ENTER_PLAIN))
		return 0;
	if (!stream_of(handle, false, &stream))
		n = sms_list(&stream->context->sms, all);
	for (unsigned int i = 0; i < n && i < room; i++)
		ids[i] = all[i];
	api_leave(ENTER_PLAIN, CUDA_SUCCESS);
	return n;
}
