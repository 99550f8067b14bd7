/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entities: what is scheduled. An entity is the scheduling state of one vCtx (a client on a GPU), made with its first channel group,
 * channel or doorbell. Its process says what holds for it: class, bucket, holds.
 *
 * Each GPU has a runq: its entities, and the turns between them (rotation.h). One work item per runq (scan.h) decides and shuts and opens
 * gates, so holds of a gate never race each other; pauses are carried out by a work item per run (pause.h), for they ask the
 * driver.
 *
 * Locks: ds_runq.members is held to add, remove and go through entities where one may sleep; taken after ds_file.order and orders,
 * never together with ds_clients_lock or ds_client.tree. ds_runq.lock is a leaf and a spinlock: nothing is taken inside, and a
 * fault may take it.
 */
#ifndef DETSHARE_ENTITY_H
#define DETSHARE_ENTITY_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "client.h"
#include "events.h"
#include "gate.h"
#include "process.h"
#include "spell.h"
#include "state.h"

/* What the class of an entity's process says. */
struct ds_rule {
	char class[DETSHARE_NAME_MAX + 1];	/* "": none */
	u32 weight;
	u32 floor;		/* permille */
	u64 turn_ns;		/* at weight 1; 0: it has no turns */
	u32 turn_rank;		/* who has a higher one goes first */
	u64 account;		/* who has one turn together: a name to compare, not 0 */
};

/* Pausing: pause.c's. */
struct ds_entity_pause {
	struct work_struct work;
	struct delayed_work retry;
	bool forgotten;		/* nothing is tried again */
	wait_queue_head_t wait;
	u32 wanted;		/* DETSHARE_HOLD_*: paused while any is set; runq->lock */
	u64 asked, settled;	/* counts changes of wanted, and those that the driver has answered; runq->lock */
	bool off;		/* channels are off the run list; runq->lock */
	u32 channels;		/* that are off by us, or may be; runq->lock */
	u32 status;		/* NV_STATUS of the last call, or DS_RM_GONE; runq->lock */
	int err;		/* why it cannot be paused: -EOPNOTSUPP (shared with others by MPS), -ENODEV, -EREMOTEIO, -EIO; runq->lock */
	unsigned int failures;	/* in a row; the work item's own */
	u64 moving_ns;		/* since when a call is under way, 0: none is; runq->lock */
	unsigned int moves;	/* odd from the first call of a move until `off` says what came of it, even in between; runq->lock */
	u64 off_ns, on_ns;	/* ktime at which it was taken off, put back, about; runq->lock */
	u64 ran_ns;		/* in which it was on, but for the time since then; runq->lock */
	u64 since_ns;		/* since when it is on, ktime; runq->lock */
	bool stuck;		/* off, and the driver refused to put it back; runq->lock */
};

struct ds_entity {
	struct list_head link;
	refcount_t refs;
	/* constant */
	struct ds_runq *runq;
	u32 gpu, client;
	u64 vctx;
	struct ds_process *process;	/* held */
	struct ds_gate *gate;
	/* guarded by runq->lock */
	bool gone;			/* its vCtx is no more */
	struct ds_rule rule;
	u32 holds;			/* by order: DS_HOLDS_* */
	bool watched;			/* somebody wants to know whether it is active; if not, it counts as active for people */
	bool active;
	u64 since_ns;			/* since when it is, or the last time it was */
	u64 last_ns;			/* last sign of activity, or of wanting to be active */
	u64 launched_ns;		/* last sign of having something to do */
	u64 seen_ns;			/* last kick that was caught, 0: none */
	bool fresh;			/* one was, and the runq has not looked since */
	u64 used_ns;			/* estimated GPU time; the runq's work item writes it */
	u64 known_ns;			/* ktime up to which it is known what it did */
	u64 busy_ns;			/* since it showed life last, the driver's last word that it was busy; 0: none */
	u64 ended_ns;			/* since when it has nothing to do by the driver's word: ds_entity_ended() */
	struct ds_spell rest;		/* before its last launch, not seen by usage.c yet; to 0: none */
	unsigned int rests;		/* that the driver told of, and that were not taken as a sign of one that it did not */
	unsigned int tsgs;		/* compute channel groups */
	u64 slice_us;			/* of each, as set by us; 0: as it was */
	s32 level;			/* the same, -1 */
	/* the runq's work item's own */
	u32 wanted;			/* DETSHARE_HOLD_*: that the gate is to have */
	u32 gated;			/* that it has */
	bool counted;			/* a bucket is meant for it */
	bool spent;			/* that is empty */
	u64 resumed_ns;			/* when it was let go on with what it had begun, ktime: launched_ns then. 0: never */
	bool fixed;			/* it was found to share channel groups: it cannot be off */
	bool spans;			/* its tenant has turns on several GPUs, on all of them at once */
	bool resting;			/* off, for it is another's turn, or window */
	u64 on_told;			/* ds_ontime() at the last look, 0: there was none */
	s64 on_new;			/* since the look before */
	s64 on_unpaid;			/* what may have been beside a foreground that leaves no gaps */
	struct ds_usage usage;
	struct ds_entity_unseen unseen;
	struct ds_entity_pause pause;
	struct ds_entity_busy busy;
};

