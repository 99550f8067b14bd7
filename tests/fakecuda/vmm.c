// SPDX-License-Identifier: Apache-2.0
/*
 * Virtual memory management: reserve, create, map, set access, export. Physical memory is a piece of the device's arena, or a memory file of
 * its own where another process may get it or where it lies in the host's memory. What no recording confirms stands in README.md.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

#define GRANULARITY (2UL << 20)
#define FILE_NAME "fakecuda-vmm"
#define NODES 1

struct physical {
	struct object object;
	struct device *device;		/* NULL: host memory */
	CUmemAllocationProp prop;
	CUdeviceptr place;		/* in the device's arena; 0: in a file of its own */
	int fd;				/* where that lies */
	size_t size;
	unsigned int maps, refs;
};

struct reservation {
	CUdeviceptr base;
	size_t size;
	struct reservation *next;
};

static struct reservation *reservations;
static unsigned int hosts;	/* handles of host memory */
static unsigned int imports;	/* handles of another process's memory */

static bool on_host(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* What can be made at all; *device is NULL for host memory. */
static CUresult prop_check(const CUmemAllocationProp *prop, struct device **device)
{
	const char *can = getenv("FAKECUDA_VMM");

	*device = NULL;
	if (can && !strcmp(can, "0"))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || prop->win32HandleMetaData ||
	    prop->allocFlags.compressionType || prop->allocFlags.usage)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (on_host(&prop->location) && (can = getenv("FAKECUDA_NUMA")) && !strcmp(can, "0"))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (on_host(&prop->location))
		return prop->location.id >= 0 && prop->location.id < NODES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	return device_of(prop->location.id, device);
}

