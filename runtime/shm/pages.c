/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of a GPU as those see them who only read the policy or count. */
#include <stddef.h>
#include <sys/mman.h>

#include "log.h"
#include "pages.h"
#include "thread.h"

#define LEAST_NAP_NS 1000000ULL
#define MOST_NAP_NS 20000000ULL
#define FOREVER UINT32_MAX

bool ds_pages_room_wait(const struct ds_pages *pages, struct ds_room *room, size_t bytes)
{
	uint32_t limit_ms = __atomic_load_n(&pages->policy->room_ms, __ATOMIC_RELAXED);
	uint64_t now = ds_now_ns();

	if (room->most_ms && room->most_ms < limit_ms)
		limit_ms = room->most_ms;
	if (!limit_ms)
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

void ds_pages_room_over(const struct ds_pages *pages, const struct ds_room *room, size_t bytes)
{
	if (room->began)
		__atomic_fetch_sub(&pages->counters->room_bytes, bytes, __ATOMIC_RELAXED);
}

void ds_pages_unmap(const struct ds_pages *pages)
{
	munmap((void *)pages->policy, DS_PAGE_BYTES);
	munmap(pages->counters, DS_PAGE_BYTES);
	munmap(pages->activity, DS_PAGE_BYTES);
}

struct ds_tier ds_pages_tier(const struct ds_pages *pages, unsigned int tier)
{
	struct ds_tier none = { .kind = DS_TIER_FULL };

	if (!pages || tier >= DS_TIERS)
		return none;
	return pages->policy->tiers[tier];
}

void ds_pages_remap(const struct ds_pages *pages)
{
	if (pages)
		__atomic_fetch_add(&pages->counters->remaps, 1, __ATOMIC_RELAXED);
}

void ds_pages_full_run(const struct ds_pages *pages, unsigned int reason)
{
	if (pages)
		__atomic_fetch_add(&pages->counters->full_runs[reason < DS_FULL_REASONS ? reason : DS_FULL_OTHER], 1, __ATOMIC_RELAXED);
}

void ds_pages_unmanaged(const struct ds_pages *pages)
{
	if (pages)
		__atomic_fetch_add(&pages->counters->unmanaged, 1, __ATOMIC_RELAXED);
}

void ds_pages_pool(const struct ds_pages *pages, uint64_t bytes, uint64_t create_ns)
{
	if (!pages)
		return;
	__atomic_store_n(&pages->counters->pool_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&pages->counters->pool_create_ns, create_ns, __ATOMIC_RELAXED);
}
