/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.h"
#include "log.h"

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
	if (stay->pinned && real->cuMemHostUnregister(stay->map) != CUDA_SUCCESS)
		ds_debug("host memory for parking stays registered");
	stay->pinned = false;
}

static void let_go(struct ds_stay *stay)
{
	if (!stay->map)
		return;
	unpin(stay);
	munmap(stay->map, stay->size);
	stay->map = NULL;
	stay->size = 0;
}

static bool take(struct ds_device *device, struct ds_stay *stay, size_t bytes, char *why, size_t room)
{
	const struct ds_pages *pages = device->pages;
	int fd = ds_arena_ask(&device->uuid, bytes, why, room);
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
	stay->map = map;
	stay->size = bytes;
	result = real->cuMemHostRegister_v2(map, bytes, 0);
	stay->pinned = result == CUDA_SUCCESS;
	if (!stay->pinned)
		ds_info("park: host memory cannot be pinned (%s): copies are slower, from ordinary pages", ds_error_name(result));
	if (pages)
		__atomic_store_n(&pages->counters->arena_bytes, bytes, __ATOMIC_RELAXED);
	return true;
}

struct ds_stay *ds_arena_need(struct ds_device *device, size_t bytes, char *why, size_t room)
{
	struct ds_stay *stay = &stays[device->ordinal];
	const struct ds_pages *pages = device->pages;

	if (!has_stream(device, stay, why, room))
		return NULL;
	if (stay->size >= bytes)
		return stay;
	let_go(stay);
	if (pages)
		__atomic_store_n(&pages->counters->arena_bytes, 0, __ATOMIC_RELAXED);
	return take(device, stay, bytes, why, room) ? stay : NULL;
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
		let_go(stay);
}

void ds_arena_reset(void)
{
	memset(stays, 0, sizeof(stays));
}