struct ds_runq {
	u32 gpu;
	struct mutex members;
	struct list_head entities;		/* members for who sleeps, lock for who may not: both are held to change it */
	spinlock_t lock;
	struct work_struct work;
	struct hrtimer timer;
	bool stale;			/* rules, holds or buckets may have changed; lock */
	u64 begun, done;		/* scans so far; lock */
	wait_queue_head_t scanned;
	u64 charged_ns;			/* ktime up to which what its entities use is charged; the work item's own */
	struct ds_rotation rotation;	/* the same */
	u64 unseen_ns;			/* when one that counted as idle was asked about last, ktime; the same */
};

/* One that is in no runq yet; `kicked`: its gate's. For runq.c. NULL: no memory. */
struct ds_entity *ds_entity_make(const struct ds_client *client, const struct ds_vctx *vctx, ds_kicked_fn kicked);
struct ds_entity *ds_entity_hold(struct ds_entity *entity);
void ds_entity_put(struct ds_entity *entity);
/* The entity's client, with ds_clients_lock held for reading; NULL, and not locked: it has gone. */
struct ds_client *ds_entity_client_lock(const struct ds_entity *entity);
void ds_entity_client_unlock(void);

/* Since when it has nothing to do by the driver's word, ktime; 0: it may have, or has launched since. */
static inline u64 ds_entity_ended(const struct ds_entity *entity)
{
	u64 ended = READ_ONCE(entity->ended_ns);

	return ended > READ_ONCE(entity->launched_ns) ? ended : 0;
}

/*
 * Is any of its channels off the run list, or may be, for a call failed? Of such ones the driver says that they are idle, whatever they had begun. Any
 * context.
 */
static inline bool ds_entity_in_doubt(const struct ds_entity *entity)
{
	return READ_ONCE(entity->pause.off) || READ_ONCE(entity->pause.channels);
}

/* Are its channels off, or about to be? Any context. */
static inline bool ds_entity_paused(struct ds_entity *entity)
{
	unsigned long flags;
	bool paused;

	spin_lock_irqsave(&entity->runq->lock, flags);
	paused = !entity->gone && (entity->pause.wanted || entity->pause.off);
	spin_unlock_irqrestore(&entity->runq->lock, flags);
	return paused;
}

/* The runq looks again, soon. Any context. */
void ds_runq_scan(struct ds_runq *runq);
/* What holds for somebody has changed: all runqs with entities look again, soon. Any context. */
void ds_runqs_stale(void);
/*
 * The same, and on return gates are as they should be and pauses are under way. Sleeps; no lock of this module's but ds_file.order. false: a runq
 * has not been scanned for DS_RM_PATIENCE, which the log says; it does so later.
 */
bool ds_runqs_settle(void);
/* The runq is scanned once more, which is waited for. false: the current task is being killed. */
bool ds_runq_settle_killable(struct ds_runq *runq);
/* Calls `tell` for each entity until that returns non-zero, and returns that. Sleeps, members held. */
int ds_entities_each(int (*tell)(struct ds_entity *entity, void *data), void *data);

/* Channel groups: how many they are, what they have. The caller holds the order of the file, or what it says. */
void ds_entity_count_tsgs(struct ds_client *client, u32 gpu);
void ds_entity_tsg_gone(struct ds_entity *entity);	/* under client->tree */
void ds_entity_turns(struct ds_entity *entity, u64 slice_us, s32 level);

/* What happens between people and an entity: for entity-get. A copy; `process` is held. */
struct ds_entity_info {
	struct ds_process *process;
	u64 vctx;
	u32 gpu, client;
	struct ds_rule rule;
	u32 state;		/* enum detshare_entity_state */
	u32 reasons;		/* DETSHARE_HOLD_* */
	u64 last_ns;		/* CLOCK_MONOTONIC of the last launch seen, 0: none */
	u64 idle_ns;
	u64 held_ns;		/* since when it is shut, 0: open */
	u64 used_us;
	u32 tsgs, channels_off;
	u32 tpc_percent;	/* ceiling in force, 0: none */
	int pause_err;		/* as ds_entity_pause.err */
	u32 pause_status;
	struct ds_gate_stats gate;
};

/* The index-th entity of all GPUs; false: there are no so many. *info's process is to be put. */
bool ds_entity_at(unsigned int index, struct ds_entity_info *info);

unsigned int ds_entity_count(void);
/* Entities of the class. gpu: DS_ALL_GPUS, all. */
unsigned int ds_entity_count_class(const char *class, u32 gpu);
void ds_entity_event(const struct ds_entity *entity, struct ds_event_entity *event);

/* Is nobody to be held? As runq.c says. */
bool ds_entities_free(void);
void ds_entities_set_free(bool free);

/* Of a GPU below RM_GPUS. */
struct ds_runq *ds_runq_at(u32 gpu);

int ds_entity_init(void (*init_runq)(struct ds_runq *runq));
void ds_entity_exit(void (*exit_runq)(struct ds_runq *runq));

#endif
