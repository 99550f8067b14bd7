// SPDX-License-Identifier: Apache-2.0
/* Virtual memory management: reserve, create, map, set access. Physical memory is a piece of the device's arena. */
#include <sys/mman.h>

#include "api.h"

#define GRANULARITY (2UL << 20)

struct physical {
	struct object object;
	struct device *device;
	CUmemAllocationProp prop;
	CUdeviceptr place;
	size_t size;
	unsigned int maps, refs;
};

struct reservation {
	CUdeviceptr base;
	size_t size;
	struct reservation *next;
};

static struct reservation *reservations;

API(cuMemGetAllocationGranularity, size_t *, granularity, const CUmemAllocationProp *, prop,
    CUmemAllocationGranularity_flags, option)
{
	struct device *device;

	if (!granularity || !prop || (unsigned int)option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(device_of(prop->location.id, &device));
	*granularity = GRANULARITY;
	return CUDA_SUCCESS;
}

API(cuMemCreate, CUmemGenericAllocationHandle *, handle, size_t, size, const CUmemAllocationProp *, prop,
    unsigned long long, flags)
{
	struct physical *physical;
	struct device *device;
	CUdeviceptr place;

	if (!handle || !prop || !size || size % GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->requestedHandleTypes)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(device_of(prop->location.id, &device));
	if (size > device->memory || device->used > device->memory - size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	place = arena_take(device, size);
	if (!place)
		return CUDA_ERROR_OUT_OF_MEMORY;
	device->used += size;
	physical = xalloc(sizeof(*physical));
	handle_add(physical, OBJECT_VMM);
	physical->device = device;
	physical->prop = *prop;
	physical->place = place;
	physical->size = size;
	physical->refs = 1;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

static CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **physical)
{
	*physical = handle_get((void *)(uintptr_t)handle, OBJECT_VMM);
	return *physical && (*physical)->refs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void physical_unused(struct physical *physical)
{
	if (physical->refs || physical->maps)
		return;
	arena_give(physical->device, physical->place, physical->size);
	physical->device->used -= physical->size;
	handle_kill(physical);
}

API(cuMemRelease, CUmemGenericAllocationHandle, handle)
{
	struct physical *physical;

	TRY(physical_of(handle, &physical));
	physical->refs--;
	physical_unused(physical);
	return CUDA_SUCCESS;
}

API(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp *, prop, CUmemGenericAllocationHandle, handle)
{
	struct physical *physical;

	TRY(physical_of(handle, &physical));
	*prop = physical->prop;
	return CUDA_SUCCESS;
}

static struct reservation *reservation_of(CUdeviceptr address, size_t size)
{
	struct reservation *r;

	for (r = reservations; r; r = r->next)
		if (address >= r->base && address + size <= r->base + r->size)
			return r;
	return NULL;
}

API(cuMemAddressReserve, CUdeviceptr *, address, size_t, size, size_t, alignment, CUdeviceptr, wish, unsigned long long,
    flags)
{
	struct reservation *r;
	char *base;

	(void)wish;
	if (!address || !size || size % GRANULARITY || flags || alignment & (alignment - 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < GRANULARITY)
		alignment = GRANULARITY;
	base = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = xalloc(sizeof(*r));
	r->base = ((CUdeviceptr)base + alignment - 1) & ~(alignment - 1);
	r->size = size;
	r->next = reservations;
	reservations = r;
	*address = r->base;
	return CUDA_SUCCESS;
}

API(cuMemAddressFree, CUdeviceptr, address, size_t, size)
{
	for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
		struct reservation *r = *at;

		if (r->base != address || r->size != size)
			continue;
		for (CUdeviceptr p = address; p < address + size; p += GRANULARITY)
			if (memory_find(p))
				return CUDA_ERROR_INVALID_VALUE;
		*at = r->next;
		munmap((void *)address, size);
		free(r);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

API(cuMemMap, CUdeviceptr, address, size_t, size, size_t, offset, CUmemGenericAllocationHandle, handle,
    unsigned long long, flags)
{
	struct physical *physical;
	struct context *context;
	struct memory *memory;
	off_t place;

	TRY(context_current(&context));
	TRY(physical_of(handle, &physical));
	if (flags || offset || size != physical->size || address % GRANULARITY || !reservation_of(address, size) ||
	    memory_find(address))
		return CUDA_ERROR_INVALID_VALUE;
	place = (off_t)(physical->place - (CUdeviceptr)physical->device->arena);
	if (mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		 physical->device->arena_fd, place) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory = memory_add(context, address, size, MEMORY_MAPPED);
	memory->device = physical->device;
	memory->physical = physical;
	memory->freed = true;		/* no access yet */
	physical->maps++;
	return CUDA_SUCCESS;
}

API(cuMemUnmap, CUdeviceptr, address, size_t, size)
{
	struct memory *memory = memory_find(address);
	struct physical *physical;

	if (!memory || memory->kind != MEMORY_MAPPED || memory->base != address || memory->size != size)
		return CUDA_ERROR_INVALID_VALUE;
	wait_all(NULL);
	physical = memory->physical;
	memory_remove(memory);
	mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	physical->maps--;
	physical_unused(physical);
	return CUDA_SUCCESS;
}

API(cuMemSetAccess, CUdeviceptr, address, size_t, size, const CUmemAccessDesc *, desc, size_t, count)
{
	CUdeviceptr end = address + size;

	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	while (address < end) {
		struct memory *memory = memory_find(address);

		if (!memory || memory->kind != MEMORY_MAPPED)
			return CUDA_ERROR_INVALID_VALUE;
		for (size_t i = 0; i < count; i++)
			if (desc[i].location.id == memory->device->ordinal)
				memory->freed = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
		address = memory->base + memory->size;
	}
	return CUDA_SUCCESS;
}

API(cuMemGetAccess, unsigned long long *, flags, const CUmemLocation *, location, CUdeviceptr, address)
{
	struct memory *memory = memory_find(address);

	if (!flags || !location || !memory || memory->kind != MEMORY_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = location->id == memory->device->ordinal && !memory->freed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
									     CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

API(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *, handle, void *, address)
{
	struct memory *memory = memory_find((CUdeviceptr)address);

	if (!handle || !memory || memory->kind != MEMORY_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	memory->physical->refs++;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)memory->physical;
	return CUDA_SUCCESS;
}
