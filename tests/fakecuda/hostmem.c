// SPDX-License-Identifier: Apache-2.0
/* Host memory that the device may use: allocated pinned, or registered. What can be asked about pointers. */
#include <stdio.h>
#include <unistd.h>

#include "api.h"

static CUresult host_new(void **address, size_t size, unsigned int flags)
{
	struct context *context;
	struct memory *memory;
	void *base;

	TRY(context_current(&context));
	if (!address || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	if (!size || posix_memalign(&base, 4096, size))
		return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	memset(base, 0, size);
	memory = memory_add(context, (CUdeviceptr)base, size, MEMORY_HOST);
	memory->flags = flags;
	*address = base;
	return CUDA_SUCCESS;
}

API(cuMemHostAlloc, void **, address, size_t, size, unsigned int, flags)
{
	return host_new(address, size, flags);
}

API(cuMemAllocHost_v2, void **, address, size_t, size)
{
	return host_new(address, size, 0);
}

API(cuMemFreeHost, void *, address)
{
	struct memory *memory = memory_find((CUdeviceptr)address);
	struct context *context;

	TRY(context_current(&context));
	if (!memory || memory->kind != MEMORY_HOST || memory->base != (CUdeviceptr)address)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	wait_all(NULL);
	memory_remove(memory);
	free(address);
	return CUDA_SUCCESS;
}

/* Whether every page of the range is mapped, and whether all may be written. */
static bool mapped(CUdeviceptr low, CUdeviceptr high, bool *writable)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char mode[8], line[512];

	*writable = true;
	while (maps && low < high && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || to <= low)
			continue;
		if (from > low || mode[0] != 'r')
			break;
		if (mode[1] != 'w')
			*writable = false;
		low = to;
	}
	if (maps)
		fclose(maps);
	return low >= high;
}

API(cuMemHostRegister_v2, void *, address, size_t, size, unsigned int, flags)
{
	struct context *context;
	struct memory *memory;
	CUdeviceptr base = (CUdeviceptr)address;
	bool writable;

	TRY(context_current(&context));
	if (!address || !size || flags & ~15u)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	memory = memory_find(base);
	if (!memory)
		memory = memory_find(base + size - 1);
	if (memory)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!mapped(base, base + size, &writable))
		return CUDA_ERROR_INVALID_VALUE;
	/* measured: 712 for a read-only mapping without the flag */
	if (!writable && !(flags & CU_MEMHOSTREGISTER_READ_ONLY))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (refuses())
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory = memory_add(context, base, size, MEMORY_REGISTERED);
	memory->flags = flags;
	take_time("FAKECUDA_REGISTER_US");
	return CUDA_SUCCESS;
}

SAME(cuMemHostRegister, cuMemHostRegister_v2, void *, address, size_t, size, unsigned int, flags)

API(cuMemHostUnregister, void *, address)
{
	struct memory *memory = memory_find((CUdeviceptr)address);
	struct context *context;

	TRY(context_current(&context));
	if (!memory || memory->kind != MEMORY_REGISTERED || memory->base != (CUdeviceptr)address)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	TRY(check_capture_safe());
	wait_all(NULL);
	memory_remove(memory);
	return CUDA_SUCCESS;
}

API(cuMemHostGetDevicePointer_v2, CUdeviceptr *, device, void *, address, unsigned int, flags)
{
	struct memory *memory = memory_find((CUdeviceptr)address);

	if (!device || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory || (memory->kind != MEMORY_HOST && memory->kind != MEMORY_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*device = (CUdeviceptr)address;
	return CUDA_SUCCESS;
}

API(cuMemHostGetFlags, unsigned int *, flags, void *, address)
{
	struct memory *memory = memory_find((CUdeviceptr)address);

	if (!memory || memory->kind != MEMORY_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = memory->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

static bool on_host(const struct memory *memory)
{
	return memory->kind == MEMORY_HOST || memory->kind == MEMORY_REGISTERED || memory->on_host;
}

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct memory *memory = memory_find(address);

	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = memory->kind == MEMORY_POOL || memory->kind == MEMORY_MAPPED ? NULL :
				     (CUcontext)memory->context;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = on_host(memory) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = address;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!on_host(memory) && memory->kind != MEMORY_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)address;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = memory->id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = memory->kind == MEMORY_MANAGED;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = memory->device->ordinal;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)data = memory->kind == MEMORY_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = memory->base;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = memory->size;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = 1;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = memory->sync_memops;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = (CUmemoryPool)memory->pool;
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned int *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		break;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

API(cuPointerGetAttribute, void *, data, CUpointer_attribute, attribute, CUdeviceptr, address)
{
	return data ? pointer_attribute(data, attribute, address) : CUDA_ERROR_INVALID_VALUE;
}

API(cuPointerGetAttributes, unsigned int, count, CUpointer_attribute *, attributes, void **, data, CUdeviceptr, address)
{
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		if (pointer_attribute(data[i], attributes[i], address) == CUDA_SUCCESS)
			continue;
		/* an unknown pointer answers zeros here */
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
			 attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
			 attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED)
			*(unsigned int *)data[i] = 0;
		else
			*(void **)data[i] = NULL;
	}
	return CUDA_SUCCESS;
}

API(cuPointerSetAttribute, const void *, value, CUpointer_attribute, attribute, CUdeviceptr, address)
{
	struct memory *memory = memory_find(address);

	if (!memory || !value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	memory->sync_memops = *(const unsigned int *)value != 0;
	return CUDA_SUCCESS;
}
