// SPDX-License-Identifier: Apache-2.0
/*
 * The stream-ordered allocator. Memory exists from the call on; a free takes effect when the stream gets there, and the
 * memory may then be handed out again in stream order (same stream) or once the free is done (others).
 */
#include "api.h"

void pool_start(struct device *device)
{
	struct pool *pool = xalloc(sizeof(*pool));

	handle_add(pool, OBJECT_POOL);
	pool->device = device;
	pool->implicit = true;
	for (size_t i = 0; i < ARRAY_LENGTH(pool->reuse); i++)
		pool->reuse[i] = 1;
	device->default_pool = pool;
	device->pool = pool;
}

CUresult pool_take(struct pool *pool, struct context *context, size_t size, struct memory **memory)
{
	TRY(memory_new(context, size, MEMORY_POOL, memory));
	(*memory)->pool = pool;
	pool->used += size;
	pool->reserved += size;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	return CUDA_SUCCESS;
}

void pool_give(struct memory *memory)
{
	memory->pool->used -= memory->size;
	memory->pool->reserved -= memory->size;
	arena_give(memory->device, memory->base, memory->size);
	memory_remove(memory);
}

static CUresult pool_of(CUmemoryPool handle, struct pool **pool)
{
	*pool = handle_get(handle, OBJECT_POOL);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult alloc_async(CUdeviceptr *address, size_t size, struct pool *pool, CUstream handle, bool per_thread)
{
	struct work work = { .type = WORK_ALLOC };
	struct stream *stream;
	struct memory *memory;

	TRY(stream_of(handle, per_thread, &stream));
	if (!address || !size)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(pool_take(pool ? pool : stream->context->device->pool, stream->context, size, &memory));
	work.alloc.params.bytesize = size;
	work.alloc.params.dptr = memory->base;
	work.alloc.params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	work.alloc.params.poolProps.location.id = stream->context->device->ordinal;
	work.alloc.params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	work.alloc.id = memory->id;
	if (stream->capture)
		memory->kind = MEMORY_GRAPH;
	*address = memory->base;
	return stream_issue(stream, &work, NULL);
}

STREAM(cuMemAllocAsync, CUdeviceptr *, address, size_t, size, CUstream, stream)
{
	return alloc_async(address, size, NULL, stream, per_thread);
}

STREAM(cuMemAllocFromPoolAsync, CUdeviceptr *, address, size_t, size, CUmemoryPool, handle, CUstream, stream)
{
	struct pool *pool;

	TRY(pool_of(handle, &pool));
	return alloc_async(address, size, pool, stream, per_thread);
}

STREAM(cuMemFreeAsync, CUdeviceptr, address, CUstream, handle)
{
	struct memory *memory = memory_find(address);
	struct work work = { .type = WORK_FREE };
	struct stream *stream;
	struct op *op;

	TRY(stream_of(handle, per_thread, &stream));
	if (!address)
		return CUDA_SUCCESS;
	if (!memory || memory->base != address || memory->freed ||
	    (memory->kind != MEMORY_POOL && memory->kind != MEMORY_GRAPH && memory->kind != MEMORY_DEVICE))
		return CUDA_ERROR_INVALID_VALUE;
	work.free.address = address;
	if (stream->capture)
		return stream_issue(stream, &work, NULL);
	if (memory->kind != MEMORY_POOL) {
		/* plain and graph memory goes at once when the stream gets there; the pool's books do not know it */
		memory->pool = memory->device->default_pool;
		memory->pool->used += memory->size;
		memory->pool->reserved += memory->size;
	}
	work.free.memory = memory;
	return stream_issue(stream, &work, &op);
}

API(cuMemPoolCreate, CUmemoryPool *, handle, const CUmemPoolProps *, props)
{
	struct device *device;
	struct pool *pool;

	if (!handle || !props)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(device_of(props->location.id, &device));
	pool = xalloc(sizeof(*pool));
	handle_add(pool, OBJECT_POOL);
	pool->device = device;
	*handle = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

API(cuMemPoolDestroy, CUmemoryPool, handle)
{
	struct pool *pool;

	TRY(pool_of(handle, &pool));
	if (pool->implicit)
		return CUDA_ERROR_INVALID_VALUE;
	if (pool->device->pool == pool)
		pool->device->pool = pool->device->default_pool;
	handle_kill(pool);
	return CUDA_SUCCESS;
}

API(cuMemPoolTrimTo, CUmemoryPool, handle, size_t, keep)
{
	struct pool *pool;

	(void)keep;
	return pool_of(handle, &pool);
}

API(cuMemPoolSetAttribute, CUmemoryPool, handle, CUmemPool_attribute, attribute, void *, value)
{
	struct pool *pool;

	TRY(pool_of(handle, &pool));
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		pool->reserved_high = pool->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		pool->used_high = pool->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API(cuMemPoolGetAttribute, CUmemoryPool, handle, CUmemPool_attribute, attribute, void *, value)
{
	struct pool *pool;

	TRY(pool_of(handle, &pool));
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = pool->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = pool->reserved_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = pool->used_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API(cuMemPoolSetAccess, CUmemoryPool, handle, const CUmemAccessDesc *, map, size_t, count)
{
	struct pool *pool;

	TRY(pool_of(handle, &pool));
	return map || !count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemPoolGetAccess, CUmemAccess_flags *, flags, CUmemoryPool, handle, CUmemLocation *, location)
{
	struct pool *pool;

	TRY(pool_of(handle, &pool));
	*flags = location->id == pool->device->ordinal ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

API(cuDeviceGetDefaultMemPool, CUmemoryPool *, handle, CUdevice, ordinal)
{
	struct device *device;

	TRY(device_of(ordinal, &device));
	*handle = (CUmemoryPool)device->default_pool;
	return CUDA_SUCCESS;
}

API(cuDeviceGetMemPool, CUmemoryPool *, handle, CUdevice, ordinal)
{
	struct device *device;

	TRY(device_of(ordinal, &device));
	*handle = (CUmemoryPool)device->pool;
	return CUDA_SUCCESS;
}

API(cuDeviceSetMemPool, CUdevice, ordinal, CUmemoryPool, handle)
{
	struct device *device;
	struct pool *pool;

	TRY(device_of(ordinal, &device));
	TRY(pool_of(handle, &pool));
	device->pool = pool;
	return CUDA_SUCCESS;
}
