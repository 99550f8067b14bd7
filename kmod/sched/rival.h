/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rivals: busy entities that no class orders, beside those that have turns. They are never off, so the holder of a turn shares the GPU with
 * them by slices, and one that is shorter than a switch ends before anything was done. Where there is a rival the holder's slice outlasts
 * a switch (shares.h, DS_SHARE_RIVAL_US).
 *
 * Their doorbells stay as they are: nobody who is not ordered pays for the turns of others. The driver is asked whether they are busy.
 */
#ifndef DETSHARE_RIVAL_H
#define DETSHARE_RIVAL_H

#include <linux/types.h>

struct ds_scan;

/* Finds out whether there is one: ds_runq.rotation.rival. `turns`: somebody on the runq has turns, and work. The runq's work item, members held. */
void ds_rival_scan(struct ds_scan *scan, bool turns);

#endif
