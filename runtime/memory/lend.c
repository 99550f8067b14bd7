/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lend.h"
#include "log.h"
#include "range.h"

#define HOST_NUMA 3
#define HOST_NUMA_ID 134 /* CUdevice_attribute */
#define NAMED_MOST 4096 /* words of a launch's parameters that are looked at */
#define BUFFER_POINTER ((void *)1) /* CU_LAUNCH_PARAM_* */
#define BUFFER_SIZE ((void *)2)

static _Atomic(uint64_t) bytes[DS_MAX_DEVICES];
static _Atomic(uint32_t) named; /* counts pieces that launches named */

uint64_t ds_lend_bytes(const struct ds_device *device)
{
	return atomic_load(&bytes[device->ordinal]);
}

/* ---- windows ---- */

static CUresult window(struct ds_piece *piece)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, piece->device->ordinal}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUresult result;
	int node = 0;

	if (real->cuDeviceGetAttribute(&node, HOST_NUMA_ID, piece->device->ordinal) != CUDA_SUCCESS || node < 0)
		node = 0;
	prop.location = (CUmemLocation){HOST_NUMA, node};
	result = real->cuMemCreate(&piece->host, piece->size, &prop, 0);
	if (result != CUDA_SUCCESS) {
		piece->host = 0;
		return result;
	}
	atomic_fetch_add(&bytes[piece->device->ordinal], piece->size);
	result = real->cuMemAddressReserve(&piece->window, piece->size, 0, 0, 0);
	if (result != CUDA_SUCCESS) {
		piece->window = 0;
		return result;
	}
	result = real->cuMemMap(piece->window, piece->size, 0, piece->host, 0);
	if (result == CUDA_SUCCESS) {
		piece->seen = true;
		result = real->cuMemSetAccess(piece->window, piece->size, &access, 1);
	}
	return result;
}

void ds_lend_drop(struct ds_piece *piece)
{
	if (piece->lent)
		real->cuMemUnmap(piece->address, piece->size);
	if (piece->seen)
		real->cuMemUnmap(piece->window, piece->size);
	if (piece->window)
		real->cuMemAddressFree(piece->window, piece->size);
	if (piece->host) {
		real->cuMemRelease(piece->host);
		atomic_fetch_sub(&bytes[piece->device->ordinal], piece->size);
	}
	piece->lent = piece->seen = false;
	piece->window = 0;
	piece->host = 0;
}

void ds_lend_drop_all(const struct ds_device *device)
{
	ds_piece_lock();
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->handle)
			ds_lend_drop(piece);
	ds_piece_unlock();
}

static bool lacks(const struct ds_piece *piece, const struct ds_device *device)
{
	return piece->device == device && piece->counted && piece->handle && !piece->host;
}

bool ds_lend_ready(struct ds_device *device, char *why, size_t room)
{
	CUresult result = CUDA_SUCCESS;
	struct ds_piece *piece;
	uint64_t need = 0;

	/* threads of the program allocate and free meanwhile */
	ds_piece_lock();
	for (piece = ds_pieces; piece; piece = piece->next)
		need += lacks(piece, device) ? piece->size : 0;
	if (need && !ds_host_ask(&device->uuid, need, why, room)) {
		ds_piece_unlock();
		return false;
	}
	for (piece = ds_pieces; piece && result == CUDA_SUCCESS; piece = piece->next) {
		if (!lacks(piece, device))
			continue;
		result = window(piece);
		if (result != CUDA_SUCCESS)
			ds_lend_drop(piece);
		/* its copies in the arena are of no more use */
		for (unsigned int n = 0; piece->window && piece->grains && n < ds_piece_grains(piece); n++) {
			ds_piece_keep(piece, n, false);
			piece->grains[n].placed = false;
		}
	}
	ds_piece_unlock();
	ds_arena_show(device);
	if (result != CUDA_SUCCESS)
		snprintf(why, room, "the driver gives no host memory that the GPU can map: %s", ds_error_name(result));
	return result == CUDA_SUCCESS;
}

/* ---- lent, and home ---- */

static CUresult map_host(struct ds_piece *piece)
{
	CUmemGenericAllocationHandle handle = piece->handle;
	CUresult result;

	piece->handle = piece->host;
	result = ds_piece_map(piece);
	piece->handle = handle;
	piece->lent = result == CUDA_SUCCESS;
	return result;
}

void ds_lend(struct ds_piece *piece)
{
	CUresult result = map_host(piece);

	piece->hot = 0;
	if (result != CUDA_SUCCESS)
		ds_debug("host memory is not mapped in place of a piece: %s", ds_error_name(result));
}

static bool waits(const struct ds_piece *piece, const struct ds_device *device)
{
	return (!device || piece->device == device) && piece->host && !piece->handle;
}

/* also while threads are inside, where a park was refused */
bool ds_lend_any(const struct ds_device *device)
{
	bool any = false;

	ds_piece_lock();
	for (struct ds_piece *piece = ds_pieces; piece && !any; piece = piece->next)
		any = waits(piece, device);
	ds_piece_unlock();
	return any;
}

