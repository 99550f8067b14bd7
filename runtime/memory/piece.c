/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "lend.h"
#include "piece.h"

#define SYNC_MEMOPS 6
#define POSIX_DESCRIPTOR 1

struct ds_piece *ds_pieces;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uint64_t) parkable[DS_MAX_DEVICES], leaves[DS_MAX_DEVICES], kept[DS_MAX_DEVICES];

void ds_piece_lock(void)
{
	pthread_mutex_lock(&lock);
}

void ds_piece_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static void show(struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	if (!pages)
		return;
	__atomic_store_n(&pages->counters->parkable_bytes, ds_piece_parkable(device), __ATOMIC_RELAXED);
	__atomic_store_n(&pages->counters->leaves_bytes, atomic_load(&leaves[device->ordinal]), __ATOMIC_RELAXED);
	__atomic_store_n(&pages->counters->kept_bytes, atomic_load(&kept[device->ordinal]), __ATOMIC_RELAXED);
}

uint64_t ds_piece_parkable(const struct ds_device *device)
{
	return atomic_load(&parkable[device->ordinal]);
}

void ds_piece_keep(struct ds_piece *piece, unsigned int n, bool on)
{
	if (piece->grains[n].kept == on)
		return;
	piece->grains[n].kept = on;
	if (on)
		atomic_fetch_add(&kept[piece->device->ordinal], DS_GRAIN_BYTES);
	else
		atomic_fetch_sub(&kept[piece->device->ordinal], DS_GRAIN_BYTES);
	show(piece->device);
}

/* under the lock */
static void drop(struct ds_piece *piece)
{
	for (unsigned int n = 0; piece->grains && n < ds_piece_grains(piece); n++) {
		ds_piece_keep(piece, n, false);
		piece->grains[n].placed = false;
	}
}

void ds_piece_forget(const struct ds_device *device)
{
	ds_piece_lock();
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device)
			drop(piece);
	ds_piece_unlock();
}

void ds_piece_count(struct ds_piece *piece)
{
	bool counts = piece->address && !piece->stays;

	if (counts == piece->counted)
		return;
	piece->counted = counts;
	if (counts) {
		atomic_fetch_add(&parkable[piece->device->ordinal], piece->size);
		atomic_fetch_add(&leaves[piece->device->ordinal], piece->asked);
	} else {
		atomic_fetch_sub(&parkable[piece->device->ordinal], piece->size);
		atomic_fetch_sub(&leaves[piece->device->ordinal], piece->asked);
		ds_piece_lock();
		drop(piece);
		ds_piece_unlock();
	}
	show(piece->device);
}

void ds_piece_drop(struct ds_piece *piece)
{
	ds_piece_lock();
	drop(piece);
	ds_piece_unlock();
}

void ds_piece_stay(struct ds_piece *piece)
{
	piece->stays = true;
	ds_piece_count(piece);
}

/* With a handle, or nothing is left of it. */
static struct ds_piece *keep(struct ds_piece *piece, struct ds_device *device, size_t size, CUresult result)
{
	if (result != CUDA_SUCCESS) {
		free(piece);
		return NULL;
	}
	piece->size = size;
	piece->asked = size;
	piece->device = device;
	/* no driver gives such; it would have no slot */
	if (size % DS_GRAIN_BYTES)
		piece->stays = true;
	ds_piece_lock();
	piece->age = ds_pieces ? ds_pieces->age + 1 : 1;
	piece->next = ds_pieces;
	piece->link = &ds_pieces;
	if (ds_pieces)
		ds_pieces->link = &piece->next;
	ds_pieces = piece;
	ds_piece_unlock();
	return piece;
}

uint64_t ds_piece_away(const struct ds_device *device)
{
	uint64_t sum = 0;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->counted && !piece->handle)
			sum += piece->size;
	return sum;
}

CUresult ds_piece_room(const struct ds_device *device, size_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal},
	};
	CUmemGenericAllocationHandle handle;
	size_t left, total;
	CUresult result;

	/* one piece is had or not */
	if (bytes <= DS_PIECE_BYTES || real->cuMemGetInfo_v2(&left, &total) != CUDA_SUCCESS || left >= bytes)
		return CUDA_SUCCESS;
	/* the driver gives what its pools keep in reserve, too */
	result = real->cuMemCreate(&handle, bytes, &prop, 0);
	if (result == CUDA_SUCCESS)
		real->cuMemRelease(handle);
	return result;
}

struct ds_piece *ds_piece_make(struct ds_device *device, size_t size, const CUmemAllocationProp *prop, CUresult *result)
{
	struct ds_piece *piece = calloc(1, sizeof(*piece));

	*result = piece ? real->cuMemCreate(&piece->handle, size, prop, 0) : CUDA_ERROR_OUT_OF_MEMORY;
	if (piece)
		piece->prop = *prop;
	return keep(piece, device, size, *result);
}

struct ds_piece *ds_piece_import(struct ds_device *device, size_t size, int fd, CUresult *result)
{
	struct ds_piece *piece = calloc(1, sizeof(*piece));

	*result = piece ? real->cuMemImportFromShareableHandle(&piece->handle, (void *)(intptr_t)fd, POSIX_DESCRIPTOR)
			: CUDA_ERROR_OUT_OF_MEMORY;
	if (piece)
		piece->stays = true;
	return keep(piece, device, size, *result);
}

void ds_piece_free(struct ds_piece *piece)
{
	piece->address = 0;
	ds_piece_count(piece);
	ds_piece_lock();
	*piece->link = piece->next;
	if (piece->next)
		piece->next->link = piece->link;
	ds_piece_unlock();
	if (piece->handle)
		real->cuMemRelease(piece->handle);
	ds_lend_drop(piece);
	free(piece->grains);
	free(piece);
}

CUresult ds_piece_access(struct ds_piece *piece)
{
	CUmemAccessDesc list[DS_MAX_DEVICES];
	unsigned int count = 0;

	for (int ordinal = 0; ordinal < DS_MAX_DEVICES; ordinal++)
		if (piece->reached >> ordinal & 1)
			list[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, ordinal}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return count ? real->cuMemSetAccess(piece->address, piece->size, list, count) : CUDA_SUCCESS;
}

CUresult ds_piece_map(struct ds_piece *piece)
{
	unsigned int on = 1;
	CUresult result = real->cuMemMap(piece->address, piece->size, 0, piece->handle, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = ds_piece_access(piece);
	if (result != CUDA_SUCCESS) {
		real->cuMemUnmap(piece->address, piece->size);
		return result;
	}
	if (piece->orders)
		real->cuPointerSetAttribute(&on, SYNC_MEMOPS, piece->address);
	return CUDA_SUCCESS;
}

void ds_piece_reset(void)
{
	/* the parent's are left to leak: another thread may have held malloc's lock, or this one, at the fork */
	pthread_mutex_init(&lock, NULL);
	ds_pieces = NULL;
	ds_lend_reset();
	for (unsigned int n = 0; n < DS_MAX_DEVICES; n++) {
		atomic_store(&parkable[n], 0);
		atomic_store(&leaves[n], 0);
		atomic_store(&kept[n], 0);
	}
}
