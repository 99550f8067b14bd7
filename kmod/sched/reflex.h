/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reflexes: what the module does by itself, within a millisecond and without anybody in user space. Somebody wrote a row for
 * each class; from then on, on each GPU by itself:
 *
 * - While a run of a higher rank is active, runs of lower ranks are gated; `deadline` after that, they are paused, but not for one of
 *   whom the driver is just being asked whether it still runs something.
 * - Who is active: activity.h. A run is looked at only while somebody with a lower rank is there, or GPU time is counted.
 * - A class with a `floor` does not starve (floor.h).
 *
 * So nothing is held while no one else wants the GPU, and with one class only nothing is armed, sampled or timed.
 */
#ifndef DETSHARE_REFLEX_H
#define DETSHARE_REFLEX_H

#include <linux/types.h>

#include "class.h"

struct ds_lane;

/* lane.c's. */
void ds_reflex_init_lane(struct ds_lane *lane);

#endif
