// SPDX-License-Identifier: Apache-2.0
/* Ranges of memory: one arena per device (a memory file, so that another process can map it), and known host ranges. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

#define ARENA_ALIGN 512UL
#define BIG_ALIGN (2UL << 20)

struct hole {
	CUdeviceptr base;
	size_t size;
	struct hole *next;
};

static struct memory **ranges;
static size_t count, room;
static unsigned long long next_id;

/* Twice the memory: addresses may fragment, the size is what counts. */
void arena_start(struct device *device)
{
	size_t size = 2 * device->memory;
	struct hole *hole = xalloc(sizeof(*hole));
	char *arena;

	device->arena_fd = memfd_create("fakecuda", MFD_CLOEXEC);
	if (device->arena_fd < 0 || ftruncate(device->arena_fd, (off_t)size)) {
		perror("fakecuda: device memory");
		abort();
	}
	arena = mmap(NULL, size + BIG_ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena != MAP_FAILED) {
		arena = (char *)(((uintptr_t)arena + BIG_ALIGN - 1) & ~(BIG_ALIGN - 1));
		arena = mmap(arena, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
			     device->arena_fd, 0);
	}
	if (arena == MAP_FAILED) {
		perror("fakecuda: device memory");
		abort();
	}
	device->arena = arena;
	hole->base = (CUdeviceptr)arena;
	hole->size = size;
	device->holes = hole;
}

/* Lowest address that fits; 0 if none. */
CUdeviceptr arena_take(struct device *device, size_t size)
{
	size_t align = size >= BIG_ALIGN ? BIG_ALIGN : ARENA_ALIGN;

	size = (size + align - 1) & ~(align - 1);
	for (struct hole **at = &device->holes; *at; at = &(*at)->next) {
		struct hole *hole = *at;
		CUdeviceptr base = (hole->base + align - 1) & ~(align - 1);
		CUdeviceptr end = hole->base + hole->size;

		if (base + size > end)
			continue;
		if (base + size < end) {
			struct hole *rest = xalloc(sizeof(*rest));

			rest->base = base + size;
			rest->size = end - rest->base;
			rest->next = hole->next;
			hole->next = rest;
		}
		hole->size = base - hole->base;
		if (!hole->size) {
			*at = hole->next;
			free(hole);
		}
		return base;
	}
	return 0;
}

void arena_give(struct device *device, CUdeviceptr base, size_t size)
{
	size_t align = size >= BIG_ALIGN ? BIG_ALIGN : ARENA_ALIGN;
	struct hole **at = &device->holes, *hole;

	size = (size + align - 1) & ~(align - 1);
	while (*at && (*at)->base < base)
		at = &(*at)->next;
	hole = xalloc(sizeof(*hole));
	hole->base = base;
	hole->size = size;
	hole->next = *at;
	*at = hole;
	if (hole->next && hole->base + hole->size == hole->next->base) {
		struct hole *next = hole->next;

		hole->size += next->size;
		hole->next = next->next;
		free(next);
	}
	if (size >= BIG_ALIGN)
		fallocate(device->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)(base - (CUdeviceptr)device->arena), (off_t)size);
	else
		memset((void *)base, 0xdd, size);
	for (at = &device->holes; *at && (*at)->next; at = &(*at)->next) {
		struct hole *next = (*at)->next;

		if ((*at)->base + (*at)->size != next->base)
			continue;
		(*at)->size += next->size;
		(*at)->next = next->next;
		free(next);
		break;
	}
}

static size_t place(CUdeviceptr base)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ranges[middle]->base <= base)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct memory *memory_add(struct context *context, CUdeviceptr base, size_t size, enum memory_kind kind)
{
	struct memory *memory = xalloc(sizeof(*memory));
	size_t at = place(base);

	memory->base = base;
	memory->size = size;
	memory->kind = kind;
	memory->context = context;
	memory->group = context->group;
	memory->device = context->device;
	memory->id = ++next_id;
	if (count == room) {
		room = room ? 2 * room : 64;
		ranges = xrealloc(ranges, room * sizeof(*ranges));
	}
	memmove(ranges + at + 1, ranges + at, (count - at) * sizeof(*ranges));
	ranges[at] = memory;
	count++;
	return memory;
}

void memory_remove(struct memory *memory)
{
	size_t at = place(memory->base);

	while (at && ranges[at - 1] != memory)
		at--;
	if (at) {
		memmove(ranges + at - 1, ranges + at, (count - at) * sizeof(*ranges));
		count--;
	}
	shadow_clear(memory);
	if (memory->charged)
		memory_give(memory->device, memory->charged);
	free(memory);
}

struct memory *memory_find(CUdeviceptr address)
{
	size_t at = place(address);

	if (!at || address >= ranges[at - 1]->base + ranges[at - 1]->size)
		return NULL;
	return ranges[at - 1];
}

/* The host address of device-visible memory, or NULL. Device memory belongs to one group of contexts. */
void *memory_reach(struct context *context, CUdeviceptr address, size_t size, struct memory **found)
{
	struct memory *memory = memory_find(address), *last = memory;

	/* mappings that lie side by side are one range */
	while (last && !last->freed && last->kind == MEMORY_MAPPED && address + size > last->base + last->size) {
		last = memory_find(last->base + last->size);
		if (last && (last->kind != MEMORY_MAPPED || (context && !(last->reached >> context->device->ordinal & 1))))
			return NULL;
	}
	if (!last || memory->freed || last->freed || address + size > last->base + last->size)
		return NULL;
	if (context && memory->kind == MEMORY_MAPPED && !(memory->reached >> context->device->ordinal & 1))
		return NULL;
	if (context && memory->group != context->group && memory->device == context->device && memory->kind != MEMORY_MAPPED &&
	    memory->kind != MEMORY_HOST && memory->kind != MEMORY_REGISTERED && memory->kind != MEMORY_MANAGED)
		return NULL;
	if (context && memory->device != context->device && memory->kind == MEMORY_DEVICE && !peer_reaches(context->group, memory->group))
		return NULL;
	if (found)
		*found = memory;
	return (void *)address;
}

