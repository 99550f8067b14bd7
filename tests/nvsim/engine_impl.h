/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the engine share. Everything is guarded by sim_engine.lock unless it says
 * otherwise.
 */
#ifndef NVSIM_ENGINE_IMPL_H
#define NVSIM_ENGINE_IMPL_H

#include <linux/atomic.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>

#include "engine.h"
#include "engine_sched.h"
#include "ring.h"

#define SIM_CHIDS 4096
#define SIM_POSTS 64
#define SIM_LOG_WAITING 4096

/* A context came to the graphics engine, or left it. */
struct sim_switch {
	u64 when;
	u32 pid; /* 0: the kernel's own */
	kuid_t uid;
	u32 context;
	bool begins;
};

struct sim_log {
	struct list_head readers;
	u64 since; /* when the first that waits came, ktime */
	u32 count, lost;
	struct sim_switch waiting[SIM_LOG_WAITING];
};

struct sim_runlist {
	struct list_head in_engine;
	u32 id;
	struct sched_runlist sched;
	struct xarray chans; /* by chid */
	struct ida tsg_ids;
};

struct sim_engine {
	u32 gpu, sms;
	struct ring_memory memory;
	struct mutex lock;
	struct task_struct *thread;
	atomic_t kicked; /* the thread looks again before it sleeps; not guarded */
	struct list_head runlists, tsgs;
	spinlock_t doorbell_lock; /* a leaf, guards doorbells */
	struct list_head doorbells;
	struct list_head watched; /* channels whose progress hangs on memory */
	u32 chans;
	u64 unique;	     /* the last number given to a TSG or channel */
	u32 policy_client;   /* who turned interleaving off; 0: it is on */
	u64 last_ring;
	u64 expected; /* when a doorbell was about to be rung, ktime; not guarded */
	struct page *filler; /* doorbell pages behind the first */
	spinlock_t post_lock;
	u32 posted[SIM_POSTS]; /* tokens that nobody acted on yet; post_lock, as is nposted */
	u32 nposted;
	struct sim_log log;
};

struct sim_tsg {
	struct sim_engine *engine;   /* constant */
	struct sim_runlist *runlist; /* constant */
	struct list_head in_engine;
	struct sched_tsg sched;
	u32 client, handle, engine_type, id, pid; /* constant, as is the next one */
	kuid_t uid;
	u64 timeslice_us;
	u32 level;	/* as asked; it counts while interleaving is on */
	bool endless;	/* its slice is switched off */
	bool realtime;
	u32 tpc_mode;	/* SIM_TPC_* */
	u16 caps[SIM_SUBCONTEXTS]; /* SMs of a context share's kernels; 0: all */
	u32 unique;
	u64 preempts;
	u64 rings, last_ring; /* doorbells that named one of its channels; ns */
};

struct sim_chan {
	struct sim_engine *engine;   /* constant */
	struct sim_runlist *runlist; /* constant */
	struct list_head watch;
	struct sched_chan sched; /* sched.tsg is NULL once the TSG is gone */
	struct ring ring;
	struct page *userd;
	u32 userd_offset, client, handle, chid, veid, unique; /* constant */
	bool kernel_watched;		/* its kernel has `until` or `count` */
};

struct sim_doorbell {
	struct sim_engine *engine;	 /* constant, as are the next two */
	struct sim_doorbell_owner owner;
	struct page *page; /* NULL: has none */
	struct list_head in_engine;
	atomic64_t rings, last; /* not guarded */
};

/* engine.c */
void sim_engine_lock(struct sim_engine *engine);   /* and bring it to the present */
void sim_engine_unlock(struct sim_engine *engine); /* let the change act, wake the thread */
struct sim_runlist *sim_engine_runlist(struct sim_engine *engine, u32 engine_type);
enum sched_state sim_chan_step(struct sched_chan *sched, u64 when);

/* engine_doorbell.c, engine_poll.c: called with the lock held */
void sim_poll_doorbells(struct sim_engine *engine);
void sim_ring_posted(struct sim_engine *engine, u64 now);
void sim_poll_watched(struct sim_engine *engine);
/* Reads GP_PUT; whether there are entries to fetch. */
bool sim_chan_look(struct sim_chan *chan);
void sim_chan_ring(struct sim_chan *chan);

/* engine_log.c, with the lock held: sched_runlist.log; and when it is to look next */
void sim_log_note(struct sched_runlist *rl, struct sched_tsg *tsg, bool begins, u64 when);
u64 sim_log_look(struct sim_engine *engine, u64 now);

/* engine_time.c: how long controls take; sleeps, without the lock */
enum sim_cost {
	SIM_COST_TIMESLICE,
	SIM_COST_INTERLEAVE,
	SIM_COST_PREEMPT,
	SIM_COST_SCHEDULE_OFF,
	SIM_COST_CHANNELS_OFF,
	SIM_COST_CHANNELS_ON,
	SIM_COST_TPC_MODE,
	SIM_COST_HALF,
};
void sim_take_time(enum sim_cost cost, bool busy);

#endif
