// SPDX-License-Identifier: Apache-2.0
/* Memsets. A synchronous one of device memory does not make the host wait; of pinned host memory it does. */
#include "api.h"

static CUresult issue(const struct set_work *set, CUstream handle, bool per_thread, bool async)
{
	struct work work = { .type = WORK_SET, .set = *set };
	struct memory *memory = memory_find(set->dst);
	struct stream *stream;
	struct op *op;

	TRY(stream_of(handle, per_thread, &stream));
	if (!async) {
		if (stream->capture)
			return capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		TRY(check_capture_safe());
	}
	if (!set->width || !set->height)
		return CUDA_SUCCESS;
	if (!memory || memory->freed || set->dst % set->element)
		return CUDA_ERROR_INVALID_VALUE;
	work.set.context = stream->context;
	TRY(stream_issue(stream, &work, &op));
	if (op && !async && (memory->kind == MEMORY_HOST || memory->kind == MEMORY_REGISTERED))
		op_wait(op);
	return stream->context->group->sticky;
}

#define SET(bits, type) \
	SYNC(cuMemsetD##bits##_v2, CUdeviceptr, dst, type, value, size_t, n) \
	{ \
		struct set_work set = { .dst = dst, .value = value, .element = bits / 8, .width = n, .height = 1 }; \
		return issue(&set, NULL, per_thread, false); \
	} \
	STREAM(cuMemsetD##bits##Async, CUdeviceptr, dst, type, value, size_t, n, CUstream, stream) \
	{ \
		struct set_work set = { .dst = dst, .value = value, .element = bits / 8, .width = n, .height = 1 }; \
		return issue(&set, stream, per_thread, true); \
	} \
	SYNC(cuMemsetD2D##bits##_v2, CUdeviceptr, dst, size_t, pitch, type, value, size_t, width, size_t, height) \
	{ \
		struct set_work set = { dst, pitch, width, height, value, bits / 8, NULL }; \
		return issue(&set, NULL, per_thread, false); \
	} \
	STREAM(cuMemsetD2D##bits##Async, CUdeviceptr, dst, size_t, pitch, type, value, size_t, width, size_t, height, \
	       CUstream, stream) \
	{ \
		struct set_work set = { dst, pitch, width, height, value, bits / 8, NULL }; \
		return issue(&set, stream, per_thread, true); \
	}

SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned int)
