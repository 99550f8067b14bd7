/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs use of a GPU, an estimate, for no driver tells: the time in which a run had something to do (busy.h) and was not paused, times
 * its part of a round of the run list among all that had then (turns.h).
 *
 * What a run did becomes known late, and of each run at another moment. So its spells of work are kept until all runs of the lane are
 * known up to a moment, and are charged up to there for all of them at once: else each would look alone on the GPU, and pay for all of it.
 */
#ifndef DETSHARE_USAGE_H
#define DETSHARE_USAGE_H

#include <linux/types.h>

#include "spell.h"

struct ds_lane;
struct ds_run;

/*
 * Charges all runs of the lane, for its work item: run->used_ns, and what came to that now in run->usage.charged. Up to when, ktime: 200 ms
 * ago at least. Who is not known up to there is taken for being at work until then.
 */
u64 ds_usage_charge(struct ds_lane *lane, u64 now);
/* The run goes: what it used and is not charged for yet, beside those that are at work now; ns. With the lane's members. */
u64 ds_usage_end(struct ds_run *run, u64 now);

#endif
