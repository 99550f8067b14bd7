// SPDX-License-Identifier: GPL-2.0-only
#include <linux/math64.h>
#include <linux/random.h>

#include "busy.h"
#include "entity.h"
#include "spots.h"

/* From one moment to the next, by half more or less, for each program: each takes the driver's lock for a millisecond. After one with work. */
#define APART_NS (100 * NSEC_PER_MSEC)
#define BUSY_APART_NS (25 * NSEC_PER_MSEC)
/* Moments with work in a row after which the foreground is looked at: one that works 7 of 10 ms is for a tenth of the time. */
#define BUSY_MOST 12

static void wait_for_next(struct ds_spots *spots, u64 now, unsigned int programs)
{
	u64 apart = (u64)(spots->busy ? BUSY_APART_NS : APART_NS) * programs;

	spots->asking_ns = 0;
	spots->next_ns = now + apart / 2 + mul_u64_u32_shr(apart, get_random_u32(), 32);
}

void ds_spots_begin(struct ds_runq *runq, u64 now)
{
	runq->rotation.spots = (struct ds_spots){ .suffice = true };
	wait_for_next(&runq->rotation.spots, now, 1);
}

/* The driver's word on it since the moment began. false: it is not there yet. */
static bool is_answered(struct ds_entity *entity, u64 since, enum ds_busy *said)
{
	bool answered;

	spin_lock_irq(&entity->runq->lock);
	answered = entity->busy.begun_ns >= since;
	*said = entity->busy.said;
	spin_unlock_irq(&entity->runq->lock);
	return answered;
}

struct moment {
	unsigned int programs;
	bool awaited;	/* an answer */
	bool busy;	/* any of them */
	bool unknown;
};

/* Asks who was not asked since the moment began: an answer that a pause spoilt is awaited still. */
static struct moment look(const struct ds_runq *runq, u64 since, ds_spots_of_fn of)
{
	struct moment moment = { 0 };
	struct ds_entity *entity;
	enum ds_busy said;

	list_for_each_entry(entity, &runq->entities, link) {
		if (!of(entity) || !entity->tsgs)
			continue;
		moment.programs++;
		if (!is_answered(entity, since, &said)) {
			moment.awaited = true;
			ds_busy_ask(entity);
			continue;
		}
		moment.busy |= said == DS_BUSY_YES;
		moment.unknown |= said != DS_BUSY_YES && said != DS_BUSY_NO;
	}
	return moment;
}

bool ds_spots_scan(struct ds_runq *runq, u64 now, ds_spots_of_fn of)
{
	struct ds_spots *spots = &runq->rotation.spots;
	struct moment moment;

	if (!ds_busy_can(runq->gpu)) {
		spots->suffice = false;
		return false;
	}
	if (!spots->asking_ns) {
		if (now < spots->next_ns)
			return true;
		spots->asking_ns = now;
	}
	moment = look(runq, spots->asking_ns, of);
	/* its answer brings the next scan */
	if (moment.awaited)
		return true;
	spots->busy = moment.busy ? spots->busy + 1 : 0;
	wait_for_next(spots, now, max(moment.programs, 1u));
	if (moment.unknown || spots->busy >= BUSY_MOST)
		spots->suffice = false;
	return !moment.unknown;
}
