/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of a GPU as those see them who only read the policy or count. */
#include <stddef.h>
#include <sys/mman.h>

#include "pages.h"

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
