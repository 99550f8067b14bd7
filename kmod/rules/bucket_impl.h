/* SPDX-License-Identifier: GPL-2.0-only */
/* What is kept of buckets: for bucket.c, the table, and spend.c, which fills and drains them. */
#ifndef DETSHARE_BUCKET_IMPL_H
#define DETSHARE_BUCKET_IMPL_H

#include <linux/list.h>
#include <linux/mutex.h>

#include "bucket.h"

/* What it holds on one GPU. */
struct ds_level {
	s64 ns;		/* below 0: used before it could be held back */
	u64 at;		/* ktime up to which it was filled and what was used is taken out; 0: never, so it is full */
	u64 rest;	/* what is too little to come in, fill.h's */
	u64 used, emptied;
	bool empty;
};

struct ds_bucket {
	struct ds_subject subject;	/* held; the first */
	struct list_head link;
	u64 rate;			/* us in a second, so ns in a ms */
	u64 burst;			/* ns */
	struct ds_level levels[RM_GPUS];
};

/* Guards all of this. Inside ds_runq.members. */
extern struct mutex ds_buckets_lock;
extern struct list_head ds_buckets;

/* Those of who is gone go. Under ds_buckets_lock. */
void ds_buckets_reap(void);

/* The index-th one as it is; false: there are no so many. *info's subject is to be put. */
bool ds_bucket_copy(unsigned int index, struct ds_bucket_info *info);

#endif
