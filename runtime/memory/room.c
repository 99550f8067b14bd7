/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"
#include "room.h"
#include "source.h"

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

	if (!pages || !board || atomic_load(&board->stopping))
		return false;
	/* what another thread captures, or this one is in the midst of, keeps its own memory here: nobody could make room by it */
	if (ds_thread.locked || ds_thread.home || atomic_load(&device->captures) || !can_fit(device, pages))
		return false;
	return ds_pages_room_wait(pages, room, bytes);
}

void ds_room_over(const struct ds_room *room, struct ds_device *device, size_t bytes)
{
	const struct ds_pages *pages = room->began ? pages_of(device) : NULL;

	if (pages)
		ds_pages_room_over(pages, room, bytes);
}

bool ds_room_stays(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages && __atomic_load_n(&pages->policy->stay_until, __ATOMIC_RELAXED) > ds_now_ns();
}
