/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.h"
#include "lend.h"
#include "log.h"
#include "piece.h"

static struct ds_stay stays[DS_MAX_DEVICES];

static bool has_stream(struct ds_device *device, struct ds_stay *stay, char *why, size_t room)
{
	uint32_t generation = atomic_load(&device->generation);
	CUresult result = CUDA_SUCCESS;

	if (stay->stream && stay->generation == generation)
		return true;
	stay->stream = NULL;
	result = real->cuStreamCreate(&stay->stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = real->cuEventCreate(&stay->home, CU_EVENT_DISABLE_TIMING);
	if (result != CUDA_SUCCESS) {
		stay->stream = NULL;
		snprintf(why, room, "no stream to copy in: %s", ds_error_name(result));
		return false;
	}
	stay->generation = generation;
	return true;
}

static void unpin(struct ds_stay *stay)
{
	for (struct ds_extent *extent = stay->extents; extent < stay->extents + stay->count; extent++) {
		if (extent->pinned && real->cuMemHostUnregister(extent->map) != CUDA_SUCCESS)
			ds_debug("host memory for parking stays registered");
		extent->pinned = false;
	}
}

static void show(const struct ds_device *device, const struct ds_stay *stay)
{
	const struct ds_pages *pages = device->pages;

	uint64_t lent = ds_lend_bytes(device);

	if (!pages)
		return;
	__atomic_store_n(&pages->counters->lent_bytes, lent, __ATOMIC_RELAXED);
	__atomic_store_n(&pages->counters->arena_bytes, stay->slots * DS_GRAIN_BYTES + lent, __ATOMIC_RELAXED);
}

static void let_go(struct ds_device *device, struct ds_stay *stay)
{
	if (!stay->count)
		return;
	unpin(stay);
	for (unsigned int n = 0; n < stay->count; n++)
		munmap(stay->extents[n].map, stay->extents[n].slots * DS_GRAIN_BYTES);
	stay->count = 0;
	stay->slots = 0;
	ds_piece_forget(device);
	show(device, stay);
}

static bool take(struct ds_device *device, struct ds_stay *stay, uint32_t slots, char *why, size_t room)
{
	size_t bytes = slots * DS_GRAIN_BYTES;
	int fd = ds_arena_ask(&device->uuid, bytes, why, room);
	struct ds_extent *extent = &stay->extents[stay->count];
	CUresult result;
	void *map;

	if (fd < 0)
		return false;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED) {
		snprintf(why, room, "host memory of %zu bytes cannot be mapped: %s", bytes, strerror(errno));
		return false;
	}
	madvise(map, bytes, MADV_HUGEPAGE);
	madvise(map, bytes, MADV_DONTFORK);
	result = real->cuMemHostRegister_v2(map, bytes, 0);
	*extent = (struct ds_extent){ .map = map, .slots = slots, .pinned = result == CUDA_SUCCESS };
	if (!extent->pinned)
		ds_info("park: host memory cannot be pinned (%s): copies are slower, from ordinary pages", ds_error_name(result));
	stay->count++;
	stay->slots += slots;
	show(device, stay);
	return true;
}

struct ds_stay *ds_arena_stream(struct ds_device *device, char *why, size_t room)
{
	struct ds_stay *stay = &stays[device->ordinal];

	return has_stream(device, stay, why, room) ? stay : NULL;
}

void ds_arena_show(struct ds_device *device)
{
	show(device, &stays[device->ordinal]);
}

struct ds_stay *ds_arena_need(struct ds_device *device, size_t bytes, char *why, size_t room)
{
	struct ds_stay *stay = &stays[device->ordinal];
	uint32_t slots = (uint32_t)((bytes + DS_GRAIN_BYTES - 1) / DS_GRAIN_BYTES);

	if (!has_stream(device, stay, why, room))
		return NULL;
	if (stay->slots >= slots)
		return stay;
	if (stay->count == DS_EXTENTS)
		let_go(device, stay);
	return take(device, stay, slots - stay->slots, why, room) ? stay : NULL;
}

char *ds_arena_at(const struct ds_stay *stay, uint32_t slot, uint32_t *follow)
{
	const struct ds_extent *extent = stay->extents;

	for (; slot >= extent->slots; extent++)
		slot -= extent->slots;
	*follow = extent->slots - slot - 1;
	return extent->map + slot * DS_GRAIN_BYTES;
}

void ds_arena_return(struct ds_device *device)
{
	ds_lend_drop_all(device);
	show(device, &stays[device->ordinal]);
	ds_piece_forget(device);
	let_go(device, &stays[device->ordinal]);
}

struct ds_stay *ds_arena_of(const struct ds_device *device)
{
	struct ds_stay *stay = &stays[device->ordinal];

	return stay->stream && stay->generation == atomic_load(&device->generation) ? stay : NULL;
}

void ds_arena_ends(struct ds_device *device)
{
	unpin(&stays[device->ordinal]);
}

void ds_arena_over(struct ds_device *device, bool keep)
{
	struct ds_stay *stay = &stays[device->ordinal];

	stay->stream = NULL;
	if (!keep)
		let_go(device, stay);
}

void ds_arena_reset(void)
{
	memset(stays, 0, sizeof(stays));
}
