/* SPDX-License-Identifier: Apache-2.0 */
/* The three pages that the daemon gave for a GPU, and what is read and counted there. NULL in place of them: none, nothing is counted. */
#ifndef DS_PAGES_H
#define DS_PAGES_H

#include <stdint.h>

#include "board.h"

struct ds_pages {
	struct ds_activity *activity;
	const struct ds_policy *policy;
	struct ds_counters *counters;
	struct ds_slot *slot; /* ours, of activity */
	unsigned int index; /* of slot */
};

void ds_pages_unmap(const struct ds_pages *pages);
/* the policy's tier; kind DS_TIER_FULL with sms 0 where it has none */
struct ds_tier ds_pages_tier(const struct ds_pages *pages, unsigned int tier);
void ds_pages_remap(const struct ds_pages *pages); /* counts a move */
void ds_pages_full_run(const struct ds_pages *pages, unsigned int reason); /* counts DS_FULL_* */
void ds_pages_unmanaged(const struct ds_pages *pages); /* counts a context that runs natively */
void ds_pages_pool(const struct ds_pages *pages, uint64_t bytes, uint64_t create_ns); /* what the pool costs */

#endif
