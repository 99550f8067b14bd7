// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/slab.h>

#include "bucket_impl.h"
#include "change.h"
#include "rows.h"

LIST_HEAD(ds_buckets);
DEFINE_MUTEX(ds_buckets_lock);
static bool stopping;

bool ds_bucket_on(void)
{
	return !list_empty_careful(&ds_buckets);
}

static struct ds_bucket *find(const struct ds_subject *subject)
{
	struct ds_bucket *bucket;

	list_for_each_entry(bucket, &ds_buckets, link)
		if (ds_subject_same(&bucket->subject, subject))
			return bucket;
	return NULL;
}

static void free_bucket(struct ds_bucket *bucket)
{
	if (!bucket)
		return;
	ds_subject_put(&bucket->subject);
	kfree(bucket);
}

void ds_buckets_reap(void)
{
	struct ds_bucket *bucket, *next;

	list_for_each_entry_safe(bucket, next, &ds_buckets, link) {
		if (!ds_subject_gone(&bucket->subject))
			continue;
		ds_row_del(&bucket->link);
		free_bucket(bucket);
	}
}

int ds_bucket_set(const struct ds_subject *subject, u64 rate_us, u64 burst_us)
{
	struct ds_bucket *made = ds_subject_make(subject, sizeof(*made)), *bucket;
	int err = 0;

	if (IS_ERR(made))
		return PTR_ERR(made);
	made->rate = rate_us;
	made->burst = burst_us * NSEC_PER_USEC;
	mutex_lock(&ds_buckets_lock);
	ds_buckets_reap();
	bucket = find(&made->subject);
	if (stopping) {
		err = -ENODEV;
	} else if (bucket) {
		bucket->rate = made->rate;
		bucket->burst = made->burst;
	} else {
		list_add_tail(&made->link, &ds_buckets);
		made = NULL;
	}
	mutex_unlock(&ds_buckets_lock);
	free_bucket(made);
	if (!err)
		ds_rules_changed();
	return err;
}

int ds_bucket_del(const struct ds_subject *subject)
{
	struct ds_bucket *bucket;

	mutex_lock(&ds_buckets_lock);
	bucket = find(subject);
	if (bucket)
		ds_row_del(&bucket->link);
	mutex_unlock(&ds_buckets_lock);
	free_bucket(bucket);
	if (!bucket)
		return -ENOENT;
	ds_rules_changed();
	return 0;
}

bool ds_bucket_meant(const struct ds_process *process)
{
	struct ds_bucket *bucket;
	bool meant = false;

	if (!ds_bucket_on())
		return false;
	mutex_lock(&ds_buckets_lock);
	list_for_each_entry(bucket, &ds_buckets, link)
		meant = meant || ds_subject_meant(&bucket->subject, process);
	mutex_unlock(&ds_buckets_lock);
	return meant;
}

bool ds_bucket_empty(const struct ds_process *process)
{
	struct ds_bucket *bucket;
	bool empty = false;
	u32 gpu;

	if (!ds_bucket_on())
		return false;
	mutex_lock(&ds_buckets_lock);
	list_for_each_entry(bucket, &ds_buckets, link)
		for (gpu = 0; gpu < RM_GPUS && !empty; gpu++)
			empty = bucket->levels[gpu].empty && ds_subject_meant(&bucket->subject, process);
	mutex_unlock(&ds_buckets_lock);
	return empty;
}

static void describe(const struct ds_bucket *bucket, struct ds_bucket_info *info)
{
	const struct ds_level *level;
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

bool ds_bucket_copy(unsigned int index, struct ds_bucket_info *info)
{
	struct ds_bucket *bucket;
	bool found = false;

	mutex_lock(&ds_buckets_lock);
	ds_buckets_reap();
	list_for_each_entry(bucket, &ds_buckets, link) {
		if (index--)
			continue;
		describe(bucket, info);
		ds_subject_copy(&info->subject);
		found = true;
		break;
	}
	mutex_unlock(&ds_buckets_lock);
	return found;
}

void ds_bucket_exit(void)
{
	struct ds_bucket *bucket, *next;

	mutex_lock(&ds_buckets_lock);
	stopping = true;
	list_for_each_entry_safe(bucket, next, &ds_buckets, link) {
		ds_row_del(&bucket->link);
		free_bucket(bucket);
	}
	mutex_unlock(&ds_buckets_lock);
}
