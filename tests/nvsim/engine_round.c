// SPDX-License-Identifier: GPL-2.0-only
/* The round that the interleave levels make: who has the next turn. See engine_sched.h. */
#include "engine_round.h"

static struct sched_tsg *first_of(const struct sched_runlist *rl, u32 level)
{
	const struct sched_link *ring = &rl->level[level];

	return ring->next == ring ? NULL : TSG(ring->next);
}

static struct sched_tsg *after(const struct sched_runlist *rl, const struct sched_tsg *tsg)
{
	return tsg->in_level.next == &rl->level[tsg->level] ? NULL : TSG(tsg->in_level.next);
}

static struct sched_tsg *first_anchor(const struct sched_runlist *rl)
{
	struct sched_tsg *medium = first_of(rl, 1);

	return medium ? medium : rl->low;
}

static struct sched_tsg *next_anchor(struct sched_runlist *rl)
{
	struct sched_tsg *medium;

	if (!rl->anchor)
		return first_anchor(rl);
	if (rl->anchor->level == 1) {
		medium = after(rl, rl->anchor);
		if (medium)
			return medium;
		return rl->low ? rl->low : first_of(rl, 1);
	}
	rl->low = after(rl, rl->low);
	if (!rl->low)
		rl->low = first_of(rl, 0);
	return first_anchor(rl);
}

struct sched_tsg *sched_round_next(struct sched_runlist *rl)
{
	struct sched_tsg *tsg;
	int tries;

	for (tries = 0; tries < 2; tries++) {
		if (rl->high) {
			tsg = rl->high;
			rl->high = after(rl, tsg);
			return tsg;
		}
		tsg = rl->anchor;
		rl->anchor = next_anchor(rl);
		rl->high = first_of(rl, 2);
		if (tsg)
			return tsg;
	}
	return NULL;
}

/* Levels without anything to do are passed over in one step. */
struct sched_tsg *sched_round_pick(struct sched_runlist *rl)
{
	struct sched_tsg *tsg;

	if (!rl->runnable[0] && !rl->runnable[1] && !rl->runnable[2])
		return NULL;
	for (;;) {
		if (!rl->runnable[2])
			rl->high = NULL;
		if (!rl->high && rl->anchor && rl->anchor->level == 1 && !rl->runnable[1] &&
		    rl->low)
			rl->anchor = rl->low;
		tsg = sched_round_next(rl);
		if (tsg && tsg->runnable)
			return tsg;
	}
}

void sched_round_restart(struct sched_runlist *rl)
{
	rl->low = first_of(rl, 0);
	rl->anchor = first_anchor(rl);
	rl->high = first_of(rl, 2);
}

void sched_tsg_first(struct sched_tsg *tsg)
{
	struct sched_link *level = &tsg->rl->level[tsg->level];

	link_remove(&tsg->in_level);
	link_append(level->next, &tsg->in_level);
}

void sched_round_join(struct sched_runlist *rl, struct sched_tsg *tsg, u32 level)
{
	tsg->level = level;
	link_append(&rl->level[level], &tsg->in_level);
	if (level == 0 && !rl->low)
		rl->low = tsg;
	if (!rl->anchor && level < 2)
		rl->anchor = tsg;
	if (tsg->runnable)
		rl->runnable[level]++;
}

void sched_round_leave(struct sched_runlist *rl, struct sched_tsg *tsg)
{
	if (rl->high == tsg)
		rl->high = after(rl, tsg);
	if (rl->anchor == tsg) {
		rl->anchor = next_anchor(rl);
		if (rl->anchor == tsg)
			rl->anchor = NULL;
	}
	if (rl->low == tsg) {
		rl->low = after(rl, tsg);
		if (!rl->low)
			rl->low = first_of(rl, 0);
		if (rl->low == tsg)
			rl->low = NULL;
	}
	link_remove(&tsg->in_level);
	if (tsg->runnable)
		rl->runnable[tsg->level]--;
	if (!rl->anchor)
		rl->anchor = first_anchor(rl);
}
