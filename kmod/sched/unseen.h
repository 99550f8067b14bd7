/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Launches that nobody saw. Any doorbell of a GPU rings any of its channels, so a program can be set to work by a doorbell of another's. Who
 * pays for GPU time and counts as idle is therefore asked about all the same (busy.h), at random moments some 100 ms apart. If it is busy it
 * pays for all the time since it was idle for certain, and is looked at as anybody from then on. On average that is what such launches used,
 * however short they are.
 */
#ifndef DETSHARE_UNSEEN_H
#define DETSHARE_UNSEEN_H

#include <linux/types.h>

struct ds_look;
struct ds_run;

/* Of a run; the lane's work item's own. */
struct ds_run_unseen {
	u64 vouched_ns;		/* ktime at which it had nothing to do, 0: it was not idle yet */
	u64 next_ns;		/* when it is asked about next */
	u64 asking_ns;		/* since when an answer is awaited, 0: none is */
};

/* The run counts as idle, nothing holds it. Says when to look again. */
void ds_unseen_sample(struct ds_look *look, struct ds_run *run);

#endif
