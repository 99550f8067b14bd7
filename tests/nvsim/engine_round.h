/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What engine_sched.c, engine_round.c and engine_chan.c have of each other, and the rings that they
 * are made of. Plain C, as engine_sched.h.
 */
#ifndef NVSIM_ENGINE_ROUND_H
#define NVSIM_ENGINE_ROUND_H

#include "engine_sched.h"

#define link_entry(link, type, member) ((type *)((char *)(link) - offsetof(type, member)))
#define TSG(link)		       link_entry(link, struct sched_tsg, in_level)
#define CHAN(link)		       link_entry(link, struct sched_chan, in_tsg)
#define for_each_link(at, ring)	       for ((at) = (ring)->next; (at) != (ring); (at) = (at)->next)

static inline void link_init(struct sched_link *link)
{
	link->next = link;
	link->prev = link;
}

static inline void link_append(struct sched_link *ring, struct sched_link *link)
{
	link->prev = ring->prev;
	link->next = ring;
	ring->prev->next = link;
	ring->prev = link;
}

static inline void link_remove(struct sched_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	link_init(link);
}

/* The next TSG of the round that has something to do; NULL without any. */
struct sched_tsg *sched_round_pick(struct sched_runlist *rl);
void sched_round_restart(struct sched_runlist *rl);
void sched_round_join(struct sched_runlist *rl, struct sched_tsg *tsg, u32 level);
void sched_round_leave(struct sched_runlist *rl, struct sched_tsg *tsg);

/* A channel's state or what it depends on has changed: its TSG's number of runnable ones follows. */
void sched_chan_recount(struct sched_chan *chan);
void sched_chan_set(struct sched_chan *chan, enum sched_state state);
void sched_chan_kernel_done(struct sched_chan *chan);

/* The loaded TSG's restore is over, so its kernels run. */
bool sched_resident(const struct sched_runlist *rl);
/* Nobody's context is on the engine: who comes next, be it the same, is loaded anew. midst: of a kernel, which is saved. */
void sched_unload(struct sched_runlist *rl, bool midst);

#endif
