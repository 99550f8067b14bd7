/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One look at a lane: what holds for each run, what it did, whose turn it is, and so which doors are shut and who is paused. The module does it
 * by itself, within a millisecond and without anybody in user space. Who is looked at: activity.h. So while nobody is held, nobody has turns
 * and no GPU time is counted, nothing is armed, sampled or timed.
 */
#ifndef DETSHARE_LOOK_H
#define DETSHARE_LOOK_H

struct ds_lane;

/* lane.c's. */
void ds_look_init_lane(struct ds_lane *lane);

#endif
