// SPDX-License-Identifier: Apache-2.0
/* Copies. Synchronous ones go through the legacy (or per-thread) stream; the host waits where its memory takes part. */
#include "api.h"

static bool device_side(CUdeviceptr address)
{
	struct memory *memory = memory_find(address);

	return memory && (!memory->freed || memory->kind == MEMORY_GRAPH);
}

static bool pageable(CUmemorytype type, CUdeviceptr address)
{
	return (type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_UNIFIED) && !memory_find(address);
}

static CUdeviceptr address_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
	return type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device;
}

CUresult copy_node_check(const CUDA_MEMCPY3D *how)
{
	if ((how->srcMemoryType != CU_MEMORYTYPE_HOST && how->srcMemoryType != CU_MEMORYTYPE_DEVICE &&
	     how->srcMemoryType != CU_MEMORYTYPE_UNIFIED) ||
	    (how->dstMemoryType != CU_MEMORYTYPE_HOST && how->dstMemoryType != CU_MEMORYTYPE_DEVICE &&
	     how->dstMemoryType != CU_MEMORYTYPE_UNIFIED))
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((how->srcMemoryType == CU_MEMORYTYPE_DEVICE && !device_side(how->srcDevice)) ||
	    (how->dstMemoryType == CU_MEMORYTYPE_DEVICE && !device_side(how->dstDevice)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Pageable sources are read before the call returns, as the driver's staging does. */
static void *stage(const CUDA_MEMCPY3D *how)
{
	size_t height = how->Height ? how->Height : 1, depth = how->Depth ? how->Depth : 1;
	size_t pitch = how->srcPitch ? how->srcPitch : how->srcXInBytes + how->WidthInBytes;
	size_t rows = how->srcHeight ? how->srcHeight : how->srcY + height;
	const char *from = (const char *)address_of(how->srcMemoryType, how->srcHost, how->srcDevice);
	char *buffer = xalloc(how->WidthInBytes * height * depth);

	for (size_t z = 0; z < depth; z++)
		for (size_t y = 0; y < height; y++)
			memcpy(buffer + (z * height + y) * how->WidthInBytes,
			       from + ((how->srcZ + z) * rows + how->srcY + y) * pitch + how->srcXInBytes,
			       how->WidthInBytes);
	return buffer;
}

static CUresult issue(const CUDA_MEMCPY3D *given, CUstream handle, bool per_thread, bool async)
{
	struct work work = { .type = WORK_COPY };
	CUDA_MEMCPY3D copy = *given, *how = &copy;
	CUdeviceptr from, to;
	struct stream *stream;
	struct op *op;
	bool wait;

	TRY(array_resolve(how));
	from = address_of(how->srcMemoryType, how->srcHost, how->srcDevice);
	to = address_of(how->dstMemoryType, how->dstHost, how->dstDevice);
	TRY(stream_of(handle, per_thread, &stream));
	if (!async) {
		if (stream->capture)
			return capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		TRY(check_capture_safe());
	}
	if (!how->WidthInBytes)
		return CUDA_SUCCESS;
	TRY(copy_node_check(how));
	work.copy.how = *how;
	work.copy.context = stream->context;
	if (pageable(how->srcMemoryType, from) && !stream->capture)
		work.copy.staged = stage(how);
	wait = pageable(how->dstMemoryType, to) ||
	       (!async && !(memory_find(from) && memory_find(to) && memory_find(from)->kind != MEMORY_HOST &&
			    memory_find(to)->kind != MEMORY_HOST && memory_find(from)->kind != MEMORY_REGISTERED &&
			    memory_find(to)->kind != MEMORY_REGISTERED));
	TRY(stream_issue(stream, &work, &op));
	if (wait && op)
		op_wait(op);
	return stream->context->group->sticky;
}

static CUDA_MEMCPY3D flat(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type, CUdeviceptr from, size_t size)
{
	CUDA_MEMCPY3D how = { .srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = size, .Height = 1,
			      .Depth = 1 };

	if (from_type == CU_MEMORYTYPE_HOST)
		how.srcHost = (const void *)from;
	else
		how.srcDevice = from;
	if (to_type == CU_MEMORYTYPE_HOST)
		how.dstHost = (void *)to;
	else
		how.dstDevice = to;
	return how;
}

#define HOST CU_MEMORYTYPE_HOST
#define DEVICE CU_MEMORYTYPE_DEVICE
#define UNIFIED CU_MEMORYTYPE_UNIFIED

#define FLAT(name, to_kind, to_type, from_kind, from_type) \
	SYNC(name, to_type, to, from_type, from, size_t, size) \
	{ \
		CUDA_MEMCPY3D how = flat(to_kind, (CUdeviceptr)to, from_kind, (CUdeviceptr)from, size); \
		return issue(&how, NULL, per_thread, false); \
	}

#define FLAT_ASYNC(name, to_kind, to_type, from_kind, from_type) \
	STREAM(name, to_type, to, from_type, from, size_t, size, CUstream, stream) \
	{ \
		CUDA_MEMCPY3D how = flat(to_kind, (CUdeviceptr)to, from_kind, (CUdeviceptr)from, size); \
		return issue(&how, stream, per_thread, true); \
	}

FLAT(cuMemcpy, UNIFIED, CUdeviceptr, UNIFIED, CUdeviceptr)
FLAT(cuMemcpyHtoD_v2, DEVICE, CUdeviceptr, HOST, const void *)
FLAT(cuMemcpyDtoH_v2, HOST, void *, DEVICE, CUdeviceptr)
FLAT(cuMemcpyDtoD_v2, DEVICE, CUdeviceptr, DEVICE, CUdeviceptr)
FLAT_ASYNC(cuMemcpyAsync, UNIFIED, CUdeviceptr, UNIFIED, CUdeviceptr)
FLAT_ASYNC(cuMemcpyHtoDAsync_v2, DEVICE, CUdeviceptr, HOST, const void *)
FLAT_ASYNC(cuMemcpyDtoHAsync_v2, HOST, void *, DEVICE, CUdeviceptr)
FLAT_ASYNC(cuMemcpyDtoDAsync_v2, DEVICE, CUdeviceptr, DEVICE, CUdeviceptr)

SYNC(cuMemcpyPeer, CUdeviceptr, to, CUcontext, to_context, CUdeviceptr, from, CUcontext, from_context, size_t, size)
{
	CUDA_MEMCPY3D how = flat(DEVICE, to, DEVICE, from, size);
	struct context *context;

	TRY(context_of(to_context, &context));
	TRY(context_of(from_context, &context));
	return issue(&how, NULL, per_thread, false);
}

STREAM(cuMemcpyPeerAsync, CUdeviceptr, to, CUcontext, to_context, CUdeviceptr, from, CUcontext, from_context, size_t,
       size, CUstream, stream)
{
	CUDA_MEMCPY3D how = flat(DEVICE, to, DEVICE, from, size);
	struct context *context;

	TRY(context_of(to_context, &context));
	TRY(context_of(from_context, &context));
	return issue(&how, stream, per_thread, true);
}

#define ARRAY CU_MEMORYTYPE_ARRAY

/* A run of bytes with an array on one side or both. */
static CUDA_MEMCPY3D with_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset, CUDA_MEMCPY3D how)
{
	if (to) {
		how.dstMemoryType = ARRAY;
		how.dstArray = to;
		how.dstXInBytes = to_offset;
	}
	if (from) {
		how.srcMemoryType = ARRAY;
		how.srcArray = from;
		how.srcXInBytes = from_offset;
	}
	return how;
}

SYNC(cuMemcpyDtoA_v2, CUarray, to, size_t, offset, CUdeviceptr, from, size_t, size)
{
	CUDA_MEMCPY3D how = with_array(to, offset, NULL, 0, flat(DEVICE, 0, DEVICE, from, size));

	return issue(&how, NULL, per_thread, false);
}

SYNC(cuMemcpyAtoD_v2, CUdeviceptr, to, CUarray, from, size_t, offset, size_t, size)
{
	CUDA_MEMCPY3D how = with_array(NULL, 0, from, offset, flat(DEVICE, to, DEVICE, 0, size));

	return issue(&how, NULL, per_thread, false);
}

SYNC(cuMemcpyHtoA_v2, CUarray, to, size_t, offset, const void *, from, size_t, size)
{
	CUDA_MEMCPY3D how = with_array(to, offset, NULL, 0, flat(DEVICE, 0, HOST, (CUdeviceptr)from, size));

	return issue(&how, NULL, per_thread, false);
}

SYNC(cuMemcpyAtoH_v2, void *, to, CUarray, from, size_t, offset, size_t, size)
{
	CUDA_MEMCPY3D how = with_array(NULL, 0, from, offset, flat(HOST, (CUdeviceptr)to, DEVICE, 0, size));

	return issue(&how, NULL, per_thread, false);
}

SYNC(cuMemcpyAtoA_v2, CUarray, to, size_t, to_offset, CUarray, from, size_t, from_offset, size_t, size)
{
	CUDA_MEMCPY3D how = with_array(to, to_offset, from, from_offset, flat(DEVICE, 0, DEVICE, 0, size));

	return issue(&how, NULL, per_thread, false);
}

STREAM(cuMemcpyHtoAAsync_v2, CUarray, to, size_t, offset, const void *, from, size_t, size, CUstream, stream)
{
	CUDA_MEMCPY3D how = with_array(to, offset, NULL, 0, flat(DEVICE, 0, HOST, (CUdeviceptr)from, size));

	return issue(&how, stream, per_thread, true);
}

STREAM(cuMemcpyAtoHAsync_v2, void *, to, CUarray, from, size_t, offset, size_t, size, CUstream, stream)
{
	CUDA_MEMCPY3D how = with_array(NULL, 0, from, offset, flat(HOST, (CUdeviceptr)to, DEVICE, 0, size));

	return issue(&how, stream, per_thread, true);
}

static CUDA_MEMCPY3D solid(const CUDA_MEMCPY2D *two)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = two->srcXInBytes, .srcY = two->srcY, .srcMemoryType = two->srcMemoryType,
		.srcHost = two->srcHost, .srcDevice = two->srcDevice, .srcArray = two->srcArray, .srcPitch = two->srcPitch,
		.dstXInBytes = two->dstXInBytes, .dstY = two->dstY, .dstMemoryType = two->dstMemoryType,
		.dstHost = two->dstHost, .dstDevice = two->dstDevice, .dstArray = two->dstArray, .dstPitch = two->dstPitch,
		.WidthInBytes = two->WidthInBytes, .Height = two->Height, .Depth = 1,
	};
}

