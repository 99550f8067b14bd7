/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

/* What lay there is to be had no more; *gone is unpinned and unmapped by free_all(). */
static void let_go(struct ds_device *device, struct ds_stay *stay, struct ds_stay *gone)
{
	*gone = (struct ds_stay){ .extents = stay->extents, .count = stay->count };
	if (!stay->count)
		return;
	stay->extents = NULL;
	stay->count = 0;
	stay->slots = 0;
	ds_piece_forget(device);
	show(device, stay);
}

static void free_all(struct ds_stay *gone)
{
	unpin(gone);
	for (unsigned int n = 0; n < gone->count; n++)
		if (gone->extents[n].map)
			munmap(gone->extents[n].map, gone->extents[n].slots * DS_GRAIN_BYTES);
	free(gone->extents);
}

/* There is room for one more; the place of one that was given back goes first, so that exchanges without end need no more. */
static void pin(struct ds_stay *stay, char *map, uint32_t slots)
{
	CUresult result = real->cuMemHostRegister_v2(map, slots * DS_GRAIN_BYTES, 0);
	unsigned int n = 0;

	while (n < stay->count && stay->extents[n].map)
		n++;
	stay->count += n == stay->count;
	stay->extents[n] = (struct ds_extent){ .map = map, .slots = slots, .pinned = result == CUDA_SUCCESS };
	stay->slots += slots;
	if (result != CUDA_SUCCESS)
		ds_info("park: host memory cannot be pinned (%s): copies are slower, from ordinary pages", ds_error_name(result));
}

/* The descriptor is closed. */
static bool take(struct ds_device *device, struct ds_stay *stay, int fd, uint32_t slots, char *why, size_t room)
{
	size_t bytes = slots * DS_GRAIN_BYTES, more = stay->count + (slots + DS_EXTENT_SLOTS - 1) / DS_EXTENT_SLOTS;
	struct ds_extent *wider = realloc(stay->extents, (more + 1) * sizeof(*wider));
	void *map = MAP_FAILED;

	if (wider)
		stay->extents = wider;
	if (wider && slots)
		map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED) {
		snprintf(why, room, "host memory of %zu bytes cannot be mapped: %s", bytes, strerror(errno));
		return false;
	}
	madvise(map, bytes, MADV_HUGEPAGE);
	madvise(map, bytes, MADV_DONTFORK);
	for (uint32_t at = 0; at < slots; at += DS_EXTENT_SLOTS)
		pin(stay, (char *)map + at * DS_GRAIN_BYTES, slots - at < DS_EXTENT_SLOTS ? slots - at : DS_EXTENT_SLOTS);
	show(device, stay);
	return true;
}

void ds_arena_some(struct ds_device *device, size_t bytes, char *why, size_t room)
{
	struct ds_stay *stay = &stays[device->ordinal];
	uint64_t given = bytes;
	int fd = ds_arena_ask_some(&device->uuid, &given, why, room);

	if (fd >= 0)
		take(device, stay, fd, (uint32_t)(given / DS_GRAIN_BYTES), why, room);
}

void ds_arena_trim(struct ds_device *device)
{
	struct ds_stay *stay = &stays[device->ordinal];
	bool *used = calloc(stay->count + 1, sizeof(*used));

	if (!used)
		return;
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		for (unsigned int n = 0; piece->device == device && piece->grains && n < ds_piece_grains(piece); n++)
			if (piece->grains[n].placed)
				used[piece->grains[n].slot / DS_EXTENT_SLOTS] = true;
	for (unsigned int n = 0; n < stay->count; n++) {
		struct ds_extent *extent = &stay->extents[n];
		size_t bytes = extent->slots * DS_GRAIN_BYTES;

		if (used[n] || !extent->map)
			continue;
		if (extent->pinned && real->cuMemHostUnregister(extent->map) != CUDA_SUCCESS)
			continue;
		extent->pinned = false;
		/* its neighbours keep the file: without this its pages would stay */
		if (madvise(extent->map, bytes, MADV_REMOVE))
			continue;
		munmap(extent->map, bytes);
		stay->slots -= extent->slots;
		*extent = (struct ds_extent){ 0 };
	}
	free(used);
	show(device, stay);
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
	int fd;

	if (!has_stream(device, stay, why, room))
		return NULL;
	if (stay->slots >= slots)
		return stay;
	slots -= stay->slots;
	fd = ds_arena_ask(&device->uuid, slots * DS_GRAIN_BYTES, why, room);
	return fd >= 0 && take(device, stay, fd, slots, why, room) ? stay : NULL;
}

char *ds_arena_at(const struct ds_stay *stay, uint32_t slot, uint32_t *follow)
{
	const struct ds_extent *extent = &stay->extents[slot / DS_EXTENT_SLOTS];

	*follow = extent->slots - slot % DS_EXTENT_SLOTS - 1;
	return extent->map + slot % DS_EXTENT_SLOTS * DS_GRAIN_BYTES;
}

void ds_arena_return(struct ds_device *device, struct ds_stay *gone)
{
	ds_lend_drop_all(device);
	show(device, &stays[device->ordinal]);
	ds_piece_forget(device);
	let_go(device, &stays[device->ordinal], gone);
}

void ds_arena_returned(struct ds_stay *gone)
{
	free_all(gone);
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
	struct ds_stay *stay = &stays[device->ordinal], gone;

	stay->stream = NULL;
	if (keep)
		return;
	let_go(device, stay, &gone);
	free_all(&gone);
}

void ds_arena_quits(struct ds_device *device)
{
	struct ds_stay *stay = &stays[device->ordinal];

	if (stay->stream) {
		real->cuStreamDestroy_v2(stay->stream);
		real->cuEventDestroy_v2(stay->home);
	}
	stay->stream = NULL;
}

void ds_arena_reset(void)
{
	memset(stays, 0, sizeof(stays));
}
