/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One scan of a runq: what holds for each entity, what it did, whose turn it is, and so which doors are shut and who is paused. The module does it
 * by itself, within a millisecond and without anybody in user space. Who is looked at: activity.h. So while nobody is held, nobody has turns
 * and no GPU time is counted, nothing is armed, sampled or timed.
 */
#ifndef DETSHARE_SCAN_H
#define DETSHARE_SCAN_H

struct ds_runq;

/* runq.c's. */
void ds_scan_init_runq(struct ds_runq *runq);

#endif
