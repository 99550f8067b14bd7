/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spot checks of the foreground (rotation.h). While it leaves gaps nothing depends on when each of its launches comes, and whoever looks at it makes
 * them dearer: a fault for each burst, and the page's dirty bit. So the driver is asked at random moments whether any of it works. Where it nearly
 * always does, or the driver does not tell, it is looked at for a measurement (activity.h).
 *
 * The runq's work item's own. State: struct ds_spots.
 */
#ifndef DETSHARE_SPOTS_H
#define DETSHARE_SPOTS_H

#include <linux/types.h>

struct ds_entity;
struct ds_runq;

/* Is it of the foreground, may it work, and does the driver tell of it? */
typedef bool (*ds_spots_of_fn)(const struct ds_entity *entity);

/*
 * Asks, and takes answers; an answer brings a scan. Only while they are enough (ds_spots.suffice), and again at ds_spots.next_ns while no answer is
 * awaited. false: the driver does not tell.
 */
bool ds_spots_scan(struct ds_runq *runq, u64 now, ds_spots_of_fn of);
/* It was looked at, and leaves gaps: spot checks are enough. */
void ds_spots_begin(struct ds_runq *runq, u64 now);

#endif