#define TWO(name) \
	SYNC(name, const CUDA_MEMCPY2D *, two) \
	{ \
		CUDA_MEMCPY3D how; \
		if (!two) \
			return CUDA_ERROR_INVALID_VALUE; \
		how = solid(two); \
		return issue(&how, NULL, per_thread, false); \
	}

TWO(cuMemcpy2D_v2)
TWO(cuMemcpy2DUnaligned_v2)

STREAM(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D *, two, CUstream, stream)
{
	CUDA_MEMCPY3D how;

	if (!two)
		return CUDA_ERROR_INVALID_VALUE;
	how = solid(two);
	return issue(&how, stream, per_thread, true);
}

SYNC(cuMemcpy3D_v2, const CUDA_MEMCPY3D *, how)
{
	return how ? issue(how, NULL, per_thread, false) : CUDA_ERROR_INVALID_VALUE;
}

STREAM(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D *, how, CUstream, stream)
{
	return how ? issue(how, stream, per_thread, true) : CUDA_ERROR_INVALID_VALUE;
}

static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *peer)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = peer->srcXInBytes, .srcY = peer->srcY, .srcZ = peer->srcZ,
		.srcMemoryType = peer->srcMemoryType, .srcHost = peer->srcHost, .srcDevice = peer->srcDevice,
		.srcPitch = peer->srcPitch, .srcHeight = peer->srcHeight,
		.dstXInBytes = peer->dstXInBytes, .dstY = peer->dstY, .dstZ = peer->dstZ,
		.dstMemoryType = peer->dstMemoryType, .dstHost = peer->dstHost, .dstDevice = peer->dstDevice,
		.dstPitch = peer->dstPitch, .dstHeight = peer->dstHeight,
		.WidthInBytes = peer->WidthInBytes, .Height = peer->Height, .Depth = peer->Depth,
	};
}

