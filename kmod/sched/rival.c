// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>

#include "activity.h"
#include "busy.h"
#include "rival.h"
#include "entity.h"
#include "sched.h"

/* Each is asked about so often: a question is a call of the driver, of a millisecond. */
#define ASK_NS (200 * NSEC_PER_MSEC)
/* It counts for so long: who rests now and then does not have slices set each time. */
#define KEEP_NS (2 * NSEC_PER_SEC)

static bool may_be_one(const struct ds_entity *entity)
{
	return !entity->rule.class[0] && entity->tsgs && !entity->gated && !READ_ONCE(entity->pause.off);
}

/* Where the driver does not tell, it counts as busy: a slice too long costs a wait, one too short all progress. */
static bool is_busy(struct ds_scan *scan, struct ds_entity *entity)
{
	enum ds_busy said;
	u64 asked;

	if (!ds_busy_can(entity->gpu))
		return true;
	spin_lock_irq(&entity->runq->lock);
	said = entity->busy.said;
	asked = entity->busy.asked_ns;
	spin_unlock_irq(&entity->runq->lock);
	if (scan->now >= asked + ASK_NS)
		ds_busy_ask(entity);
	ds_scan_again(scan, max(asked, scan->now) + ASK_NS);
	return asked && scan->now < asked + 2 * ASK_NS && said != DS_BUSY_NO;
}

void ds_rival_scan(struct ds_scan *scan, bool turns)
{
	struct ds_rotation *rotation = &scan->runq->rotation;
	struct ds_entity *entity;
	bool there;

	if (turns && !scan->free)
		list_for_each_entry(entity, &scan->runq->entities, link)
			if (may_be_one(entity) && is_busy(scan, entity))
				rotation->rival_ns = scan->now;
	there = rotation->rival_ns && scan->now - rotation->rival_ns < KEEP_NS;
	if (there)
		ds_scan_again(scan, rotation->rival_ns + KEEP_NS);
	if (there == rotation->rival)
		return;
	WRITE_ONCE(rotation->rival, there);
	ds_sched_again();
}
