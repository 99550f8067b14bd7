// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/random.h>

#include "activity.h"
#include "busy.h"
#include "entity.h"
#include "rotation.h"
#include "spend.h"
#include "unseen.h"

/* From one question about an entity to the next, and how much of it is left to chance. */
#define GAP_NS (50 * NSEC_PER_MSEC)
#define CHANCE_NS (100 * NSEC_PER_MSEC)
/* The same of who pays for nothing. */
#define TURN_GAP_NS (NSEC_PER_SEC / 2)
#define TURN_CHANCE_NS NSEC_PER_SEC
/* All questions of a runq together come no closer: each takes the driver's lock for a millisecond. */
#define RUNQ_GAP_NS (20 * NSEC_PER_MSEC)
#define TURN_RUNQ_GAP_NS (100 * NSEC_PER_MSEC)

static bool pays(const struct ds_scan *scan, const struct ds_entity *entity)
{
	return scan->metered && entity->counted;
}

static void wait_for_next(const struct ds_scan *scan, struct ds_entity *entity)
{
	bool often = pays(scan, entity);

	entity->unseen.asking_ns = 0;
	entity->unseen.next_ns = scan->now + (often ? GAP_NS : TURN_GAP_NS) + get_random_u32() % (u32)(often ? CHANCE_NS : TURN_CHANCE_NS);
}

/* The driver's answer to the question that was asked last. false: it is not there yet. */
static bool is_answered(struct ds_entity *entity, enum ds_busy *said, u64 *asked)
{
	bool answered;

	spin_lock_irq(&entity->runq->lock);
	answered = entity->busy.begun_ns >= entity->unseen.asking_ns;
	*said = entity->busy.said;
	*asked = entity->busy.asked_ns;
	spin_unlock_irq(&entity->runq->lock);
	return answered;
}

static void take_answer(struct ds_scan *scan, struct ds_entity *entity)
{
	enum ds_busy said;
	u64 asked;

	if (!is_answered(entity, &said, &asked)) {
		ds_busy_ask(entity);
		return;
	}
	wait_for_next(scan, entity);
	if (said != DS_BUSY_YES && said != DS_BUSY_NO)
		return;
	if (said == DS_BUSY_YES) {
		if (pays(scan, entity))
			ds_bucket_pay(entity, asked - min(asked, entity->unseen.vouched_ns));
		ds_activity_seen(entity, scan->now);
	}
	entity->unseen.vouched_ns = asked;
}

static void ask(struct ds_scan *scan, struct ds_entity *entity)
{
	u64 soonest = entity->runq->unseen_ns + (pays(scan, entity) ? RUNQ_GAP_NS : TURN_RUNQ_GAP_NS);

	if (scan->now < soonest) {
		entity->unseen.next_ns = soonest + get_random_u32() % RUNQ_GAP_NS;
		return;
	}
	entity->runq->unseen_ns = scan->now;
	entity->unseen.asking_ns = scan->now;
	ds_busy_ask(entity);
}

void ds_unseen_sample(struct ds_scan *scan, struct ds_entity *entity)
{
	struct ds_entity_unseen *unseen = &entity->unseen;

	if ((!pays(scan, entity) && (scan->lone || !ds_rotation_has(entity))) || !ds_busy_can(entity->gpu)) {
		unseen->vouched_ns = 0;
		return;
	}
	if (unseen->vouched_ns <= READ_ONCE(entity->last_ns)) {
		/* it has just become idle */
		unseen->vouched_ns = scan->now;
		wait_for_next(scan, entity);
	} else if (unseen->asking_ns) {
		take_answer(scan, entity);
	} else if (scan->now >= unseen->next_ns) {
		ask(scan, entity);
	}
	if (!unseen->asking_ns)
		ds_scan_again(scan, unseen->next_ns);
}
