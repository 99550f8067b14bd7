// SPDX-License-Identifier: Apache-2.0
/* SM resources and green contexts. A resource carries its SM set in the opaque bytes, a description a copy of it. */
#include <time.h>

#include "api.h"

struct description {
	struct object object;
	struct device *device;
	struct sm_set sms;
};

static bool no_green(void)
{
	const char *text = getenv("FAKECUDA_GREEN");

	return (text && !strcmp(text, "0")) || (getenv("FAKECUDA_MIG") && atoi(getenv("FAKECUDA_MIG")));
}

struct opaque {
	char mark[8];
	struct sm_set sms;
	int ordinal;
};

static struct opaque *opaque_of(const CUdevResource *resource)
{
	return (struct opaque *)resource->_internal_padding;
}

static void resource_fill(CUdevResource *resource, const struct device *device, const struct sm_set *sms)
{
	struct opaque opaque = { .sms = *sms, .ordinal = device->ordinal };

	memcpy(opaque.mark, "fakecuda", sizeof(opaque.mark));
	memset(resource, 0, sizeof(*resource));
	resource->type = CU_DEV_RESOURCE_TYPE_SM;
	resource->sm.smCount = sms_count(sms);
	resource->sm.minSmPartitionSize = SM_ALIGN;
	resource->sm.smCoscheduledAlignment = SM_ALIGN;
	memcpy(resource->_internal_padding, &opaque, sizeof(opaque));
}

static CUresult resource_get(CUdevResource *resource, CUdevResourceType type, const struct device *device,
			     const struct sm_set *sms)
{
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	if (no_green())
		return CUDA_ERROR_NOT_SUPPORTED;
	resource_fill(resource, device, sms);
	return CUDA_SUCCESS;
}

