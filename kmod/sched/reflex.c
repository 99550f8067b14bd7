// SPDX-License-Identifier: GPL-2.0-only
#include <linux/string.h>

#include "activity.h"
#include "floor.h"
#include "lease.h"
#include "orders.h"
#include "pause.h"
#include "reflex.h"
#include "rotation.h"
#include "run.h"
#include "spend.h"

/* A pause waits no longer for proof that a higher class is at work. */
#define DOUBT_MOST_NS (50 * NSEC_PER_MSEC)

/* ---- what holds for whom ----------------------------------------------------------- */

static void refresh(struct ds_run *run, u64 now)
{
	struct ds_rule rule = { .rank = 0 };
	struct ds_order order;
	struct ds_class row;
	unsigned long flags;
	u32 holds;

	if (ds_orders_of(run->process, &order)) {
		strscpy(rule.class, order.class, sizeof(rule.class));
		rule.weight = order.weight;
		rule.account = ds_order_account(&order);
		if (ds_class_get(order.class, run->gpu, &row)) {
			rule.rank = row.rank;
			rule.weight = order.weight ?: row.weight;
			rule.linger_ns = (row.linger_us ?: DS_LINGER_US) * NSEC_PER_USEC;
			rule.deadline_ns = row.deadline_us * NSEC_PER_USEC;
			rule.floor = min_t(u32, row.floor, DS_FLOOR_MOST);
			rule.turn_ns = row.turn_us * NSEC_PER_USEC;
			rule.turn_rank = row.turn_rank;
		}
	}
	if (!rule.linger_ns)
		rule.linger_ns = DS_LINGER_US * NSEC_PER_USEC;
	holds = ds_holds_of(run->process);
	run->counted = ds_bucket_meant(run->process);
	spin_lock_irqsave(&run->lane->lock, flags);
	/* what was quiet by another rule may not be by this one: let it show it */
	if (rule.linger_ns > run->rule.linger_ns)
		ds_activity_assume(run, now);
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
			refresh(run, look->now);
}

/* ---- who comes first ------------------------------------------------------------------------ */

/* Who is held by order or has nothing left is nobody to wait for. */
static bool is_waited_for(const struct ds_run *run)
{
	return run->watched && READ_ONCE(run->active) && !run->holds && !run->spent;
}

/* The highest rank that is active, 0: none. */
static u32 find_top(const struct ds_look *look)
{
	struct ds_run *run;
	u32 top = 0;

	list_for_each_entry(run, &look->lane->runs, link)
		if (is_waited_for(run))
			top = max(top, run->rule.rank);
	return top;
}

/*
 * When a run that is held is to be paused: its deadline after one above it is active without a doubt. A pause and its end cost more than an
 * answer of the driver's, so nobody is paused for who may have ended, but for a bound.
 */
static u64 pause_at(const struct ds_look *look, const struct ds_run *run)
{
	u64 deadline = run->rule.deadline_ns, when = run->held_ns + deadline + DOUBT_MOST_NS;
	const struct ds_run *other;

	list_for_each_entry(other, &look->lane->runs, link) {
		if (when <= look->now)
			break;
		if (other->rule.rank > run->rule.rank && is_waited_for(other) && !ds_activity_in_doubt(other, look->now))
			when = min(when, max(run->held_ns, READ_ONCE(other->steady_ns)) + deadline);
	}
	return when;
}

/* ---- what is to be ------------------------------------------------------------------------- */

static void decide(struct ds_look *look, struct ds_run *run, u32 top)
{
	bool below = run->rule.rank && run->rule.rank < top && !run->lean && !look->free;
	bool spent = run->spent && !look->free;
	u32 holds = look->free ? 0 : run->holds;
	u64 deadline = 0;
	bool late;

	spin_lock_irq(&run->lane->lock);
	if (!below)
		run->held_ns = 0;
	else if (!run->held_ns)
		run->held_ns = look->now;
	spin_unlock_irq(&run->lane->lock);
	if (below && run->rule.deadline_ns)
		deadline = run->held_ns + run->rule.deadline_ns;
	/* who is paused stays so while the one above may be at work */
	if (deadline && deadline <= look->now && !(READ_ONCE(run->pause.wanted) & DETSHARE_HOLD_REFLEX))
		deadline = pause_at(look, run);
	late = deadline && deadline <= look->now;
	run->wanted = (holds & DS_HOLDS_GATE ? DETSHARE_HOLD_ORDER : 0) | (below ? DETSHARE_HOLD_REFLEX : 0) |
		      (spent ? DETSHARE_HOLD_BUCKET : 0);
	if (deadline > look->now)
		ds_look_again(look, deadline);
	ds_pause_want(run, DETSHARE_HOLD_ORDER, holds & DS_HOLDS_PAUSE);
	ds_pause_want(run, DETSHARE_HOLD_REFLEX, late);
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
	struct ds_floor_look floors = { .now = look->now, .elapsed = look->now - lane->looked_ns, .free = look->free };
	struct ds_run *run;

	refresh_all(look);
	ds_activity_watch(look);
	list_for_each_entry(run, &lane->runs, link)
		ds_activity_sample(look, run);
	if (!look->free)
		look->next = min(look->next, ds_bucket_turn(lane, look->now));
	ds_rotation_look(look);
	floors.top = find_top(look);
	list_for_each_entry(run, &lane->runs, link) {
		ds_look_again(look, ds_floor_count(run, &floors));
		decide(look, run, floors.top);
	}
	lane->looked_ns = look->now;
	list_for_each_entry(run, &lane->runs, link)
		shut(run);
	list_for_each_entry(run, &lane->runs, link)
		open(look, run);
}

static void work(struct work_struct *item)
{
	struct ds_lane *lane = container_of(item, struct ds_lane, work);
	struct ds_look look = { .lane = lane, .next = KTIME_MAX, .metered = ds_bucket_on() };

	mutex_lock(&lane->members);
	look.now = ktime_get_ns();
	look.free = ds_runs_free();
	look_at(&look);
	if (look.next != KTIME_MAX)
		hrtimer_start(&lane->timer, ns_to_ktime(look.next), HRTIMER_MODE_ABS);
	mutex_unlock(&lane->members);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	ds_lane_look(container_of(timer, struct ds_lane, timer));
	return HRTIMER_NORESTART;
}

void ds_reflex_init_lane(struct ds_lane *lane)
{
	INIT_WORK(&lane->work, work);
	hrtimer_init(&lane->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	lane->timer.function = on_timer;
}