SYNC(cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER *, peer)
{
	CUDA_MEMCPY3D how;

	if (!peer)
		return CUDA_ERROR_INVALID_VALUE;
	how = from_peer(peer);
	return issue(&how, NULL, per_thread, false);
}

STREAM(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER *, peer, CUstream, stream)
{
	CUDA_MEMCPY3D how;

	if (!peer)
		return CUDA_ERROR_INVALID_VALUE;
	how = from_peer(peer);
	return issue(&how, stream, per_thread, true);
}

STREAM(cuMemcpyBatchAsync_v2, CUdeviceptr *, to, CUdeviceptr *, from, size_t *, sizes, size_t, count,
       CUmemcpyAttributes *, attributes, size_t *, indices, size_t, attribute_count, CUstream, stream)
{
	(void)attributes;
	(void)indices;
	(void)attribute_count;
	if (!to || !from || !sizes || stream == NULL || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUDA_MEMCPY3D how = flat(UNIFIED, to[i], UNIFIED, from[i], sizes[i]);

		TRY(issue(&how, stream, per_thread, true));
	}
	return CUDA_SUCCESS;
}

STREAM(cuMemcpyBatchAsync, CUdeviceptr *, to, CUdeviceptr *, from, size_t *, sizes, size_t, count, CUmemcpyAttributes *,
       attributes, size_t *, indices, size_t, attribute_count, size_t *, failed, CUstream, stream)
{
	CUresult result = do_cuMemcpyBatchAsync_v2(per_thread, to, from, sizes, count, attributes, indices,
						   attribute_count, stream);

	if (result && failed)
		*failed = SIZE_MAX;
	return result;
}
