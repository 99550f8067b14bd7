// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/math64.h>

#include "bucket_impl.h"
#include "entity.h"
#include "fill.h"
#include "spend.h"
#include "usage.h"

/* What came in since, and what went out meanwhile: it runs over only with what is left of both. */
static void fill(struct ds_bucket *bucket, struct ds_level *level, u64 until, u64 used)
{
	if (level->at) {
		level->ns += ds_fill(until - min(until, level->at), bucket->rate, &level->rest);
		level->ns = min_t(s64, level->ns - (s64)used, bucket->burst);
		level->used += used;
	} else {
		/* what was used before it was there is not its own */
		level->ns = bucket->burst;
	}
	level->at = until;
}

static bool entities_now(const struct ds_entity *entity)
{
	return entity->watched && READ_ONCE(entity->active) && !ds_entity_ended(entity) && !READ_ONCE(entity->pause.off);
}

static u64 enough(const struct ds_bucket *bucket)
{
	return max(bucket->burst / 2, 1ULL);
}

/* When it will be empty if things go on like this, or have enough again. */
static u64 next_change(const struct ds_bucket *bucket, const struct ds_level *level, u64 drain)
{
	if (level->empty)
		return level->at + DIV64_U64_ROUND_UP((enough(bucket) - level->ns) * 1000000, bucket->rate);
	if (drain <= bucket->rate)
		return KTIME_MAX;
	return level->at + DIV64_U64_ROUND_UP((u64)level->ns * 1000000, drain - bucket->rate);
}

static u64 turn(struct ds_bucket *bucket, struct ds_runq *runq, u64 now, u64 until)
{
	struct ds_level *level = &bucket->levels[runq->gpu];
	u64 used = 0, drain = 0, next;
	struct ds_entity *entity;
	bool any = false;

	list_for_each_entry(entity, &runq->entities, link) {
		if (!ds_subject_meant(&bucket->subject, entity->process))
			continue;
		used += entity->usage.charged;
		/* if it goes on as it did, but for who may be alone from now on */
		if (entities_now(entity))
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
	list_for_each_entry(entity, &runq->entities, link)
		entity->spent |= level->empty && ds_subject_meant(&bucket->subject, entity->process);
	if (!any)
		return KTIME_MAX;
	next = next_change(bucket, level, drain);
	/* what was used until then is not known yet: what tells it brings a look, and without a word it is charged at last */
	return next > now ? next : next + DS_USAGE_LATE_NS;
}

u64 ds_bucket_turn(struct ds_runq *runq, u64 now)
{
	u64 next = KTIME_MAX, until = ds_usage_charge(runq, now);
	struct ds_bucket *bucket;
	struct ds_entity *entity;

	list_for_each_entry(entity, &runq->entities, link)
		entity->spent = false;
	mutex_lock(&ds_buckets_lock);
	/* while there is one everybody is looked at, so none outlasts whom it is for until somebody asks for buckets */
	ds_buckets_reap();
	list_for_each_entry(bucket, &ds_buckets, link)
		next = min(next, turn(bucket, runq, now, until));
	mutex_unlock(&ds_buckets_lock);
	return next;
}

void ds_bucket_pay(struct ds_entity *entity, u64 ns)
{
	struct ds_bucket *bucket;
	struct ds_level *level;

	spin_lock_irq(&entity->runq->lock);
	entity->used_ns += ns;
	spin_unlock_irq(&entity->runq->lock);
	mutex_lock(&ds_buckets_lock);
	list_for_each_entry(bucket, &ds_buckets, link) {
		level = &bucket->levels[entity->gpu];
		/* what was used before it was there is not its own */
		if (!level->at || !ds_subject_meant(&bucket->subject, entity->process))
			continue;
		level->ns -= ns;
		level->used += ns;
	}
	mutex_unlock(&ds_buckets_lock);
}

bool ds_bucket_at(unsigned int index, struct ds_bucket_info *info)
{
	/* levels are counted when a runq looks: once for all of them, or each of many buckets would make all of them be counted anew */
	if (!index)
		ds_runqs_settle();
	return ds_bucket_copy(index, info);
}