static CUresult resource_read(const CUdevResource *resource, struct opaque *opaque)
{
	if (!resource || resource->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memcpy(opaque, opaque_of(resource), sizeof(*opaque));
	if (memcmp(opaque->mark, "fakecuda", sizeof(opaque->mark)) || sms_count(&opaque->sms) != resource->sm.smCount) {
		violation("an SM resource that no query or split returned");
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	}
	return CUDA_SUCCESS;
}

API(cuDeviceGetDevResource, CUdevice, ordinal, CUdevResource *, resource, CUdevResourceType, type)
{
	struct device *device;
	struct sm_set all;

	TRY(device_of(ordinal, &device));
	all = sms_all(device->sms);
	return resource_get(resource, type, device, &all);
}

API(cuCtxGetDevResource, CUcontext, handle, CUdevResource *, resource, CUdevResourceType, type)
{
	struct context *context;

	TRY(context_of(handle, &context));
	return resource_get(resource, type, context->device, &context->sms);
}

static CUresult green_of(CUgreenCtx handle, struct green **green)
{
	*green = handle_get(handle, OBJECT_GREEN);
	return *green ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API(cuGreenCtxGetDevResource, CUgreenCtx, handle, CUdevResource *, resource, CUdevResourceType, type)
{
	struct green *green;

	TRY(green_of(handle, &green));
	return resource_get(resource, type, green->device, &green->sms);
}

/* Groups from the lowest SM up, each of a multiple of the alignment; the rest is what no group got. */
API(cuDevSmResourceSplitByCount, CUdevResource *, result, unsigned int *, groups, const CUdevResource *, input,
    CUdevResource *, remaining, unsigned int, flags, unsigned int, minimum)
{
	unsigned int align = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? 2 : SM_ALIGN;
	unsigned int size = minimum < align ? align : (minimum + align - 1) / align * align, count;
	struct opaque opaque;
	struct sm_set rest;

	TRY(resource_read(input, &opaque));
	if (!groups || flags & ~3u)
		return CUDA_ERROR_INVALID_VALUE;
	if (no_green())
		return CUDA_ERROR_NOT_SUPPORTED;
	count = sms_count(&opaque.sms) / size;
	if (!result) {
		*groups = count;
		return CUDA_SUCCESS;
	}
	if (*groups < count)
		count = *groups;
	if (!count)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	rest = opaque.sms;
	for (unsigned int i = 0; i < count; i++) {
		struct sm_set group = sms_first(&rest, size);

		rest = sms_without(&rest, &group);
		resource_fill(&result[i], &devices[opaque.ordinal], &group);
	}
	*groups = count;
	if (remaining) {
		resource_fill(remaining, &devices[opaque.ordinal], &rest);
		if (!remaining->sm.smCount)
			remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
	}
	return CUDA_SUCCESS;
}

API(cuDevResourceGenerateDesc, CUdevResourceDesc *, handle, CUdevResource *, resources, unsigned int, count)
{
	struct description *description;
	struct opaque opaque;

	if (!handle || !resources || count != 1)
		return count > 1 ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_ERROR_INVALID_VALUE;
	TRY(resource_read(resources, &opaque));
	description = xalloc(sizeof(*description));
	handle_add(description, OBJECT_DESCRIPTION);
	description->device = &devices[opaque.ordinal];
	description->sms = opaque.sms;
	*handle = (CUdevResourceDesc)description;
	return CUDA_SUCCESS;
}

API(cuGreenCtxCreate, CUgreenCtx *, handle, CUdevResourceDesc, desc, CUdevice, ordinal, unsigned int, flags)
{
	struct description *description = handle_get(desc, OBJECT_DESCRIPTION);
	const char *fail = getenv("FAKECUDA_GREEN_FAIL");
	static unsigned int made;
	struct context *primary;
	struct device *device;
	struct green *green;

	TRY(device_of(ordinal, &device));
	if (!description || description->device != device)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!handle || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (fail && ++made >= (unsigned int)atoi(fail))
		return CUDA_ERROR_OUT_OF_MEMORY;
	TRY(primary_of(device, &primary));
	primary->refs++;
	wait_all(NULL);
	take_time("FAKECUDA_GREEN_US");
	green = xalloc(sizeof(*green));
	handle_add(green, OBJECT_GREEN);
	green->device = device;
	green->sms = description->sms;
	green->context = context_new(device, device->primary, &green->sms);
	green->context->green = green;
	device->used += 5 << 20;
	*handle = (CUgreenCtx)green;
	return CUDA_SUCCESS;
}

API(cuGreenCtxDestroy, CUgreenCtx, handle)
{
	struct green *green;

	TRY(green_of(handle, &green));
	for (struct stream *stream = green->context->streams; stream; stream = stream->next) {
		if (stream->kind == STREAM_NORMAL && stream->last && stream->last->state != OP_DONE)
			violation("green context %u is destroyed while stream %u has work", green->object.id,
				  stream->object.id);
		handle_kill(stream);
	}
	handle_kill(green->context);
	handle_kill(green);
	green->device->used -= 5 << 20;
	return primary_release(green->device);
}

API(cuCtxFromGreenCtx, CUcontext *, handle, CUgreenCtx, from)
{
	struct green *green;

	TRY(green_of(from, &green));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (CUcontext)green->context;
	return CUDA_SUCCESS;
}

API(cuGreenCtxGetId, CUgreenCtx, handle, unsigned long long *, id)
{
	struct green *green;

	TRY(green_of(handle, &green));
	*id = green->context->object.id;
	return CUDA_SUCCESS;
}

API(cuGreenCtxStreamCreate, CUstream *, handle, CUgreenCtx, from, unsigned int, flags, int, priority)
{
	struct green *green;

	TRY(green_of(from, &green));
	if (!handle || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (CUstream)stream_new(green->context, flags, priority);
	return CUDA_SUCCESS;
}

/* A primary context stands for its green contexts too. */
static bool covers(const struct context *context, const struct context *other)
{
	return other == context || (context->primary && other->group == context);
}

static CUresult context_record(struct context *context, CUevent handle)
{
	struct event *event;
	struct op *op;

	TRY(event_of(handle, &event));
	if (event->context->group != context->group)
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(capture_forbid_in(context));
	op = op_new(context, WORK_EVENT_RECORD);
	op->actor = context->legacy->actor;
	for (struct context *other = contexts; other; other = other->next)
		for (struct stream *stream = other->streams; stream && covers(context, other); stream = stream->next)
			op_follow(op, stream->last);
	op_put(event->record);
	event->record = op_get(op);
	op_submit(op);
	return CUDA_SUCCESS;
}

static CUresult context_wait(struct context *context, CUevent handle)
{
	struct event *event;

	TRY(event_of(handle, &event));
	TRY(capture_forbid_in(context));
	for (struct context *other = contexts; other; other = other->next)
		for (struct stream *stream = other->streams; stream && event->record && covers(context, other); stream = stream->next) {
			struct op *op = op_new(other, WORK_EVENT_WAIT);

			op->stream = stream;
			op->actor = stream->actor;
			op_follow(op, stream->last);
			op_follow(op, event->record);
			op_put(stream->last);
			stream->last = op_get(op);
			op_submit(op);
		}
	return CUDA_SUCCESS;
}

API(cuGreenCtxRecordEvent, CUgreenCtx, handle, CUevent, event)
{
	struct green *green;

	TRY(green_of(handle, &green));
	return context_record(green->context, event);
}

API(cuGreenCtxWaitEvent, CUgreenCtx, handle, CUevent, event)
{
	struct green *green;

	TRY(green_of(handle, &green));
	return context_wait(green->context, event);
}

API(cuCtxRecordEvent, CUcontext, handle, CUevent, event)
{
	struct context *context;

	TRY(context_of(handle, &context));
	return context_record(context, event);
}

API(cuCtxWaitEvent, CUcontext, handle, CUevent, event)
{
	struct context *context;

	TRY(context_of(handle, &context));
	return context_wait(context, event);
}
