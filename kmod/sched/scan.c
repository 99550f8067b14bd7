// SPDX-License-Identifier: GPL-2.0-only
#include <linux/string.h>

#include "activity.h"
#include "compat.h"
#include "class.h"
#include "lease.h"
#include "scan.h"
#include "orders.h"
#include "pause.h"
#include "rotation.h"
#include "entity.h"
#include "spend.h"

/* Floors above this (permille) leave nothing for whom they are defended against. */
#define FLOOR_MOST 900

/* ---- what holds for whom ----------------------------------------------------------- */

static void refresh(struct ds_entity *entity)
{
	struct ds_rule rule = { .weight = 0 };
	struct ds_order order;
	struct ds_class row;
	unsigned long flags;
	u32 holds;

	if (ds_orders_of(entity->process, &order)) {
		strscpy(rule.class, order.class, sizeof(rule.class));
		rule.weight = order.weight;
		rule.account = ds_order_account(&order);
		if (ds_class_get(order.class, entity->gpu, &row)) {
			rule.weight = order.weight ?: row.weight;
			rule.floor = min_t(u32, row.floor, FLOOR_MOST);
			rule.turn_ns = row.turn_us * NSEC_PER_USEC;
			rule.turn_rank = row.turn_rank;
		}
	}
	holds = ds_holds_of(entity->process);
	entity->counted = ds_bucket_meant(entity->process);
	spin_lock_irqsave(&entity->runq->lock, flags);
	entity->rule = rule;
	entity->holds = holds;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
}

static void refresh_all(struct ds_scan *scan)
{
	struct ds_runq *runq = scan->runq;
	struct ds_entity *entity;
	bool stale;

	spin_lock_irq(&runq->lock);
	stale = runq->stale;
	runq->stale = false;
	spin_unlock_irq(&runq->lock);
	if (stale)
		list_for_each_entry(entity, &runq->entities, link)
			refresh(entity);
}

/* ---- what is to be ------------------------------------------------------------------------- */

static void decide(const struct ds_scan *scan, struct ds_entity *entity)
{
	bool spent = entity->spent && !scan->free;
	u32 holds = scan->free ? 0 : entity->holds;

	entity->wanted = (holds & DS_HOLDS_GATE ? DETSHARE_HOLD_ORDER : 0) | (spent ? DETSHARE_HOLD_BUCKET : 0);
	ds_pause_want(entity, DETSHARE_HOLD_ORDER, holds & DS_HOLDS_PAUSE);
	ds_pause_want(entity, DETSHARE_HOLD_BUCKET, spent);
	ds_pause_want(entity, DETSHARE_HOLD_TURN, entity->resting);
}

static void tell(struct ds_entity *entity, u8 cmd)
{
	struct ds_event_entity event;

	ds_entity_event(entity, &event);
	ds_event_hold(cmd, &event, ktime_get_ns(), entity->gated | READ_ONCE(entity->pause.wanted));
}

static void shut(struct ds_entity *entity)
{
	u32 more = entity->wanted & ~entity->gated;
	bool was = entity->gated;

	if (!more)
		return;
	ds_gate_hold(entity->gate, more);
	entity->gated |= more;
	if (!was)
		tell(entity, DETSHARE_CMD_GATED);
}

static void open(struct ds_scan *scan, struct ds_entity *entity)
{
	u32 less = entity->gated & ~entity->wanted;

	if (!less)
		return;
	if (entity->gated == less && entity->watched)
		ds_activity_reopen(scan, entity);
	entity->gated &= ~less;
	ds_gate_release(entity->gate, less);
	if (!entity->gated)
		tell(entity, DETSHARE_CMD_OPENED);
}

static void look_at(struct ds_scan *scan)
{
	struct ds_runq *runq = scan->runq;
	struct ds_entity *entity;

	refresh_all(scan);
	ds_activity_watch(scan);
	list_for_each_entry(entity, &runq->entities, link)
		ds_activity_sample(scan, entity);
	if (!scan->free)
		ds_scan_again(scan, ds_bucket_turn(runq, scan->now));
	ds_rotation_scan(scan);
	list_for_each_entry(entity, &runq->entities, link)
		decide(scan, entity);
	list_for_each_entry(entity, &runq->entities, link)
		shut(entity);
	list_for_each_entry(entity, &runq->entities, link)
		open(scan, entity);
}

static void work(struct work_struct *item)
{
	struct ds_runq *runq = container_of(item, struct ds_runq, work);
	struct ds_scan scan = { .runq = runq, .next = KTIME_MAX, .metered = ds_bucket_on() };
	u64 number;

	spin_lock_irq(&runq->lock);
	number = ++runq->begun;
	spin_unlock_irq(&runq->lock);
	mutex_lock(&runq->members);
	scan.now = ktime_get_ns();
	scan.free = ds_entities_free();
	look_at(&scan);
	if (scan.next != KTIME_MAX)
		hrtimer_start(&runq->timer, ns_to_ktime(scan.next), HRTIMER_MODE_ABS);
	mutex_unlock(&runq->members);
	spin_lock_irq(&runq->lock);
	runq->done = number;
	spin_unlock_irq(&runq->lock);
	wake_up_all(&runq->scanned);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	ds_runq_scan(container_of(timer, struct ds_runq, timer));
	return HRTIMER_NORESTART;
}

void ds_scan_init_runq(struct ds_runq *runq)
{
	INIT_WORK(&runq->work, work);
	ds_timer_init(&runq->timer, on_timer);
}
