/* SPDX-License-Identifier: Apache-2.0 */
#include "arrive.h"
#include "context.h"
#include "copies.h"
#include "lend.h"
#include "log.h"
#include "piece.h"
#include "settle.h"

#define BATCH 16U /* pieces: what gives its host memory back at once, so that who leaves goes on meanwhile */

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

/* ---- without a context of the program's ---- */

/* of a GPU, what lies in its arena */
static bool lacks(const struct ds_device *device)
{
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->counted && !piece->handle && !piece->host)
			return true;
	return false;
}

/* no copy there is kept */
static void learns_nothing(struct ds_device *device, const struct ds_stay *stay, struct ds_piece *const *pieces, size_t count)
{
	(void)device;
	(void)stay;
	(void)pieces;
	(void)count;
}

static CUresult bring(struct ds_device *device, const struct ds_stay *stay)
{
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && lacks(device)) {
		if (!make(device))
			return CUDA_ERROR_OUT_OF_MEMORY;
		result = ds_copies_home(device, stay);
		settle(result == CUDA_SUCCESS);
	}
	while (result == CUDA_SUCCESS && ds_lend_any(device))
		result = ds_lend_home(device, stay, UINT64_MAX, learns_nothing);
	return result;
}

/*
 * The program's own handles outlive its context. Between two of them, or where the next one is not steered, what is away comes home in a context of
 * ours. Who begins one holds the lock.
 */
static CUresult bare(struct ds_device *device)
{
	CUcontext before = device->primary;
	CUresult result = CUDA_ERROR_NOT_READY;
	char why[400] = "";
	struct ds_own own;

	if (pthread_mutex_trylock(&device->lock))
		return result;
	if (atomic_load(&device->state) != DS_DEVICE_MANAGED)
		result = real->cuDevicePrimaryCtxRetain(&device->primary, device->ordinal);
	if (result == CUDA_SUCCESS) {
		struct ds_stay *stay;

		ds_own_begin(&own, device);
		stay = ds_arena_stream(device, why, sizeof(why));
		result = stay ? bring(device, stay) : CUDA_ERROR_OUT_OF_MEMORY;
		ds_arena_quits(device);
		ds_own_end(&own);
		real->cuDevicePrimaryCtxRelease_v2(device->ordinal);
	}
	device->primary = before;
	pthread_mutex_unlock(&device->lock);
	return result;
}

/* ---- all of it ---- */

static CUresult ready(struct ds_device *device)
{
	char why[400] = "";
	struct ds_own own;
	CUresult result;

	/* not now: who tries again finds it steered, or bare */
	if (atomic_load(&device->state) != DS_DEVICE_MANAGED)
		return bare(device) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (!device->board || !device->primary)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ds_own_begin(&own, device);
	result = ds_arena_stream(device, why, sizeof(why)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
	ds_own_end(&own);
	return result;
}

CUresult ds_arrive_ready(void)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t awaited = 0;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->counted && !piece->handle)
			awaited |= 1ULL << piece->device->ordinal;
	for (unsigned int n = 0; n < DS_MAX_DEVICES && result == CUDA_SUCCESS; n++)
		if (awaited >> n & 1)
			result = ready(&ds_devices[n]);
	return result;
}
