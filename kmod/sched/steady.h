/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When to look next at who launches all the time and only pays for it (activity.c). Two looks close to each other tell whether it does: of a
 * long time one launch is enough to find life. So each other look follows soon, and a rest between launches is found as if nobody had been away.
 */
#ifndef DETSHARE_STEADY_H
#define DETSHARE_STEADY_H

#include <linux/minmax.h>
#include <linux/time64.h>
#include <linux/types.h>

/* It is left alone for this part of the time for which it launches, and no longer than that. */
#define DS_STEADY_PART 32
#define DS_STEADY_MOST_NS (4 * NSEC_PER_MSEC)

/* Begins with nothing but 0. */
struct ds_steady {
	u64 since_ns;	/* since when each look found that it launches, ktime; 0: the last did not */
	bool away;	/* it is left alone for long */
	bool was_away;	/* it was until the last look */
};

/* A look; true: it launches no more, and nobody had looked for long. */
static inline bool ds_steady_look(struct ds_steady *steady, u64 now, bool launches)
{
	steady->was_away = steady->away;
	steady->away = false;
	if (!launches)
		steady->since_ns = 0;
	else if (!steady->since_ns)
		steady->since_ns = now;
	return !launches && steady->was_away;
}

/* After how long the next look is due, `least` or more. */
static inline u64 ds_steady_gap(struct ds_steady *steady, u64 now, u64 least)
{
	u64 gap = least;

	if (steady->since_ns && !steady->was_away)
		gap = clamp_t(u64, (now - steady->since_ns) / DS_STEADY_PART, least, DS_STEADY_MOST_NS);
	steady->away = gap > least;
	return gap;
}

#endif
