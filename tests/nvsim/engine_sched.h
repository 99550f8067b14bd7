/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who has an engine, when: a discrete-event model of one runlist. Plain C without kernel calls,
 * locks or allocation, so that user-space tests run it. Times are ns of a clock that the caller
 * moves forward with sched_advance().
 *
 * A TSG keeps the engine for its slice, or until it has nothing to do. Before another TSG's slice
 * nobody has the engine for switch_ns; the restore of its context, restore_ns, is the first part of
 * that slice, and nothing of it runs meanwhile. A restore is not broken off: who comes waits for its
 * end, and a slice that is over by then has done nothing; the end of a longer one is acted on late. Who goes on pays for neither. A kernel is
 * taken off at the end of the slice and goes on at the TSG's next turn, unless the TSG waits for idle (wfi): then it keeps the engine until
 * what runs has ended, and starts nothing new. Turns follow the round that the interleave levels make: LOW once,
 * MEDIUM once per LOW, HIGH before every MEDIUM and every LOW. Channels are in order. Kernels of
 * one TSG run side by side where their SMs fit, first come first served.
 */
#ifndef NVSIM_ENGINE_SCHED_H
#define NVSIM_ENGINE_SCHED_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#define SCHED_LEVELS 3
#define SCHED_NEVER  ((u64) - 1)

/* intrusive ring of links; a link that is in no ring points at itself */
struct sched_link {
	struct sched_link *next, *prev;
};

enum sched_state {
	CHAN_IDLE,    /* nothing known to do */
	CHAN_HOST,    /* has methods to process, which takes its TSG's turn */
	CHAN_BLOCKED, /* waits for a semaphore */
	CHAN_WAITING, /* kernel launched or taken off, holds no SMs */
	CHAN_RUNNING, /* kernel holds SMs of its TSG's context */
	CHAN_DEAD,    /* faulted, or its TSG is gone: does nothing any more */
};

struct sched_chan {
	struct sched_tsg *tsg;
	struct sched_link in_tsg;
	enum sched_state state;
	bool counted;	/* is in its TSG's number of runnable channels */
	bool scheduled; /* enabled on its own, whatever the TSG says */
	bool held;	/* disabled with preemption: what ran was taken off */
	bool hung;	/* does nothing any more, though it is not dead */
	u32 disabled;	/* nesting */
	/* the kernel */
	u64 left;  /* ns; SCHED_NEVER: until somebody ends it */
	u64 ran;   /* ns */
	u64 order; /* of arrival, for first come first served */
	u32 sms;
	u64 finished; /* kernels */
};

struct sched_tsg {
	struct sched_runlist *rl;
	struct sched_link in_level;
	struct sched_link chans;
	u32 level;
	u64 slice;
	bool enabled;
	bool wfi; /* a kernel is never taken off: its turn lasts until what runs has ended */
	u32 runnable; /* channels */
	u32 sms_used;
	u64 gpu_time; /* ns in which a kernel of it ran */
};

struct sched_runlist {
	u32 sms;
	u64 switch_ns, restore_ns;
	u64 late_ns; /* the end of a slice after a switch is acted on so late; not where it is over before anything ran */
	u64 save_ns; /* more, where a kernel was taken off in its midst; 0: it is in switch_ns */
	u64 clock;
	u64 orders;
	/*
	 * Methods of chan, from time `when` on: return the state it is left in. WAITING: left and
	 * sms were filled in. HOST: more is left to process, it is called again 10 us later. Called
	 * only for channels in state HOST.
	 */
	enum sched_state (*step)(struct sched_chan *chan, u64 when);
	/* NULL, or: the TSG's context comes to the engine, or leaves it. */
	void (*log)(struct sched_runlist *rl, struct sched_tsg *tsg, bool begins, u64 when);
	struct sched_link level[SCHED_LEVELS];
	u32 runnable[SCHED_LEVELS]; /* TSGs */
	/* the round: highs from `high` on, then the anchor, which is a MEDIUM or a LOW */
	struct sched_tsg *high, *anchor, *low;
	/* the engine */
	struct sched_tsg *loaded; /* whose context is on it */
	bool turn;		  /* loaded may go on: its slice has not ended */
	bool expired;		  /* its turn ends with what runs, alone or not */
	struct sched_tsg *shown;  /* who came by the log, and has not left */
	/* the engine is saved until free, nobody has it until load_end, nothing runs until ready */
	u64 free, load_end, ready, slice_end;
	u64 busy, switching, restoring; /* ns */
	u64 switches;
};

void sched_runlist_init(struct sched_runlist *rl, u32 sms, u64 switch_ns, u64 restore_ns,
			enum sched_state (*step)(struct sched_chan *, u64));
/* Run everything up to now; a now before the clock is the clock. */
void sched_advance(struct sched_runlist *rl, u64 now);
/* When something happens by itself next; SCHED_NEVER. Right after sched_advance() only. */
u64 sched_next(const struct sched_runlist *rl);

/*
 * What follows changes the picture at the present clock: call sched_advance() to the present time
 * before, and again after, so that the change acts.
 */
void sched_tsg_add(struct sched_runlist *rl, struct sched_tsg *tsg, u32 level, u64 slice);
void sched_tsg_remove(struct sched_tsg *tsg); /* its channels become dead */
void sched_tsg_set_level(struct sched_tsg *tsg, u32 level);
void sched_tsg_set_slice(struct sched_tsg *tsg, u64 slice);
void sched_tsg_enable(struct sched_tsg *tsg, bool enable);
void sched_tsg_preempt(struct sched_tsg *tsg);
void sched_tsg_set_wfi(struct sched_tsg *tsg, bool wfi);
/* To the top of its level: the first of each round. */
void sched_tsg_first(struct sched_tsg *tsg);
/* The present turn ends and the round begins anew. */
void sched_restart(struct sched_runlist *rl);
const char *sched_tsg_state(const struct sched_tsg *tsg);
/*
 * The next TSG of the round, runnable or not; NULL without any. For tests: it moves the round on.
 * /
 */
struct sched_tsg *sched_round_next(struct sched_runlist *rl);

void sched_chan_add(struct sched_tsg *tsg, struct sched_chan *chan);
void sched_chan_remove(struct sched_chan *chan);
void sched_chan_wake(struct sched_chan *chan); /* there are methods: IDLE or BLOCKED to HOST */
/* of a running one: it ends at the present clock */
void sched_chan_end_kernel(struct sched_chan *chan);
void sched_chan_fault(struct sched_chan *chan);
void sched_chan_hang(struct sched_chan *chan);
void sched_chan_schedule(struct sched_chan *chan, bool enable);
void sched_chan_disable(struct sched_chan *chan, bool disable, bool only_scheduling);
bool sched_chan_on_engine(const struct sched_chan *chan); /* its kernel makes progress now */

#endif
