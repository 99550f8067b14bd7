/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who gets what part of a GPU by slices and levels, while all are busy: in one round of the run list a LOW channel group has one
 * turn, a MEDIUM one as many as there are LOW ones, a HIGH one a turn before each of the others' (docs/how/class-numbers.md).
 */
#ifndef DETSHARE_TURNS_H
#define DETSHARE_TURNS_H

#include <linux/types.h>

#define DS_SWITCH_NS 200000ULL	/* loading another context, about */
#define DS_SLICE_US 2048ULL	/* of who was given none */

struct ds_turns {
	u64 turns[3];	/* of one channel group in a round, by level */
	u64 tsgs[3];
};

/* Begin with zeroes; one call for each busy entity. level: enum detshare_level, -1 is MEDIUM. */
void ds_turns_add(struct ds_turns *turns, s32 level, unsigned int tsgs);
/* When all are added. */
void ds_turns_count(struct ds_turns *turns);
/*
 * One round's part of so many channel groups, in ns: what they use, and with the switches what others wait. What does not fit is U64_MAX, so
 * no part is more than the whole, if that is added up by ds_turns_sum().
 */
u64 ds_turns_used(const struct ds_turns *turns, s32 level, unsigned int tsgs, u64 slice_us);
u64 ds_turns_taken(const struct ds_turns *turns, s32 level, unsigned int tsgs, u64 slice_us);
u64 ds_turns_sum(u64 a, u64 b);

#endif
