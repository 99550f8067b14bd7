/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "home.h"
#include "lifecycle.h"
#include "virtual.h"

/* no handle of the driver's: those are addresses or small numbers */
#define MARK (0xd5d5ULL << 48)
#define MARK_BITS (0xffffULL << 48)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ds_piece **table; /* by number, from 1 on */
static unsigned int room, lowest = 1; /* no number below `lowest` is free */

CUmemGenericAllocationHandle ds_virtual_name(struct ds_piece *piece)
{
	unsigned int number, wider;

	pthread_mutex_lock(&lock);
	for (number = lowest; number < room && table[number]; number++)
		;
	if (number >= room) {
		struct ds_piece **moved;

		wider = room ? 2 * room : 64;
		moved = realloc(table, wider * sizeof(*moved));
		if (!moved) {
			pthread_mutex_unlock(&lock);
			return 0;
		}
		for (unsigned int n = room; n < wider; n++)
			moved[n] = NULL;
		number = room ? room : 1;
		table = moved;
		room = wider;
	}
	table[number] = piece;
	lowest = number + 1;
	piece->number = number;
	piece->owners = 1;
	pthread_mutex_unlock(&lock);
	return MARK | number;
}

struct ds_piece *ds_virtual_piece(CUmemGenericAllocationHandle handle)
{
	struct ds_piece *piece = NULL;
	uint64_t number = handle & ~MARK_BITS;

	if ((handle & MARK_BITS) != MARK)
		return NULL;
	pthread_mutex_lock(&lock);
	/* else released, though mapped still */
	if (number < room && table[number] && table[number]->owners)
		piece = table[number];
	pthread_mutex_unlock(&lock);
	return piece;
}

CUmemGenericAllocationHandle ds_virtual_real(CUmemGenericAllocationHandle handle)
{
	struct ds_piece *piece = ds_virtual_piece(handle);

	if (piece)
		return piece->handle;
	/* one that was released is no handle of anybody's */
	return (handle & MARK_BITS) == MARK ? 0 : handle;
}

CUmemGenericAllocationHandle ds_virtual_retain(struct ds_piece *piece)
{
	pthread_mutex_lock(&lock);
	piece->owners++;
	pthread_mutex_unlock(&lock);
	return MARK | piece->number;
}

/* One owner or mapping less. Of two threads that end the last of both, one frees. */
static void end(struct ds_piece *piece, unsigned int *users)
{
	bool unused;

	pthread_mutex_lock(&lock);
	--*users;
	unused = !piece->owners && !piece->mappings;
	if (unused) {
		table[piece->number] = NULL;
		if (piece->number < lowest)
			lowest = piece->number;
	}
	pthread_mutex_unlock(&lock);
	if (unused)
		ds_piece_free(piece);
}

void ds_virtual_release(struct ds_piece *piece)
{
	end(piece, &piece->owners);
}

void ds_virtual_mapped(struct ds_piece *piece, CUdeviceptr address, size_t size)
{
	struct ds_range *range = ds_range_new(1);
	bool twice;

	pthread_mutex_lock(&lock);
	twice = piece->mappings++;
	pthread_mutex_unlock(&lock);
	if (range) {
		range->base = address;
		range->size = size;
		range->device = piece->device;
		range->count = 1;
		range->pieces[0] = piece;
	}
	/* mapped twice it would have to leave both places at once */
	if (!range || !ds_range_add(range) || twice) {
		piece->address = 0;
		ds_piece_stay(piece);
		return;
	}
	piece->address = address;
	piece->reached = 0;
	ds_piece_count(piece);
}

CUresult ds_virtual_unmap(CUdeviceptr address, size_t size)
{
	struct ds_range *range;
	CUresult result = CUDA_SUCCESS;
	bool away = false, whole = true;

	if (ds_likely(atomic_load(&ds_home.now) == DS_HOME))
		return real->cuMemUnmap(address, size);
	ds_range_hold();
	for (range = ds_range_next(address); range && range->base < address + size; range = ds_range_next(range->base + 1)) {
		away = away || (!range->pieces[0]->handle && !range->pieces[0]->lent);
		whole = whole && range->base + range->size <= address + size;
	}
	if (!away)
		result = real->cuMemUnmap(address, size);
	else if (!whole)
		result = CUDA_ERROR_INVALID_VALUE;
	for (range = ds_range_next(address); range && range->base < address + size && result == CUDA_SUCCESS; range = ds_range_next(range->base + 1)) {
		struct ds_piece *piece = range->pieces[0];

		if (away && (piece->handle || piece->lent))
			result = real->cuMemUnmap(range->base, range->size);
		piece->lent = false;
	}
	ds_range_let_go();
	return result;
}

void ds_virtual_unmapped(CUdeviceptr address, size_t size)
{
	struct ds_range *range;

	ds_range_hold();
	while ((range = ds_range_next(address)) && range->base < address + size && !range->reserved) {
		struct ds_piece *piece = range->pieces[0];

		ds_range_remove(range);
		if (piece->address == range->base)
			piece->address = 0;
		ds_piece_count(piece);
		end(piece, &piece->mappings);
		free(range);
	}
	ds_range_let_go();
}

static void reached(struct ds_piece *piece, const CUmemAccessDesc *list, size_t count)
{
	for (size_t n = 0; n < count; n++) {
		CUmemLocation place = list[n].location;
		uint64_t bit = place.id >= 0 && place.id < DS_MAX_DEVICES ? 1ULL << place.id : 0;

		if (place.type == CU_MEM_LOCATION_TYPE_DEVICE && bit && list[n].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			piece->reached |= bit;
		else if (place.type == CU_MEM_LOCATION_TYPE_DEVICE && bit && list[n].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			piece->reached &= ~bit;
		else
			ds_piece_stay(piece); /* read-only, or the host's */
	}
}

void ds_virtual_reached(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count)
{
	ds_range_hold();
	for (struct ds_range *range = ds_range_next(address); range && range->base < address + size; range = ds_range_next(range->base + 1))
		if (!range->reserved)
			reached(range->pieces[0], list, count);
	ds_range_let_go();
}

static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	table = NULL;
	room = 0;
	lowest = 1;
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);
