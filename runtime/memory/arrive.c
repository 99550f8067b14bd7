/* SPDX-License-Identifier: Apache-2.0 */
#include "arrive.h"
#include "context.h"
#include "copies.h"
#include "log.h"
#include "piece.h"
#include "settle.h"

#define BATCH 16U /* pieces: what gives its host memory back at once, so that who leaves goes on meanwhile */

static bool awaits(const struct ds_device *device)
{
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->counted && !piece->handle)
			return true;
	return false;
}

bool ds_arrive_ready(void)
{
	struct ds_device *device;
	char why[400] = "";
	bool ready = true;

	ds_each_managed(device) {
		struct ds_own own;

		if (ds_arena_of(device) || !awaits(device))
			continue;
		ds_own_begin(&own, device);
		ready = ds_arena_stream(device, why, sizeof(why)) && ready;
		ds_own_end(&own);
	}
	return ready;
}

CUresult ds_arrive_room(void)
{
	CUresult result = CUDA_SUCCESS;
	struct ds_device *device;

	ds_each_managed(device) {
		struct ds_own own;
		size_t bytes = 0;

		for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
			bytes += piece->device == device && ds_arrive_lacks(piece) ? piece->size : 0;
		if (!bytes || result != CUDA_SUCCESS)
			continue;
		ds_own_begin(&own, device);
		result = ds_piece_room(device, bytes);
		ds_own_end(&own);
	}
	return result;
}

static bool asked_for(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages && __atomic_load_n(&pages->policy->flags, __ATOMIC_RELAXED) & DS_FLAG_COMES;
}

static unsigned int make(const struct ds_device *device)
{
	unsigned int count = 0;

	for (struct ds_piece *piece = ds_pieces; piece && count < BATCH; piece = piece->next) {
		if (piece->device != device || piece->handle || piece->host)
			continue;
		if (real->cuMemCreate(&piece->handle, piece->size, &piece->prop, 0) != CUDA_SUCCESS) {
			piece->handle = 0;
			break;
		}
		if (ds_piece_map(piece) != CUDA_SUCCESS) {
			real->cuMemRelease(piece->handle);
			piece->handle = 0;
			break;
		}
		piece->fresh = DS_FRESH_MAPPED;
		count++;
	}
	return count;
}

/* Those that were made are home, or are not. */
static void settle(bool home)
{
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next) {
		if (piece->fresh != DS_FRESH_MAPPED)
			continue;
		piece->fresh = DS_FRESH_NOT;
		if (home) {
			ds_piece_drop(piece);
			continue;
		}
		real->cuMemUnmap(piece->address, piece->size);
		real->cuMemRelease(piece->handle);
		piece->handle = 0;
	}
}

bool ds_arrive(struct ds_device *device, struct ds_stay *stay)
{
	CUresult result;

	if (!asked_for(device) || !make(device))
		return false;
	result = ds_copies_home(device, stay);
	settle(result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS) {
		ds_info("park: the copy back to GPU %d failed with %s", device->ordinal, ds_error_name(result));
		return false;
	}
	ds_arena_trim(device);
	return true;
}