API(cuMemGetAllocationGranularity, size_t *, granularity, const CUmemAllocationProp *, prop,
    CUmemAllocationGranularity_flags, option)
{
	struct device *device;

	if (!granularity || !prop || (unsigned int)option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(prop_check(prop, &device));
	*granularity = GRANULARITY;
	return CUDA_SUCCESS;
}

static bool imported(const struct physical *physical)
{
	return !physical->device && !on_host(&physical->prop.location);
}

bool vmm_imported(void)
{
	return imports;
}

bool vmm_on_host(void)
{
	return hosts;
}

static CUresult physical_add(CUmemGenericAllocationHandle *handle, const struct physical *how)
{
	struct physical *physical = xalloc(sizeof(*physical));

	*physical = *how;
	handle_add(physical, OBJECT_VMM);
	imports += imported(physical);
	hosts += on_host(&physical->prop.location);
	physical->refs = 1;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

API(cuMemCreate, CUmemGenericAllocationHandle *, handle, size_t, size, const CUmemAllocationProp *, prop,
    unsigned long long, flags)
{
	struct physical physical = { .size = size, .fd = -1 };
	char name[64];

	if (!handle || !prop || !size || size % GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(prop_check(prop, &physical.device));
	if (physical.device ? !memory_take(physical.device, size) : refuses())
		return CUDA_ERROR_OUT_OF_MEMORY;
	physical.prop = *prop;
	if (physical.device && !prop->requestedHandleTypes) {
		physical.place = arena_take(physical.device, size);
		physical.fd = physical.device->arena_fd;
		if (!physical.place) {
			memory_give(physical.device, size);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	} else {
		snprintf(name, sizeof(name), "%s:%d:%d:", FILE_NAME, prop->location.type, prop->location.id);
		physical.fd = memfd_create(name, MFD_CLOEXEC);
		if (physical.fd < 0 || ftruncate(physical.fd, (off_t)size)) {
			if (physical.fd >= 0)
				close(physical.fd);
			if (physical.device)
				memory_give(physical.device, size);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	return physical_add(handle, &physical);
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
	imports -= imported(physical);
	hosts -= on_host(&physical->prop.location);
	if (physical->place)
		arena_give(physical->device, physical->place, physical->size);
	else
		close(physical->fd);
	if (physical->device)
		memory_give(physical->device, physical->size);
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

API(cuMemExportToShareableHandle, void *, shareable, CUmemGenericAllocationHandle, handle, CUmemAllocationHandleType, type,
    unsigned long long, flags)
{
	struct physical *physical;
	int fd;

	TRY(physical_of(handle, &physical));
	if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    physical->prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	memcpy(shareable, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}

/* The descriptor stays the caller's. Whose memory it is counts for the process that made it. */
API(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *, handle, void *, shareable, CUmemAllocationHandleType, type)
{
	struct physical physical = { .prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					       .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } };
	char path[64], target[128] = "";
	unsigned int where;
	struct stat stat;
	int fd = (int)(intptr_t)shareable;

	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0 || fstat(fd, &stat) ||
	    sscanf(target, "/memfd:" FILE_NAME ":%u:%d:", &where, &physical.prop.location.id) != 2)
		return CUDA_ERROR_INVALID_VALUE;
	physical.prop.location.type = where;
	TRY(prop_check(&physical.prop, &physical.device));
	physical.device = NULL;		/* paid for by who made it */
	physical.size = (size_t)stat.st_size;
	physical.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (physical.fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return physical_add(handle, &physical);
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
	if (refuses())
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (alignment < GRANULARITY)
		alignment = GRANULARITY;
	base = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = xalloc(sizeof(*r));
	r->base = ((CUdeviceptr)base + alignment - 1) & ~(alignment - 1);
	r->size = size;
	/* what alignment cost is given back: a process may have so many mappings only */
	if (r->base > (CUdeviceptr)base)
		munmap(base, r->base - (CUdeviceptr)base);
	munmap((void *)(r->base + size), (CUdeviceptr)base + alignment - r->base);
	r->next = reservations;
	reservations = r;
	*address = r->base;
	return CUDA_SUCCESS;
}

/* Nothing is mapped anywhere in the range. */
static bool vacant(CUdeviceptr address, size_t size)
{
	for (CUdeviceptr p = address; p < address + size; p += GRANULARITY)
		if (memory_find(p))
			return false;
	return true;
}

/* Where reservations do not outlive a checkpoint. */
void vmm_forget_empty(void)
{
	for (struct reservation **at = &reservations; *at;) {
		struct reservation *r = *at;

		if (!vacant(r->base, r->size)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		munmap((void *)r->base, r->size);
		free(r);
	}
}

API(cuMemAddressFree, CUdeviceptr, address, size_t, size)
{
	for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
		struct reservation *r = *at;

		if (r->base != address || r->size != size)
			continue;
		if (!vacant(address, size))
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
	off_t place = 0;

	TRY(context_current(&context));
	TRY(physical_of(handle, &physical));
	/* measured: a handle is mapped whole */
	if (flags || offset || size != physical->size || address % GRANULARITY || !reservation_of(address, size) ||
	    !vacant(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (refuses())
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (physical->place)
		place = (off_t)(physical->place - (CUdeviceptr)physical->device->arena);
	if (mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->fd, place) ==
	    MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory = memory_add(context, address, size, MEMORY_MAPPED);
	if (!on_host(&physical->prop.location))
		TRY(device_of(physical->prop.location.id, &memory->device));
	memory->on_host = on_host(&physical->prop.location);
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
	physical = memory->physical;
	memory_remove(memory);
	mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	physical->maps--;
	physical_unused(physical);
	return CUDA_SUCCESS;
}

static CUresult access_check(const CUmemAccessDesc *desc)
{
	struct device *device;

	/* the host's own processors reach host memory alone, and nothing here asks for it */
	if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
								   desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
								   desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
		return CUDA_ERROR_INVALID_VALUE;
	return device_of(desc->location.id, &device);
}

API(cuMemSetAccess, CUdeviceptr, address, size_t, size, const CUmemAccessDesc *, desc, size_t, count)
{
	CUdeviceptr end = address + size, at;

	if (!desc || !count || !size)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		TRY(access_check(&desc[i]));
	/* whole mappings, one behind the other; nothing is changed if one is missing */
	for (at = address; at < end;) {
		struct memory *memory = memory_find(at);

		if (!memory || memory->kind != MEMORY_MAPPED || memory->base != at || at + memory->size > end)
			return CUDA_ERROR_INVALID_VALUE;
		at += memory->size;
	}
	if (refuses())
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (at = address; at < end;) {
		struct memory *memory = memory_find(at);

		for (size_t i = 0; i < count; i++) {
			memory->reached &= ~(1U << desc[i].location.id);
			if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
				memory->reached |= 1U << desc[i].location.id;
		}
		memory->freed = !memory->reached;
		at += memory->size;
	}
	return CUDA_SUCCESS;
}

API(cuMemGetAccess, unsigned long long *, flags, const CUmemLocation *, location, CUdeviceptr, address)
{
	struct memory *memory = memory_find(address);

	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id < 0 ||
	    location->id >= MAX_DEVICES || !memory || memory->kind != MEMORY_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = memory->reached >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
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
