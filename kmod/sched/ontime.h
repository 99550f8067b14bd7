/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For how long an entity's channels were on. A call that is under way counts as done when it began; what the answer says otherwise is put
 * right by the next look. So what is said may fall, and the differences between two looks add up to what was, however long calls take.
 */
#ifndef DETSHARE_ONTIME_H
#define DETSHARE_ONTIME_H

#include <linux/minmax.h>

#include "entity.h"

/* The driver has answered; `was`: off before. Under runq->lock. */
static inline void ds_ontime_settle(struct ds_entity_pause *pause, bool was)
{
	if (!was && pause->off)
		pause->ran_ns += pause->off_ns - min(pause->off_ns, pause->since_ns);
	else if (was && !pause->off)
		pause->since_ns = max(pause->on_ns, pause->off_ns);
}

/* ns since some time. Under runq->lock. */
static inline u64 ds_ontime(const struct ds_entity_pause *pause, u64 now)
{
	bool moves = pause->moves & 1;
	u64 to = now;

	if (pause->off)
		return pause->ran_ns + (moves && !pause->wanted ? now - min(now, pause->moving_ns) : 0);
	if (moves && pause->wanted)
		to = pause->moving_ns;
	return pause->ran_ns + to - min(to, pause->since_ns);
}

/* Is something of it to be put right yet? Under runq->lock. */
static inline bool ds_ontime_is_open(const struct ds_entity_pause *pause)
{
	return pause->moves & 1 || pause->asked != pause->settled;
}

#endif
