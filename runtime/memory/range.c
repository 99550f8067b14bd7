/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "range.h"

/* of no object of the driver's */
#define FIRST_ID (1ULL << 62)

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct ds_range **table; /* by address */
static size_t count, room;
static _Atomic(uint64_t) next_id = FIRST_ID;

struct ds_range *ds_range_new(unsigned int pieces)
{
	struct ds_range *range = calloc(1, sizeof(*range) + pieces * sizeof(range->pieces[0]));

	if (range)
		range->id = atomic_fetch_add(&next_id, 1);
	return range;
}

/* the first whose base is above the address */
static size_t above(CUdeviceptr address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (table[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool ds_range_add(struct ds_range *range)
{
	bool added = true;
	size_t at;

	pthread_mutex_lock(&lock);
	if (count == room) {
		size_t wider = room ? 2 * room : 256;
		struct ds_range **moved = realloc(table, wider * sizeof(*moved));

		if (moved) {
			table = moved;
			room = wider;
		} else {
			added = false;
		}
	}
	if (added) {
		at = above(range->base);
		memmove(table + at + 1, table + at, (count - at) * sizeof(*table));
		table[at] = range;
		count++;
	}
	pthread_mutex_unlock(&lock);
	return added;
}

void ds_range_remove(const struct ds_range *range)
{
	size_t at;

	pthread_mutex_lock(&lock);
	at = above(range->base);
	if (at && table[at - 1] == range) {
		memmove(table + at - 1, table + at, (count - at) * sizeof(*table));
		count--;
	}
	pthread_mutex_unlock(&lock);
}

struct ds_range *ds_range_find(CUdeviceptr address)
{
	struct ds_range *found = NULL;
	size_t at;

	/* most programs have none */
	if (!__atomic_load_n(&count, __ATOMIC_RELAXED))
		return NULL;
	pthread_mutex_lock(&lock);
	at = above(address);
	if (at && address - table[at - 1]->base < (table[at - 1]->reserved ? table[at - 1]->reserved : table[at - 1]->size))
		found = table[at - 1];
	pthread_mutex_unlock(&lock);
	return found;
}

struct ds_range *ds_range_next(CUdeviceptr from)
{
	struct ds_range *found;
	size_t at;

	pthread_mutex_lock(&lock);
	at = from ? above(from - 1) : 0;
	found = at < count ? table[at] : NULL;
	pthread_mutex_unlock(&lock);
	return found;
}

void ds_range_hold(void)
{
	pthread_mutex_lock(&lock);
}

void ds_range_let_go(void)
{
	pthread_mutex_unlock(&lock);
}

void ds_range_reset(void)
{
	lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	table = NULL;
	count = 0;
	room = 0;
}
