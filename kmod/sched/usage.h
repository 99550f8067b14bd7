/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What entities use of a GPU, an estimate, for no driver tells: the time in which an entity had something to do (busy.h) and was not paused, times
 * its part of a round of the run list among all that had then (turns.h).
 *
 * What an entity did becomes known late, and of each entity at another moment. So its spells of work are kept until all entities of the runq are
 * known up to a moment, and are charged up to there for all of them at once: else each would look alone on the GPU, and pay for all of it.
 */
#ifndef DETSHARE_USAGE_H
#define DETSHARE_USAGE_H

#include <linux/time64.h>
#include <linux/types.h>

#include "spell.h"

/* Nobody's silence keeps the others from being charged for longer. */
#define DS_USAGE_LATE_NS (200 * NSEC_PER_MSEC)

struct ds_runq;
struct ds_entity;

/*
 * Charges all entities of the runq, for its work item: entity->used_ns, and what came to that now in entity->usage.charged. Up to when, ktime:
 * DS_USAGE_LATE_NS ago at least. Who is not known up to there is taken for being at work until then.
 */
u64 ds_usage_charge(struct ds_runq *runq, u64 now);
/* The entity goes: what it used and is not charged for yet, beside those that are at work now; ns. With the runq's members. */
u64 ds_usage_end(struct ds_entity *entity, u64 now);

#endif
