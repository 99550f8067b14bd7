// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "bucket.h"
#include "run.h"
#include "sched.h"
#include "usage.h"

/* What it holds on one GPU. */
struct level {
	s64 ns;		/* below 0: used before it could be held back */
	u64 at;		/* ktime up to which it was filled and what was used is taken out; 0: never, so it is full */
	u64 used, emptied;
	bool empty;
};

struct bucket {
	struct ds_subject subject;	/* held; the first */
	struct list_head link;
	u64 rate;			/* us in a second, so ns in a ms */
	u64 burst;			/* ns */
	struct level levels[RM_GPUS];
};

static LIST_HEAD(buckets);
/* Inside ds_lane.members. */
static DEFINE_MUTEX(buckets_lock);
static bool stopping;

bool ds_bucket_on(void)
{
	return !list_empty_careful(&buckets);
}

/* ---- one bucket --------------------------------------------------------------------- */

/* What came in since, and what went out meanwhile: it runs over only with what is left of both. */
static void fill(struct bucket *bucket, struct level *level, u64 until, u64 used)
{
	if (level->at) {
		level->ns += mul_u64_u64_div_u64(until - min(until, level->at), bucket->rate, 1000000);
		level->ns = min_t(s64, level->ns - (s64)used, bucket->burst);
		level->used += used;
	} else {
		/* what was used before it was there is not its own */
		level->ns = bucket->burst;
	}
	level->at = until;
}

static bool runs_now(const struct ds_run *run)
{
	return run->watched && READ_ONCE(run->active) && !ds_run_ended(run) && !READ_ONCE(run->pause.off);
}

static u64 enough(const struct bucket *bucket)
{
	return max(bucket->burst / 2, 1ULL);
}

/* When it will be empty if things go on like this, or have enough again. */
static u64 next_change(const struct bucket *bucket, const struct level *level, u64 drain)
{
	if (level->empty)
		return level->at + div64_u64((enough(bucket) - level->ns) * 1000000, bucket->rate);
	if (drain <= bucket->rate)
		return KTIME_MAX;
	return level->at + div64_u64((u64)level->ns * 1000000, drain - bucket->rate);
}

static u64 turn(struct bucket *bucket, struct ds_lane *lane, u64 until)
{
	struct level *level = &bucket->levels[lane->gpu];
	u64 used = 0, drain = 0;
	struct ds_run *run;
	bool any = false;

	list_for_each_entry(run, &lane->runs, link) {
		if (!ds_subject_meant(&bucket->subject, run->process))
			continue;
		used += run->usage.charged;
		/* if it goes on as it did, but for who may be alone from now on */
		if (runs_now(run))
			drain = 1000000;
		any = true;
	}
	fill(bucket, level, until, used);
	if (!level->empty && level->ns <= 0) {
		level->empty = true;
		level->emptied++;
	} else if (level->empty && level->ns >= (s64)enough(bucket)) {
		level->empty = false;
	}
	list_for_each_entry(run, &lane->runs, link)
		run->spent |= level->empty && ds_subject_meant(&bucket->subject, run->process);
	return any ? next_change(bucket, level, drain) : KTIME_MAX;
}

u64 ds_bucket_turn(struct ds_lane *lane, u64 now)
{
	u64 next = KTIME_MAX, until = ds_usage_charge(lane, now);
	struct bucket *bucket;
	struct ds_run *run;

	list_for_each_entry(run, &lane->runs, link)
		run->spent = false;
	mutex_lock(&buckets_lock);
	list_for_each_entry(bucket, &buckets, link)
		next = min(next, turn(bucket, lane, until));
	mutex_unlock(&buckets_lock);
	return next;
}

void ds_bucket_pay(struct ds_run *run, u64 ns)
{
	struct bucket *bucket;
	struct level *level;

	spin_lock_irq(&run->lane->lock);
	run->used_ns += ns;
	spin_unlock_irq(&run->lane->lock);
	mutex_lock(&buckets_lock);
	list_for_each_entry(bucket, &buckets, link) {
		level = &bucket->levels[run->gpu];
		/* what was used before it was there is not its own */
		if (!level->at || !ds_subject_meant(&bucket->subject, run->process))
			continue;
		level->ns -= ns;
		level->used += ns;
	}
	mutex_unlock(&buckets_lock);
}