/* Nobody reaches the group's device memory any more; its addresses are not given out again. */
void memory_end(struct context *group)
{
	for (size_t i = 0; i < count; i++)
		if (ranges[i]->group == group && ranges[i]->kind == MEMORY_DEVICE)
			ranges[i]->freed = true;
}

void memory_unregister(struct context *group)
{
	for (size_t i = count; i-- > 0;)
		if (ranges[i]->group == group && ranges[i]->kind == MEMORY_REGISTERED)
			memory_remove(ranges[i]);
}

bool memory_shared(void)
{
	for (size_t i = 0; i < count; i++)
		if (ranges[i]->shared || ranges[i]->kind == MEMORY_IPC)
			return true;
	return false;
}

CUresult memory_new(struct context *context, size_t size, enum memory_kind kind, struct memory **memory)
{
	struct device *device = context->device;
	CUdeviceptr base;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_take(device, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	base = arena_take(device, size);
	if (!base) {
		memory_give(device, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = memory_add(context, base, size, kind);
	(*memory)->charged = size;
	return CUDA_SUCCESS;
}

API(cuMemGetInfo_v2, size_t *, available, size_t *, total)
{
	struct context *context;

	TRY(context_current(&context));
	if (available)
		*available = memory_left(context->device);
	if (total)
		*total = context->device->memory;
	return CUDA_SUCCESS;
}

API(cuMemAlloc_v2, CUdeviceptr *, address, size_t, size)
{
	struct context *context;
	struct memory *memory;

	TRY(context_current(&context));
	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	TRY(memory_new(context, size, MEMORY_DEVICE, &memory));
	*address = memory->base;
	return CUDA_SUCCESS;
}

API(cuMemAllocPitch_v2, CUdeviceptr *, address, size_t *, pitch, size_t, width, size_t, height, unsigned int, element)
{
	struct context *context;
	struct memory *memory;

	TRY(context_current(&context));
	if (!address || !pitch || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	*pitch = (width + 511) & ~511UL;
	TRY(memory_new(context, *pitch * height, MEMORY_DEVICE, &memory));
	*address = memory->base;
	return CUDA_SUCCESS;
}

API(cuMemAllocManaged, CUdeviceptr *, address, size_t, size, unsigned int, flags)
{
	struct context *context;
	struct memory *memory;

	TRY(context_current(&context));
	if (!address || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	TRY(memory_new(context, size, MEMORY_MANAGED, &memory));
	*address = memory->base;
	return CUDA_SUCCESS;
}

API(cuMemFree_v2, CUdeviceptr, address)
{
	struct context *context;
	struct memory *memory;

	TRY(context_current(&context));
	if (!address)
		return CUDA_SUCCESS;
	TRY(check_capture_safe());
	memory = memory_find(address);
	if (!memory || memory->base != address || memory->freed ||
	    (memory->kind != MEMORY_DEVICE && memory->kind != MEMORY_MANAGED && memory->kind != MEMORY_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	wait_all(NULL);
	memory = memory_find(address);
	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	if (memory->kind == MEMORY_POOL) {
		pool_give(memory);
		return CUDA_SUCCESS;
	}
	arena_give(memory->device, memory->base, memory->size);
	memory_remove(memory);
	return CUDA_SUCCESS;
}

API(cuMemGetAddressRange_v2, CUdeviceptr *, base, size_t *, size, CUdeviceptr, address)
{
	struct memory *memory = memory_find(address);

	if (!memory)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = memory->base;
	if (size)
		*size = memory->size;
	return CUDA_SUCCESS;
}

EXPORT size_t fakecuda_used(int ordinal)
{
	size_t used;

	pthread_mutex_lock(&fake_lock);
	used = devices[ordinal].memory - memory_left(&devices[ordinal]);
	pthread_mutex_unlock(&fake_lock);
	return used;
}

EXPORT size_t fakecuda_peak(int ordinal)
{
	size_t peak;

	pthread_mutex_lock(&fake_lock);
	peak = devices[ordinal].peak;
	devices[ordinal].peak = devices[ordinal].memory - memory_left(&devices[ordinal]);
	pthread_mutex_unlock(&fake_lock);
	return peak;
}

EXPORT int fakecuda_on_host(unsigned long long address)
{
	struct memory *memory;
	int on_host;

	pthread_mutex_lock(&fake_lock);
	memory = memory_find(address);
	on_host = memory && memory->on_host;
	pthread_mutex_unlock(&fake_lock);
	return on_host;
}

EXPORT void fakecuda_host_access(const void *address, size_t size, int write)
{
	static unsigned int actor;
	struct memory *memory;
	struct clock *clock;

	pthread_mutex_lock(&fake_lock);
	memory = memory_find((CUdeviceptr)address);
	if (memory) {
		if (!actor) {
			unsigned int zero = actor_new();	/* 0 means "not yet" here */

			actor = zero ? zero : actor_new();
		}
		clock = clock_tick(host_clock(), actor);
		shadow_access_as(memory, (CUdeviceptr)address - memory->base, size, write, clock, actor, 0, "host");
		host_join(clock);
		clock_put(clock);
	}
	pthread_mutex_unlock(&fake_lock);
}
