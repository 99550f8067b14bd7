/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Activity: which entities have something to do. An entity is active from a kick on until it was quiet for a millisecond, its linger time, and the
 * driver does not say that it runs something still (busy.h). Where nothing depends on it (ds_entity.watched) nobody looks, and it counts as
 * active.
 *
 * Here it is found out and written down, for scan.c and rotation.c, which decide, and usage.c, which charges. In ds_entity that is `watched`
 * to `rests`, without `used_ns`.
 *
 * Locks: kicked() may be called from a fault and takes runq->lock. Everything else is the runq's work item's own: ds_runq.members is held,
 * runq->lock is not, and is taken for moments.
 */
#ifndef DETSHARE_ACTIVITY_H
#define DETSHARE_ACTIVITY_H

#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/types.h>

struct ds_runq;
struct ds_entity;

/* The runq's work item looks no more often than this, whatever is asked for. */
#define DS_SCAN_TICK_NS (250 * NSEC_PER_USEC)

/* One scan of a runq. */
struct ds_scan {
	struct ds_runq *runq;
	u64 now;
	u64 next;	/* when to look again, KTIME_MAX: when somebody says so */
	bool free;	/* nobody is to be held */
	bool metered;	/* GPU time is counted */
	bool lone;	/* one tenant has turns, and all that is left: no turn passes, no window ends, and nobody counts or listens */
};

static inline void ds_scan_again(struct ds_scan *scan, u64 when)
{
	scan->next = min(scan->next, max(when, scan->now + DS_SCAN_TICK_NS));
}

/* A gate of an entity saw its first touch; see ds_kicked_fn. */
void ds_activity_kicked(void *owner, u64 idle_ns, pid_t who);

/* Says of all entities of the runq whether they are looked at. Their rules are known. */
void ds_activity_watch(struct ds_scan *scan);
/* What has the entity done since the last scan? Asks its doorbell, USERD and the driver, and says when to look again. */
void ds_activity_sample(struct ds_scan *scan, struct ds_entity *entity);

/* It launches or has something queued: until now it may have been at work all the time. */
void ds_activity_seen(struct ds_entity *entity, u64 now);
/* Its gate is about to open: it is looked at again, or its next launch is news. */
void ds_activity_reopen(struct ds_scan *scan, struct ds_entity *entity);

#endif
