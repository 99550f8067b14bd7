/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"
#include "log.h"
#include "room.h"
#include "source.h"

#define LEAST_NAP_NS 1000000ULL
#define MOST_NAP_NS 20000000ULL
#define FOREVER UINT32_MAX

static const struct ds_pages *pages_of(const struct ds_device *device)
{
	return atomic_load(&device->state) == DS_DEVICE_MANAGED ? device->pages : NULL;
}

/* What the program has counts with this allocation: beyond the whole GPU there is never room for it. */
static bool can_fit(struct ds_device *device, const struct ds_pages *pages)
{
	size_t total = 0;

	return real->cuDeviceTotalMem_v2(&total, device->ordinal) == CUDA_SUCCESS &&
	       __atomic_load_n(&pages->counters->memory_used, __ATOMIC_RELAXED) <= total;
}

bool ds_room_wait(struct ds_room *room, struct ds_device *device, size_t bytes)
{
	const struct ds_pages *pages = pages_of(device);
	struct ds_board *board = device->board;
	uint64_t now = ds_now_ns();
	uint32_t limit_ms;

	if (!pages || !board || atomic_load(&board->stopping))
		return false;
	limit_ms = __atomic_load_n(&pages->policy->room_ms, __ATOMIC_RELAXED);
	if (room->most_ms && room->most_ms < limit_ms)
		limit_ms = room->most_ms;
	/* what another thread captures, or this one is in the midst of, keeps its own memory here: nobody could make room by it */
	if (!limit_ms || ds_thread.locked || ds_thread.home || atomic_load(&device->captures) || !can_fit(device, pages))
		return false;
	if (!room->began) {
		room->began = now;
		room->nap = LEAST_NAP_NS;
		__atomic_fetch_add(&pages->counters->room_bytes, bytes, __ATOMIC_RELAXED);
		if (limit_ms == FOREVER)
			ds_info("memory: %zu bytes do not fit now: the call waits until there is room", bytes);
		else
			ds_info("memory: %zu bytes do not fit now: the call waits for room, %.3g s at most", bytes, limit_ms / 1e3);
	} else if (limit_ms != FOREVER && now - room->began > limit_ms * 1000000ULL) {
		ds_info("memory: %zu bytes found no room within %.3g s: the call fails as on a full GPU", bytes, limit_ms / 1e3);
		return false;
	}
	ds_nap(room->nap);
	room->nap = room->nap * 2 < MOST_NAP_NS ? room->nap * 2 : MOST_NAP_NS;
	return true;
}

void ds_room_over(const struct ds_room *room, struct ds_device *device, size_t bytes)
{
	const struct ds_pages *pages = room->began ? pages_of(device) : NULL;

	if (pages)
		__atomic_fetch_sub(&pages->counters->room_bytes, bytes, __ATOMIC_RELAXED);
}

bool ds_room_stays(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages && __atomic_load_n(&pages->policy->stay_until, __ATOMIC_RELAXED) > ds_now_ns();
}
