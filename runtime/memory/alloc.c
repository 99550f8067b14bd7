/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "context.h"
#include "home.h"
#include "lifecycle.h"
#include "log.h"
#include "park.h"
#include "primary.h"
#include "quiet.h"
#include "share.h"

#define VIRTUAL_MEMORY_SUPPORTED 102
#define POSIX_DESCRIPTOR 1

static bool parks[DS_MAX_DEVICES]; /* set before the program's first allocation there */
static _Atomic(uint64_t) peers[DS_MAX_DEVICES]; /* bit n: GPU n may reach what this one has */
static unsigned int enabled[DS_MAX_DEVICES][DS_MAX_DEVICES]; /* of the second, how many contexts may; while ranges are held */

static _Atomic(bool) foreign;

void ds_alloc_note_green(void)
{
	atomic_store(&foreign, true);
}

bool ds_alloc_foreign(void)
{
	return atomic_load(&foreign);
}

bool ds_alloc_parks(const struct ds_device *device)
{
	return parks[device->ordinal];
}

struct ds_device *ds_alloc_device(size_t bytes)
{
	struct ds_device *device;

	if (ds_likely(!atomic_load_explicit(&ds_home.parks, memory_order_relaxed)) || bytes < DS_ALLOC_LEAST || ds_thread.locked)
		return NULL;
	device = ds_device_current();
	/*
	 * In a capture the driver is asked: it refuses, and ends some captures by that. Beside green contexts nothing leaves any more, and freeing memory of
	 * ours would wait for the whole context, which ends captures too.
	 */
	if (!device || !parks[device->ordinal] || atomic_load(&device->captures) || atomic_load(&foreign))
		return NULL;
	return device;
}

/* ---- making ---- */

void ds_alloc_unmake(struct ds_range *range)
{
	ds_share_forget(range);
	for (unsigned int n = 0; n < range->count; n++) {
		struct ds_piece *piece = range->pieces[n];

		if (!piece)
			continue;
		if ((piece->handle || piece->lent) && piece->mappings)
			real->cuMemUnmap(piece->address, piece->size);
		piece->lent = false;
		ds_piece_free(piece);
	}
	real->cuMemAddressFree(range->base, range->reserved);
	free(range);
}

static CUresult piece_add(struct ds_range *range, size_t offset, struct ds_piece **made)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = POSIX_DESCRIPTOR, /* share.h */
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, range->device->ordinal},
	};
	size_t left = range->reserved - offset;
	struct ds_piece *piece;
	CUresult result;

	piece = *made = ds_piece_make(range->device, left < DS_PIECE_BYTES ? left : DS_PIECE_BYTES, &prop, &result);
	if (!piece)
		return result;
	piece->asked = range->size - offset < piece->size ? range->size - offset : piece->size;
	piece->address = range->base + offset;
	piece->reached = 1ULL << range->device->ordinal | atomic_load(&peers[range->device->ordinal]);
	result = ds_piece_map(piece);
	if (result == CUDA_SUCCESS)
		piece->mappings = 1;
	return result;
}

/* A GPU that got access after the pieces were made, and before the range was seen by ds_alloc_peer(), gets it now. */
static CUresult reach(struct ds_range *range)
{
	uint64_t wanted = 1ULL << range->device->ordinal | atomic_load(&peers[range->device->ordinal]);
	CUresult result = CUDA_SUCCESS;

	ds_range_hold();
	for (unsigned int n = 0; n < range->count && result == CUDA_SUCCESS; n++) {
		if (!(wanted & ~range->pieces[n]->reached))
			continue;
		range->pieces[n]->reached |= wanted;
		result = ds_piece_access(range->pieces[n]);
	}
	ds_range_let_go();
	return result;
}

static void refused(struct ds_device *device, CUresult result)
{
	static _Atomic(bool) told;

	if (result != CUDA_ERROR_OUT_OF_MEMORY && !atomic_exchange(&told, true))
		ds_info("GPU %d: memory that can be parked is refused (%s): what is allocated stays", device->ordinal,
			ds_error_name(result));
}

CUresult ds_alloc_make(struct ds_device *device, size_t bytes, CUdeviceptr *address)
{
	size_t reserved = (bytes + DS_GRAIN_BYTES - 1) & ~(DS_GRAIN_BYTES - 1);
	struct ds_range *range;
	CUresult result;

	result = reserved < bytes ? CUDA_ERROR_OUT_OF_MEMORY : ds_piece_room(device, reserved);
	if (result != CUDA_SUCCESS)
		return result;
	range = ds_range_new((unsigned int)((reserved + DS_PIECE_BYTES - 1) / DS_PIECE_BYTES));
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->size = bytes;
	range->reserved = reserved;
	range->device = device;
	range->context = device->primary;
	result = real->cuMemAddressReserve(&range->base, reserved, 0, 0, 0);
	if (result != CUDA_SUCCESS) {
		free(range);
		return result;
	}
	for (size_t offset = 0; offset < reserved && result == CUDA_SUCCESS; offset += DS_PIECE_BYTES)
		result = piece_add(range, offset, &range->pieces[range->count++]);
	if (result == CUDA_SUCCESS && !ds_range_add(range))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		ds_alloc_unmake(range);
		refused(device, result);
		return result;
	}
	for (unsigned int n = 0; n < range->count; n++)
		ds_piece_count(range->pieces[n]);
	result = reach(range);
	if (result != CUDA_SUCCESS) {
		ds_range_remove(range);
		ds_alloc_unmake(range);
		return result;
	}
	*address = range->base;
	return CUDA_SUCCESS;
}

