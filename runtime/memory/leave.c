/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"
#include "copies.h"
#include "leave.h"
#include "lend.h"
#include "log.h"
#include "settle.h"
#include "source.h"

bool ds_leave_lazy(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages && __atomic_load_n(&pages->policy->flags, __ATOMIC_RELAXED) & DS_FLAG_LAZY;
}

/* Whether, where host memory is lacking, it may leave in parts. */
static bool in_parts(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	/* windows are given back as a whole only */
	return pages && __atomic_load_n(&pages->policy->flags, __ATOMIC_RELAXED) & DS_FLAG_LEAVES && !ds_leave_lazy(device) &&
	       !ds_lend_bytes(device);
}

/* of this GPU, what goes to the arena, for it has no window */
static uint64_t plain_bytes(const struct ds_device *device)
{
	uint64_t sum = 0;

	ds_piece_lock();
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->counted && !piece->window)
			sum += piece->size;
	ds_piece_unlock();
	return sum;
}

uint32_t ds_leave_room(void)
{
	struct ds_device *device;
	uint64_t all = 0;
	char why[400] = "";
	struct ds_own own;

	ds_each_managed(device) {
		uint64_t bytes = ds_piece_parkable(device);
		struct ds_stay *stay = NULL;

		if (!bytes)
			continue;
		all += bytes;
		ds_own_begin(&own, device);
		if (ds_leave_lazy(device) && !ds_lend_ready(device, why, sizeof(why)))
			ds_info("park: it will come back as a whole: %s", why);
		bytes = plain_bytes(device);
		stay = bytes ? ds_arena_need(device, bytes, why, sizeof(why)) : ds_arena_stream(device, why, sizeof(why));
		ds_own_end(&own);
		if (!stay) {
			if (!in_parts(device))
				ds_info("park: refused, nothing is lost: %s", why);
			return DS_PARK_ARENA;
		}
	}
	return all ? DS_PARK_OK : DS_PARK_NOTHING;
}

static void show_copied(struct ds_device *device, const struct ds_copied *copied)
{
	struct ds_counters *counters = ds_counters_of(device);

	if (!counters)
		return;
	__atomic_store_n(&counters->copied_bytes, copied->bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->hash_ns, copied->hash_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->whole, copied->whole, __ATOMIC_RELAXED);
}

/* What an earlier batch took may be home again, and changed since. */
static void none_leaves(void)
{
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		piece->leaves = false;
}

uint32_t ds_leave_copy(void)
{
	struct ds_device *device;

	none_leaves();
	ds_each_managed(device) {
		uint64_t bytes = ds_piece_parkable(device);
		struct ds_stay *stay = ds_arena_of(device);
		CUresult result = CUDA_SUCCESS;
		struct ds_copied copied;
		struct ds_own own;

		if (!bytes)
			continue;
		/* it allocated more since there was room made for it */
		if (!stay || plain_bytes(device) > stay->slots * DS_GRAIN_BYTES)
			return DS_PARK_ARENA;
		for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
			if (piece->device == device)
				piece->leaves = piece->counted;
		ds_own_begin(&own, device);
		result = ds_copies_away(device, stay, &copied);
		ds_own_end(&own);
		if (result != CUDA_SUCCESS) {
			ds_info("park: refused, nothing is lost: a copy failed with %s", ds_error_name(result));
			return DS_PARK_DRIVER;
		}
		show_copied(device, &copied);
	}
	return DS_PARK_OK;
}

static bool there(const struct ds_piece *piece, const struct ds_device *device)
{
	return piece->device == device && piece->counted && piece->handle;
}

static uint32_t placed(const struct ds_piece *piece)
{
	uint32_t sum = 0;

	for (unsigned int n = 0; piece->grains && n < ds_piece_grains(piece); n++)
		sum += piece->grains[n].placed;
	return sum;
}

/* Which pieces leave now: as many as have or find a place. Bytes of them. */
static uint64_t choose(struct ds_device *device, struct ds_stay *stay)
{
	uint32_t spare = stay->slots, lacks = 0;
	struct ds_piece *piece;
	char why[400] = "";
	uint64_t sum = 0;

	for (piece = ds_pieces; piece; piece = piece->next) {
		if (piece->device != device)
			continue;
		spare -= placed(piece);
		lacks += there(piece, device) ? ds_piece_grains(piece) - placed(piece) : 0;
	}
	if (lacks > spare) {
		uint32_t had = stay->slots;

		ds_arena_some(device, (lacks - spare) * DS_GRAIN_BYTES, why, sizeof(why));
		spare += stay->slots - had;
	}
	for (piece = ds_pieces; piece; piece = piece->next) {
		uint32_t needs = ds_piece_grains(piece) - placed(piece);

		if (!there(piece, device) || needs > spare)
			continue;
		piece->leaves = true;
		spare -= needs;
		sum += piece->size;
	}
	return sum;
}

uint32_t ds_leave_some(void)
{
	struct ds_device *device;
	uint64_t sum = 0;

	none_leaves();
	ds_each_managed(device) {
		char why[400] = "";
		CUresult result = CUDA_SUCCESS;
		struct ds_copied copied;
		struct ds_stay *stay;
		struct ds_own own;
		uint64_t bytes = 0;

		if (!ds_piece_parkable(device) || !in_parts(device))
			continue;
		ds_own_begin(&own, device);
		stay = ds_arena_stream(device, why, sizeof(why));
		bytes = stay ? choose(device, stay) : 0;
		if (bytes)
			result = ds_copies_away(device, stay, &copied);
		ds_own_end(&own);
		if (result != CUDA_SUCCESS) {
			ds_info("park: refused, nothing is lost: a copy failed with %s", ds_error_name(result));
			return DS_PARK_DRIVER;
		}
		if (bytes)
			show_copied(device, &copied);
		sum += bytes;
	}
	return sum ? DS_PARK_OK : DS_PARK_ARENA;
}

bool ds_leave_rest(void)
{
	struct ds_device *device;
	bool rest = false;

	/* threads of the program allocate and free meanwhile */
	ds_piece_lock();
	ds_each_managed(device)
		for (struct ds_piece *piece = ds_pieces; piece && !rest; piece = piece->next)
			rest = there(piece, device) && in_parts(device);
	ds_piece_unlock();
	return rest;
}
