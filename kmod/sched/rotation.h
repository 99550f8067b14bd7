/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns: of the tenants whose class has a turn (class.h), one at a time is on a GPU's run list; the channels of the others that have
 * work are off. Who has work: activity.h; whose turn it is: rm/rota.h; off and on: pause.h.
 *
 * Above them is the foreground: the entities of other classes on a higher level. While it leaves gaps that are worth a switch they have turns
 * in those. While it leaves none, they have their floors, in windows for which the foreground is off. Who shares channel groups with
 * other processes (MPS) cannot be off: he has slices only, and no turns.
 *
 * Who has nothing to do is not off: nobody waits for what he does not ask for, and a launch that nobody saw runs.
 */
#ifndef DETSHARE_ROTATION_H
#define DETSHARE_ROTATION_H

#include <linux/types.h>

struct ds_runq;
struct ds_scan;
struct ds_entity;

/* For people. */
struct ds_rotation_info {
	u32 mode;		/* enum detshare_turn_mode */
	u64 vctx;		/* one of the holder's, 0: nobody holds the turn */
	s32 pid;
	u64 left_ms;		/* of its turn; 0: it goes on until somebody else wants the GPU */
};

/* Has its class a turn, and can it be off? */
bool ds_rotation_has(const struct ds_entity *entity);
/* Says of all entities of the runq whether they are to be off: entity->resting. */
void ds_rotation_scan(struct ds_scan *scan);
/* Members are held. */
void ds_rotation_tell(struct ds_runq *runq, struct ds_rotation_info *info);
void ds_rotation_exit(struct ds_runq *runq);

#endif
