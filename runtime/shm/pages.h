/* SPDX-License-Identifier: Apache-2.0 */
/* The three pages that the daemon gave for a GPU, and what is read and counted there. NULL in place of them: none, nothing is counted. */
#ifndef DS_PAGES_H
#define DS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "board.h"

struct ds_pages {
	struct ds_activity *activity;
	const struct ds_policy *policy;
	struct ds_counters *counters;
	struct ds_slot *slot; /* ours, of activity */
	unsigned int index; /* of slot */
};

/* Memory of the driver's own is waited for no longer than this: that room helps is a guess. */
#define DS_ROOM_OWN_MS 60000U

/* A wait for room on the GPU. */
struct ds_room {
	uint64_t began; /* 0: it did not wait */
	uint64_t nap;
	uint32_t most_ms; /* 0: as long as the policy page says */
};

/* Naps, and has the daemon know of so many bytes. false: it is not to wait, or not any longer, and the driver's answer counts. */
bool ds_pages_room_wait(const struct ds_pages *pages, struct ds_room *room, size_t bytes);
/* The call got its memory, or gave up. */
void ds_pages_room_over(const struct ds_pages *pages, const struct ds_room *room, size_t bytes);

void ds_pages_unmap(const struct ds_pages *pages);
/* the policy's tier; kind DS_TIER_FULL with sms 0 where it has none */
struct ds_tier ds_pages_tier(const struct ds_pages *pages, unsigned int tier);
void ds_pages_remap(const struct ds_pages *pages); /* counts a move */
void ds_pages_full_run(const struct ds_pages *pages, unsigned int reason); /* counts DS_FULL_* */
void ds_pages_unmanaged(const struct ds_pages *pages); /* counts a context that runs natively */
void ds_pages_pool(const struct ds_pages *pages, uint64_t bytes, uint64_t create_ns); /* what the pool costs */

#endif
