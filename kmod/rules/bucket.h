/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Buckets of GPU time. Time comes in at `rate`, up to `burst`, and goes out as the entities of the account use the GPU, on each GPU by
 * itself. When a bucket is empty its entities are gated and paused, until half a burst has come in. It is a cap, like cpu.max: it holds
 * whether or not anybody else wants the GPU.
 *
 * What an entity uses is an estimate, and known a little late (usage.h): a bucket that was overdrawn meanwhile is empty for longer.
 */
#ifndef DETSHARE_BUCKET_H
#define DETSHARE_BUCKET_H

#include <linux/types.h>

#include "limit.h"

struct ds_process;

struct ds_bucket_info {
	struct ds_subject subject;	/* held */
	u64 rate_us, burst_us;
	u64 level_us;		/* in it, on the GPU where it holds least */
	u64 used_us;		/* taken out since it was set */
	u64 emptied;		/* times */
	bool empty;		/* its entities are held now */
};

/*
 * Set anew it keeps what it holds, as far as that fits; a new one is full. rate_us: in each second, 1 to 1000000. -ENOENT: no such cgroup;
 * -ENOMEM; -ENODEV: the module is going.
 */
int ds_bucket_set(const struct ds_subject *subject, u64 rate_us, u64 burst_us);
/* -ENOENT. */
int ds_bucket_del(const struct ds_subject *subject);

/* Has the process one, or its cgroup or tenant? Sleeps. */
bool ds_bucket_meant(const struct ds_process *process);

/* Is one of them empty, on any GPU? As the runqs found it last. Sleeps. */
bool ds_bucket_empty(const struct ds_process *process);

/* For the runq's work item, with its members: is there any bucket? */
bool ds_bucket_on(void);

void ds_bucket_exit(void);

#endif
