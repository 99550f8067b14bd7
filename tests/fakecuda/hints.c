// SPDX-License-Identifier: Apache-2.0
/* Calls that change nothing that a program can compute: advice, prefetch, profiler, cache settings, graph memory. */
#include "api.h"

static CUresult prefetch(CUdeviceptr address, size_t size, CUstream handle, bool per_thread)
{
	struct work work = { .type = WORK_EMPTY };
	struct memory *memory = memory_find(address);
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (!memory || memory->kind != MEMORY_MANAGED || address + size > memory->base + memory->size)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_issue(stream, &work, NULL);
}

STREAM(cuMemPrefetchAsync, CUdeviceptr, address, size_t, size, CUdevice, to, CUstream, stream)
{
	(void)to;
	return prefetch(address, size, stream, per_thread);
}

STREAM(cuMemPrefetchAsync_v2, CUdeviceptr, address, size_t, size, CUmemLocation, to, unsigned int, flags, CUstream,
       stream)
{
	(void)to;
	return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, size, stream, per_thread);
}

static CUresult advise(CUdeviceptr address)
{
	struct memory *memory = memory_find(address);

	return memory && memory->kind == MEMORY_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuMemAdvise, CUdeviceptr, address, size_t, size, CUmem_advise, advice, CUdevice, ordinal)
{
	(void)size;
	(void)advice;
	(void)ordinal;
	return advise(address);
}

API(cuMemAdvise_v2, CUdeviceptr, address, size_t, size, CUmem_advise, advice, CUmemLocation, location)
{
	(void)size;
	(void)advice;
	(void)location;
	return advise(address);
}

EXPORT CUresult cuProfilerStart(void)
{
	return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuProfilerStop(void)
{
	return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
	return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

API(cuDeviceGetGraphMemAttribute, CUdevice, ordinal, CUgraphMem_attribute, attribute, void *, value)
{
	struct device *device;

	(void)attribute;
	TRY(device_of(ordinal, &device));
	*(cuuint64_t *)value = device->graph_memory;
	return CUDA_SUCCESS;
}

API(cuDeviceSetGraphMemAttribute, CUdevice, ordinal, CUgraphMem_attribute, attribute, void *, value)
{
	struct device *device;

	(void)attribute;
	TRY(device_of(ordinal, &device));
	return *(cuuint64_t *)value ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API(cuDeviceGraphMemTrim, CUdevice, ordinal)
{
	struct device *device;

	return device_of(ordinal, &device);
}
