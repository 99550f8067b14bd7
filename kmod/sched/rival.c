// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/minmax.h>

#include "activity.h"
#include "busy.h"
#include "rival.h"
#include "rotation.h"
#include "entity.h"
#include "sched.h"

/* A question is a call of the driver, of a millisecond: one at a time, and about each entity so often at most. However many there are. */
#define BETWEEN_NS (50 * NSEC_PER_MSEC)
#define EACH_NS (200 * NSEC_PER_MSEC)
/* An answer counts for so long: who rests now and then does not have slices set each time. */
#define KEEP_NS (2 * NSEC_PER_SEC)

static bool may_be_one(const struct ds_entity *entity)
{
	return !entity->rule.class[0] && entity->tsgs && !entity->gated && !READ_ONCE(entity->pause.off);
}

/* The driver refused to take it off for the turn of another one. */
static bool stayed(const struct ds_entity *entity)
{
	return ds_rotation_has(entity) && READ_ONCE(entity->pause.err) && !READ_ONCE(entity->pause.off);
}

/* When the driver was asked about it last, 0: never. *busy: by its answer; where it had none, a slice too long costs less than one too short. */
static u64 asked_at(const struct ds_entity *entity, bool *busy)
{
	u64 asked;

	spin_lock_irq(&entity->runq->lock);
	asked = entity->busy.asked_ns;
	*busy = asked && entity->busy.said != DS_BUSY_NO;
	spin_unlock_irq(&entity->runq->lock);
	return asked;
}

/* Asks about the one of them that nobody asked about for the longest. */
static void ask(struct ds_scan *scan, struct ds_entity *entity, u64 asked)
{
	struct ds_rotation *rotation = &scan->runq->rotation;
	u64 when = max(asked + EACH_NS, rotation->rival_asked_ns + BETWEEN_NS);

	if (scan->now >= when) {
		rotation->rival_asked_ns = scan->now;
		ds_busy_ask(entity);
		when = scan->now + BETWEEN_NS;
	}
	ds_scan_again(scan, when);
}

static void find(struct ds_scan *scan)
{
	struct ds_rotation *rotation = &scan->runq->rotation;
	struct ds_entity *entity, *next = NULL;
	u64 asked, longest = U64_MAX;
	bool busy;

	list_for_each_entry(entity, &scan->runq->entities, link) {
		if (stayed(entity))
			rotation->rival_ns = scan->now;
		if (!may_be_one(entity))
			continue;
		asked = asked_at(entity, &busy);
		if (busy)
			rotation->rival_ns = max(rotation->rival_ns, asked);
		if (asked < longest) {
			longest = asked;
			next = entity;
		}
	}
	if (!next)
		return;
	if (ds_busy_can(scan->runq->gpu))
		ask(scan, next, longest);
	else
		/* nobody can tell: each counts as busy */
		rotation->rival_ns = scan->now;
}

void ds_rival_scan(struct ds_scan *scan, bool turns)
{
	struct ds_rotation *rotation = &scan->runq->rotation;
	bool there;

	if (turns && !scan->free)
		find(scan);
	there = rotation->rival_ns && scan->now - min(scan->now, rotation->rival_ns) < KEEP_NS;
	if (there)
		ds_scan_again(scan, rotation->rival_ns + KEEP_NS);
	if (there == rotation->rival)
		return;
	WRITE_ONCE(rotation->rival, there);
	ds_sched_again();
}
