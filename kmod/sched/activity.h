/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Activity: which runs have something to do. A run is active from a kick on until it was quiet for a millisecond, its linger time, and the
 * driver does not say that it runs something still (busy.h). Where nothing depends on it (ds_run.watched) nobody looks, and it counts as
 * active.
 *
 * Here it is found out and written down, for look.c and rotation.c, which decide, and usage.c, which charges. In ds_run that is `watched`
 * to `rests`, without `used_ns`.
 *
 * Locks: kicked() may be called from a fault and takes lane->lock. Everything else is the lane's work item's own: ds_lane.members is held,
 * lane->lock is not, and is taken for moments.
 */
#ifndef DETSHARE_ACTIVITY_H
#define DETSHARE_ACTIVITY_H

#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/types.h>

struct ds_lane;
struct ds_run;

/* The lane's work item looks no more often than this, whatever is asked for. */
#define DS_LOOK_TICK_NS (250 * NSEC_PER_USEC)

/* One look at a lane. */
struct ds_look {
	struct ds_lane *lane;
	u64 now;
	u64 next;	/* when to look again, KTIME_MAX: when somebody says so */
	bool free;	/* nobody is to be held */
	bool metered;	/* GPU time is counted */
};

static inline void ds_look_again(struct ds_look *look, u64 when)
{
	look->next = min(look->next, max(when, look->now + DS_LOOK_TICK_NS));
}

/* A gate of a run saw its first touch; see ds_kicked_fn. */
void ds_activity_kicked(void *owner, u64 idle_ns, pid_t who);

/* Says of all runs of the lane whether they are looked at. Their rules are known. */
void ds_activity_watch(struct ds_look *look);
/* What has the run done since the last look? Asks its doorbell, USERD and the driver, and says when to look again. */
void ds_activity_sample(struct ds_look *look, struct ds_run *run);

/* It launches or has something queued: until now it may have been at work all the time. */
void ds_activity_seen(struct ds_run *run, u64 now);
/* Its gate is about to open: it is looked at again, or its next launch is news. */
void ds_activity_reopen(struct ds_look *look, struct ds_run *run);

#endif