/* ---- for people ------------------------------------------------------------------------ */

static struct bucket *find(const struct ds_subject *subject)
{
	struct bucket *bucket;

	list_for_each_entry(bucket, &buckets, link)
		if (ds_subject_same(&bucket->subject, subject))
			return bucket;
	return NULL;
}

static void free_bucket(struct bucket *bucket)
{
	if (!bucket)
		return;
	ds_subject_put(&bucket->subject);
	kfree(bucket);
}

/* Those of who is gone. Under buckets_lock. */
static void reap(void)
{
	struct bucket *bucket, *next;

	list_for_each_entry_safe(bucket, next, &buckets, link) {
		if (!ds_subject_gone(&bucket->subject))
			continue;
		list_del(&bucket->link);
		free_bucket(bucket);
	}
}

int ds_bucket_set(const struct ds_subject *subject, u64 rate_us, u64 burst_us)
{
	struct bucket *made = ds_subject_make(subject, sizeof(*made)), *bucket;
	int err = 0;

	if (IS_ERR(made))
		return PTR_ERR(made);
	made->rate = rate_us;
	made->burst = burst_us * NSEC_PER_USEC;
	mutex_lock(&buckets_lock);
	reap();
	bucket = find(&made->subject);
	if (stopping) {
		err = -ENODEV;
	} else if (bucket) {
		bucket->rate = made->rate;
		bucket->burst = made->burst;
	} else {
		list_add_tail(&made->link, &buckets);
		made = NULL;
	}
	mutex_unlock(&buckets_lock);
	free_bucket(made);
	if (!err) {
		ds_lanes_settle();
		ds_sched_again();
	}
	return err;
}

int ds_bucket_del(const struct ds_subject *subject)
{
	struct bucket *bucket;

	mutex_lock(&buckets_lock);
	bucket = find(subject);
	if (bucket)
		list_del(&bucket->link);
	mutex_unlock(&buckets_lock);
	free_bucket(bucket);
	if (!bucket)
		return -ENOENT;
	ds_lanes_settle();
	ds_sched_again();
	return 0;
}

bool ds_bucket_meant(const struct ds_process *process)
{
	struct bucket *bucket;
	bool meant = false;

	if (!ds_bucket_on())
		return false;
	mutex_lock(&buckets_lock);
	list_for_each_entry(bucket, &buckets, link)
		meant = meant || ds_subject_meant(&bucket->subject, process);
	mutex_unlock(&buckets_lock);
	return meant;
}

static void describe(const struct bucket *bucket, struct ds_bucket_info *info)
{
	const struct level *level;
	s64 least = bucket->burst;

	*info = (struct ds_bucket_info){
		.subject = bucket->subject,
		.rate_us = bucket->rate,
		.burst_us = div_u64(bucket->burst, NSEC_PER_USEC),
	};
	for (level = bucket->levels; level < bucket->levels + RM_GPUS; level++) {
		if (!level->at)
			continue;
		least = min(least, max_t(s64, level->ns, 0));
		info->used_us += div_u64(level->used, NSEC_PER_USEC);
		info->emptied += level->emptied;
		info->empty |= level->empty;
	}
	info->level_us = div_u64(least, NSEC_PER_USEC);
}

bool ds_bucket_at(unsigned int index, struct ds_bucket_info *info)
{
	struct bucket *bucket;
	bool found = false;

	/* levels are counted when a lane looks */
	ds_lanes_settle();
	mutex_lock(&buckets_lock);
	reap();
	list_for_each_entry(bucket, &buckets, link) {
		if (index--)
			continue;
		describe(bucket, info);
		ds_subject_copy(&info->subject);
		found = true;
		break;
	}
	mutex_unlock(&buckets_lock);
	return found;
}

void ds_bucket_exit(void)
{
	struct bucket *bucket, *next;

	mutex_lock(&buckets_lock);
	stopping = true;
	list_for_each_entry_safe(bucket, next, &buckets, link) {
		list_del(&bucket->link);
		free_bucket(bucket);
	}
	mutex_unlock(&buckets_lock);
}
