// SPDX-License-Identifier: GPL-2.0-only
#include <linux/string.h>

#include "activity.h"
#include "class.h"
#include "lease.h"
#include "look.h"
#include "orders.h"
#include "pause.h"
#include "rotation.h"
#include "run.h"
#include "spend.h"

/* Floors above this (permille) leave nothing for whom they are defended against. */
#define FLOOR_MOST 900

/* ---- what holds for whom ----------------------------------------------------------- */

static void refresh(struct ds_run *run)
{
	struct ds_rule rule = { .weight = 0 };
	struct ds_order order;
	struct ds_class row;
	unsigned long flags;
	u32 holds;

	if (ds_orders_of(run->process, &order)) {
		strscpy(rule.class, order.class, sizeof(rule.class));
		rule.weight = order.weight;
		rule.account = ds_order_account(&order);
		if (ds_class_get(order.class, run->gpu, &row)) {
			rule.weight = order.weight ?: row.weight;
			rule.floor = min_t(u32, row.floor, FLOOR_MOST);
			rule.turn_ns = row.turn_us * NSEC_PER_USEC;
			rule.turn_rank = row.turn_rank;
		}
	}
	holds = ds_holds_of(run->process);
	run->counted = ds_bucket_meant(run->process);
	spin_lock_irqsave(&run->lane->lock, flags);
	run->rule = rule;
	run->holds = holds;
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

static void refresh_all(struct ds_look *look)
{
	struct ds_lane *lane = look->lane;
	struct ds_run *run;
	bool stale;

	spin_lock_irq(&lane->lock);
	stale = lane->stale;
	lane->stale = false;
	spin_unlock_irq(&lane->lock);
	if (stale)
		list_for_each_entry(run, &lane->runs, link)
			refresh(run);
}

/* ---- what is to be ------------------------------------------------------------------------- */

static void decide(const struct ds_look *look, struct ds_run *run)
{
	bool spent = run->spent && !look->free;
	u32 holds = look->free ? 0 : run->holds;

	run->wanted = (holds & DS_HOLDS_GATE ? DETSHARE_HOLD_ORDER : 0) | (spent ? DETSHARE_HOLD_BUCKET : 0);
	ds_pause_want(run, DETSHARE_HOLD_ORDER, holds & DS_HOLDS_PAUSE);
	ds_pause_want(run, DETSHARE_HOLD_BUCKET, spent);
	ds_pause_want(run, DETSHARE_HOLD_TURN, run->resting);
}

static void tell(struct ds_run *run, u8 cmd)
{
	struct ds_event_run event;

	ds_run_event(run, &event);
	ds_event_hold(cmd, &event, ktime_get_ns(), run->gated | READ_ONCE(run->pause.wanted));
}

static void shut(struct ds_run *run)
{
	u32 more = run->wanted & ~run->gated;
	bool was = run->gated;

	if (!more)
		return;
	ds_gate_hold(run->gate, more);
	run->gated |= more;
	if (!was)
		tell(run, DETSHARE_CMD_GATED);
}

static void open(struct ds_look *look, struct ds_run *run)
{
	u32 less = run->gated & ~run->wanted;

	if (!less)
		return;
	if (run->gated == less && run->watched)
		ds_activity_reopen(look, run);
	run->gated &= ~less;
	ds_gate_release(run->gate, less);
	if (!run->gated)
		tell(run, DETSHARE_CMD_OPENED);
}

static void look_at(struct ds_look *look)
{
	struct ds_lane *lane = look->lane;
	struct ds_run *run;

	refresh_all(look);
	ds_activity_watch(look);
	list_for_each_entry(run, &lane->runs, link)
		ds_activity_sample(look, run);
	if (!look->free)
		look->next = min(look->next, ds_bucket_turn(lane, look->now));
	ds_rotation_look(look);
	list_for_each_entry(run, &lane->runs, link)
		decide(look, run);
	list_for_each_entry(run, &lane->runs, link)
		shut(run);
	list_for_each_entry(run, &lane->runs, link)
		open(look, run);
}

static void work(struct work_struct *item)
{
	struct ds_lane *lane = container_of(item, struct ds_lane, work);
	struct ds_look look = { .lane = lane, .next = KTIME_MAX, .metered = ds_bucket_on() };
	u64 number;

	spin_lock_irq(&lane->lock);
	number = ++lane->begun;
	spin_unlock_irq(&lane->lock);
	mutex_lock(&lane->members);
	look.now = ktime_get_ns();
	look.free = ds_runs_free();
	look_at(&look);
	if (look.next != KTIME_MAX)
		hrtimer_start(&lane->timer, ns_to_ktime(look.next), HRTIMER_MODE_ABS);
	mutex_unlock(&lane->members);
	spin_lock_irq(&lane->lock);
	lane->done = number;
	spin_unlock_irq(&lane->lock);
	wake_up_all(&lane->looked);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	ds_lane_look(container_of(timer, struct ds_lane, timer));
	return HRTIMER_NORESTART;
}

void ds_look_init_lane(struct ds_lane *lane)
{
	INIT_WORK(&lane->work, work);
	hrtimer_init(&lane->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	lane->timer.function = on_timer;
}
