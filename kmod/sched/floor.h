/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Floors: a class that is held and was owed its part of a period of 100 ms gets that part of the GPU by a slice, until the debt is paid. One of
 * its runs at a time is let go for that: slices of all of them at once would be shorter than a switch.
 */
#ifndef DETSHARE_FLOOR_H
#define DETSHARE_FLOOR_H

#include <linux/types.h>

struct ds_run;

#define DS_PERIOD_US 100000ULL
/* Floors above this (permille) leave nothing for whom they are defended against. */
#define DS_FLOOR_MOST 900

/* One look of the lane's work item, as far as floors need it. */
struct ds_floor_look {
	u64 now;
	u64 elapsed;	/* since the last one, ns */
	u32 top;	/* highest rank that is active, 0: none */
	bool free;	/* nobody is to be held */
};

/* Counts what the run is owed: run->debt, run->lean, run->boost_us. When to look again, ktime; KTIME_MAX: no need to. */
u64 ds_floor_count(struct ds_run *run, const struct ds_floor_look *look);

#endif