bool ds_lend_all(const struct ds_device *device)
{
	bool all = true;

	ds_piece_lock();
	for (struct ds_piece *piece = ds_pieces; piece && all; piece = piece->next)
		all = !waits(piece, device) || piece->lent;
	ds_piece_unlock();
	return all;
}

/* what launches named, in that order, then by age; equal are those of one allocation, by address */
static int sooner(const void *left, const void *right)
{
	const struct ds_piece *a = *(struct ds_piece *const *)left, *b = *(struct ds_piece *const *)right;
	uint32_t x = a->hot - 1, y = b->hot - 1; /* 0, not named, comes last */

	if (x != y)
		return x < y ? -1 : 1;
	if (a->age != b->age)
		return a->age < b->age ? -1 : 1;
	return a->address < b->address ? -1 : a->address > b->address;
}

static size_t choose(struct ds_device *device, uint64_t most, struct ds_piece ***list)
{
	size_t count = 0, take = 0;
	uint64_t sum = 0;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		count += waits(piece, device);
	*list = calloc(count + 1, sizeof(**list));
	if (!*list)
		return 0;
	count = 0;
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (waits(piece, device))
			(*list)[count++] = piece;
	qsort(*list, count, sizeof(**list), sooner);
	while (take < count && (!take || sum + (*list)[take]->size <= most))
		sum += (*list)[take++]->size;
	return take;
}

static CUresult swap(struct ds_piece *piece, const struct ds_stay *stay, CUmemGenericAllocationHandle handle, bool ran)
{
	CUresult result;

	if (piece->lent)
		real->cuMemUnmap(piece->address, piece->size);
	piece->lent = false;
	piece->handle = handle;
	result = ds_piece_map(piece);
	if (result != CUDA_SUCCESS) {
		real->cuMemRelease(handle);
		piece->handle = 0;
		map_host(piece);
		return result;
	}
	for (unsigned int n = 0; ran && piece->grains && n < ds_piece_grains(piece); n++)
		ds_piece_keep(piece, n, false);
	/* the next one is mapped meanwhile */
	return real->cuMemcpyDtoDAsync_v2(piece->address, piece->window, piece->size, stay->stream);
}

CUresult ds_lend_home(struct ds_device *device, const struct ds_stay *stay, uint64_t most, ds_learn_fn learn)
{
	CUmemGenericAllocationHandle *handles;
	CUresult result = CUDA_SUCCESS, ended;
	struct ds_piece **list;
	size_t count = choose(device, most, &list), made = 0, done = 0, all = 0;

	handles = calloc(count + 1, sizeof(*handles));
	if (!list || !handles) {
		free(list);
		free(handles);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t n = 0; n < count; n++)
		all += list[n]->size;
	result = ds_piece_room(device, all);
	while (made < count && result == CUDA_SUCCESS) {
		result = real->cuMemCreate(&handles[made], list[made]->size, &list[made]->prop, 0);
		made += result == CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS) {
		while (done < count && result == CUDA_SUCCESS) {
			result = swap(list[done], stay, handles[done], learn != NULL);
			done++;
		}
		ended = real->cuStreamSynchronize(stay->stream);
		result = result ? result : ended;
		/* what the program wrote over its host memory lies in the windows too */
		if (result == CUDA_SUCCESS && learn)
			learn(device, stay, list, done);
		ended = real->cuEventRecord(stay->home, stay->stream);
		result = result ? result : ended;
		ended = real->cuStreamSynchronize(stay->stream);
		result = result ? result : ended;
	}
	while (made > done)
		real->cuMemRelease(handles[--made]);
	free(list);
	free(handles);
	return result;
}

/* ---- what launches name ---- */

static void look_at(const void *from, size_t size)
{
	const char *at = from;

	for (size_t n = 0; n + sizeof(CUdeviceptr) <= size && n < NAMED_MOST * sizeof(CUdeviceptr); n += sizeof(CUdeviceptr)) {
		struct ds_range *range;
		CUdeviceptr address;

		memcpy(&address, at + n, sizeof(address));
		range = ds_range_find(address);
		for (unsigned int i = 0; range && i < range->count; i++)
			if (range->pieces[i] && range->pieces[i]->lent && !range->pieces[i]->hot)
				range->pieces[i]->hot = i ? atomic_load(&named) : atomic_fetch_add(&named, 1) + 1;
	}
}

void ds_lend_name(CUfunction function, void **params, void **extra)
{
	size_t offset, size;

	if (extra && extra[0] == BUFFER_POINTER && extra[2] == BUFFER_SIZE && extra[1] && extra[3]) {
		look_at(extra[1], *(size_t *)extra[3]);
		return;
	}
	for (size_t n = 0; params && ds_has(cuFuncGetParamInfo) && n < NAMED_MOST; n++) {
		if (real->cuFuncGetParamInfo(function, n, &offset, &size) != CUDA_SUCCESS)
			break;
		if (params[n])
			look_at(params[n], size);
	}
}

void ds_lend_reset(void)
{
	memset(bytes, 0, sizeof(bytes));
}