/* A context that is not steered has streams that we do not know. */
static CUresult free_beside(struct ds_range *range)
{
	CUresult result = CUDA_SUCCESS;
	CUcontext popped;

	/* else it is gone, and its work */
	if (real->cuCtxPushCurrent_v2(range->context) == CUDA_SUCCESS) {
		result = real->cuCtxSynchronize();
		real->cuCtxPopCurrent_v2(&popped);
		ds_context_changed();
	}
	if (result == CUDA_SUCCESS) {
		ds_range_remove(range);
		ds_alloc_unmake(range);
	}
	return result;
}

/*
 * What the program runs in green contexts of its own has no stream that we know. To wait for the context would end captures of other threads; to free
 * memory of the driver's own waits as long, and is refused where the program's call would be.
 */
static CUresult foreign_wait(struct ds_device *device)
{
	CUresult result = ds_quiet_wait(device);
	CUdeviceptr own;

	if (result != CUDA_SUCCESS)
		return result;
	result = real->cuMemAlloc_v2(&own, 1);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return real->cuCtxSynchronize();
	return result ? result : real->cuMemFree_v2(own);
}

CUresult ds_alloc_free(struct ds_range *range)
{
	struct ds_own own;
	CUresult result;

	if (atomic_load(&range->device->state) != DS_DEVICE_MANAGED || range->device->primary != range->context)
		return free_beside(range);
	ds_own_begin(&own, range->device);
	result = ds_alloc_foreign() ? foreign_wait(range->device) : ds_quiet_wait(range->device);
	if (result == CUDA_SUCCESS) {
		ds_range_remove(range);
		ds_alloc_unmake(range);
	}
	ds_own_end(&own);
	return result;
}

CUresult ds_alloc_peer(struct ds_device *device, CUdevice who, bool on)
{
	unsigned int *contexts = &enabled[device->ordinal][who];
	uint64_t bit = 1ULL << who;
	struct ds_range *range;
	CUresult result = CUDA_SUCCESS;

	ds_range_hold();
	*contexts += on ? 1 : *contexts ? -1U : 0;
	/* the GPU has access, not its context */
	if (*contexts != on)
		goto out;
	if (on)
		atomic_fetch_or(&peers[device->ordinal], bit);
	else
		atomic_fetch_and(&peers[device->ordinal], ~bit);
	for (range = ds_range_next(0); range && result == CUDA_SUCCESS; range = ds_range_next(range->base + 1)) {
		CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, who},
					  on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};

		if (range->device != device || !range->reserved)
			continue;
		for (unsigned int n = 0; n < range->count; n++)
			range->pieces[n]->reached = on ? range->pieces[n]->reached | bit : range->pieces[n]->reached & ~bit;
		result = real->cuMemSetAccess(range->base, range->reserved, &access, 1);
	}
out:
	ds_range_let_go();
	return result;
}

/* ---- contexts ---- */

static bool context_new(struct ds_device *device)
{
	const char *wanted = getenv("DETSHARE_PARK");
	int can = 0;

	parks[device->ordinal] = false;
	if (!wanted || !*wanted || *wanted == '0')
		return true;
	if (!ds_has(cuMemCreate) || real->cuDeviceGetAttribute(&can, VIRTUAL_MEMORY_SUPPORTED, device->ordinal) != CUDA_SUCCESS || !can) {
		ds_info("GPU %d has no virtual memory management: its memory cannot be parked", device->ordinal);
		return true;
	}
	parks[device->ordinal] = true;
	atomic_store(&ds_home.parks, true);
	return true;
}

void ds_alloc_over(CUcontext context)
{
	struct ds_range *range, *next;

	ds_range_hold();
	for (range = ds_range_next(0); range; range = next) {
		next = ds_range_next(range->base + 1);
		if (range->context != context || !range->reserved)
			continue;
		ds_range_remove(range);
		ds_alloc_unmake(range);
	}
	ds_range_let_go();
}

void ds_alloc_no_peers(const struct ds_device *device)
{
	ds_range_hold();
	atomic_store(&peers[device->ordinal], 0);
	memset(enabled[device->ordinal], 0, sizeof(enabled[device->ordinal]));
	ds_range_let_go();
}

static void child(void)
{
	ds_piece_reset();
	ds_range_reset();
	memset(enabled, 0, sizeof(enabled));
}

static const struct ds_lifecycle life = { .context_new = context_new, .child = child };
DS_LIST_ADD(ds_lifecycles, life);
