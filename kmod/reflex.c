// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/string.h>

#include "bucket.h"
#include "floor.h"
#include "lease.h"
#include "pause.h"
#include "reflex.h"
#include "run.h"
#include "sched.h"
#include "userd.h"

/* The lane's work item looks no more often than this, whatever is asked for. */
#define TICK_NS (250 * NSEC_PER_USEC)
/* While GPU time is counted, runs are looked at so often at least. */
#define METER_NS (2 * NSEC_PER_MSEC)
/* Who was busy so long is asked again after this part of it, but not at once, for an answer takes about as long, and not later than that. */
#define ASK_PART 16
#define ASK_LEAST_NS NSEC_PER_MSEC
/* Of what a run was busy for certain, the part that it may have rested unseen before its next launch. */
#define REST_PART 32
#define RESTS_MOST 4u
#define ASK_MOST_NS (5 * NSEC_PER_MSEC)
/* A pause waits no longer for proof that a higher class is at work. */
#define DOUBT_MOST_NS (50 * NSEC_PER_MSEC)

/* One look at a lane. */
struct look {
	struct ds_lane *lane;
	u64 now;
	u64 next;	/* when to look again, KTIME_MAX: when somebody says so */
	u32 top;	/* highest rank that is active, 0: none */
	bool free;	/* nobody is to be held */
	bool metered;	/* GPU time is counted */
};

static void again_at(struct look *look, u64 when)
{
	look->next = min(look->next, max(when, look->now + TICK_NS));
}

/* It has something to do, or may have. Under lane->lock. */
static void set_active(struct ds_run *run, u64 now)
{
	if (!run->active)
		run->since_ns = now;
	run->active = true;
	run->last_ns = max(run->last_ns, now);
	run->launched_ns = max(run->launched_ns, now);
}

/*
 * Nobody saw it at work since half way from its launch until `at`: the driver has not answered yet, or the lane came late to look, and
 * what it found may have been over long ago.
 */
static bool in_doubt(const struct ds_run *run, u64 at)
{
	u64 began = READ_ONCE(run->began_ns), sure = max(READ_ONCE(run->busy_ns), began + run->rule.linger_ns);

	return sure < began + (at - min(at, began)) / 2;
}

/* It launched between `from` and now. Under lane->lock, before set_active(). */
static void set_begun(struct ds_run *run, u64 from, u64 now)
{
	if (!run->active || ds_run_ended(run) || in_doubt(run, from))
		WRITE_ONCE(run->steady_ns, now);
	WRITE_ONCE(run->began_ns, from);
}

static u64 at_work_since(const struct ds_run *run)
{
	return max(READ_ONCE(run->launched_ns), READ_ONCE(run->pause.on_ns));
}

/*
 * It launches after a silence whose end nobody saw: the driver's last word was "busy". On average it ended its work half way between. A
 * program that launches while its kernels run looks the same, so one that is never heard to rest has nothing for it, and what others may
 * have is bounded. Under lane->lock.
 */
static void guess_rest(struct ds_run *run, u64 now)
{
	u64 since = at_work_since(run), busy = READ_ONCE(run->busy_ns);

	if (!run->active || !run->rests || run->rest.to || busy <= since || busy >= now)
		return;
	if (run->pause.off || run->pause.moving_ns || run->pause.wanted)
		return;
	run->rests--;
	run->rest = (struct ds_spell){ .from = now - min((now - busy) / 2, (busy - since) / REST_PART), .to = now };
}

void ds_reflex_kicked(void *owner, u64 idle_ns, pid_t who)
{
	struct ds_run *run = owner;
	struct ds_event_run event;
	u64 now = ktime_get_ns();
	unsigned long flags;

	spin_lock_irqsave(&run->lane->lock, flags);
	if (ds_run_ended(run))
		run->since_ns = now;
	else
		guess_rest(run, now);
	set_begun(run, now, now);
	set_active(run, now);
	run->seen_ns = now;
	spin_unlock_irqrestore(&run->lane->lock, flags);
	ds_lane_look(run->lane);
	ds_run_event(run, &event);
	ds_event_kick(&event, now, idle_ns, who);
}

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
		if (ds_class_get(order.class, run->gpu, &row)) {
			rule.rank = row.rank;
			rule.weight = order.weight ?: row.weight;
			rule.linger_ns = (row.linger_us ?: DS_LINGER_US) * NSEC_PER_USEC;
			rule.deadline_ns = row.deadline_us * NSEC_PER_USEC;
			rule.floor = min_t(u32, row.floor, DS_FLOOR_MOST);
		}
	}
	if (!rule.linger_ns)
		rule.linger_ns = DS_LINGER_US * NSEC_PER_USEC;
	holds = ds_holds_of(run->process);
	spin_lock_irqsave(&run->lane->lock, flags);
	/* what was quiet by another rule may not be by this one: let it show it */
	if (rule.linger_ns > run->rule.linger_ns)
		set_active(run, now);
	run->rule = rule;
	run->holds = holds;
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

static void refresh_all(struct look *look)
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

/* ---- who is active -------------------------------------------------------------------- */

static void set_watched(struct ds_run *run, bool watched, u64 now)
{
	if (watched == run->watched)
		return;
	spin_lock_irq(&run->lane->lock);
	run->watched = watched;
	/* what it did until now is not known: let it show that it is quiet */
	run->active = false;
	set_begun(run, now, now);
	set_active(run, now);
	run->since_ns = now;
	spin_unlock_irq(&run->lane->lock);
	if (!watched)
		ds_gate_disarm(run->gate);
}

/* Whether a run is active matters where somebody is to be held for it, and where GPU time is counted. */
static void watch_all(struct look *look)
{
	bool counted = look->metered || ds_event_activity_wanted();
	struct ds_run *run;
	u32 least = U32_MAX;

	list_for_each_entry(run, &look->lane->runs, link)
		if (run->rule.rank)
			least = min(least, run->rule.rank);
	list_for_each_entry(run, &look->lane->runs, link)
		set_watched(run, !look->free && (counted || run->rule.rank > least), look->now);
}

static bool is_held(const struct ds_run *run)
{
	return run->gated || READ_ONCE(run->pause.off);
}

/* Since when at the earliest it has shown life, 0: it has not. A touch was at any moment since the lane looked last. */
static u64 shows_life(struct ds_run *run, u64 now)
{
	if (ds_gate_touched(run->gate) == DS_TOUCH_YES)
		return min(max(run->lane->looked_ns, READ_ONCE(run->began_ns)), now);
	return ds_userd_lives(run) ? now : 0;
}

/* It launches or has something queued: until now it may have been at work all the time. */
static void show_life(struct ds_run *run, u64 from, u64 now)
{
	spin_lock_irq(&run->lane->lock);
	set_begun(run, from, now);
	set_active(run, now);
	run->ended_ns = 0;
	WRITE_ONCE(run->busy_ns, 0);
	spin_unlock_irq(&run->lane->lock);
	run->known_ns = now;
}

static bool waits(struct ds_run *run)
{
	struct ds_gate_stats stats;

	ds_gate_stats(run->gate, &stats);
	return stats.waiting;
}

/* The driver's answer about the time since the run showed life last. false: there is none yet. */
static bool is_told(struct ds_run *run, enum ds_busy *said, u64 *asked)
{
	bool told;

	spin_lock_irq(&run->lane->lock);
	*said = run->busy.said;
	*asked = run->busy.asked_ns;
	/* one that began before may be about the time before, too */
	told = run->busy.begun_ns > max(run->launched_ns, run->pause.on_ns);
	spin_unlock_irq(&run->lane->lock);
	return told;
}

/*
 * A run shows no life. What it launched may run still: the driver is asked, again and again while it says so. What the run did since
 * is known up to the last question that is answered.
 */
static void inquire(struct look *look, struct ds_run *run)
{
	enum ds_busy said = DS_BUSY_UNKNOWN;
	u64 asked, again, launched = at_work_since(run);

	if (ds_run_ended(run) || !ds_busy_can(run->gpu)) {
		run->known_ns = look->now;
		return;
	}
	if (!is_told(run, &said, &asked)) {
		ds_busy_ask(run);
		return;
	}
	switch (said) {
	case DS_BUSY_YES:
		WRITE_ONCE(run->busy_ns, asked);
		run->known_ns = asked;
		again = asked + clamp_t(u64, (asked - min(asked, launched)) / ASK_PART, ASK_LEAST_NS, ASK_MOST_NS);
		if (again <= look->now + TICK_NS / 2)
			ds_busy_ask(run);
		else
			again_at(look, again);
		break;
	case DS_BUSY_NO:
		/* between the two answers, so in their middle on average; one alone says nothing about when */
		if (run->busy_ns > launched)
			asked = run->busy_ns + (asked - run->busy_ns) / 2;
		spin_lock_irq(&run->lane->lock);
		WRITE_ONCE(run->ended_ns, asked);
		run->rests = min(run->rests + 1, RESTS_MOST);
		spin_unlock_irq(&run->lane->lock);
		run->known_ns = look->now;
		break;
	case DS_BUSY_UNKNOWN:
		run->known_ns = look->now;
		break;
	}
}

/* Is it to be waited for an answer before it counts as idle? */
static bool may_be_busy(struct ds_run *run)
{
	enum ds_busy said;
	u64 asked;

	if (ds_run_ended(run) || !ds_busy_can(run->gpu))
		return false;
	return !is_told(run, &said, &asked) || said == DS_BUSY_YES;
}

/* It was quiet for its linger time: unless a kick comes this very moment, it is idle from now on. */
static void go_idle(struct ds_run *run, u64 now)
{
	struct ds_event_run event;
	u64 last;

	if (ds_gate_arm(run->gate) == DS_TOUCH_YES || ds_userd_lives(run)) {
		show_life(run, now, now);
		return;
	}
	if (may_be_busy(run))
		return;
	spin_lock_irq(&run->lane->lock);
	last = run->last_ns;
	/* it may have been kicked since it was armed */
	if (now - min(now, last) >= run->rule.linger_ns)
		run->active = false;
	else
		last = 0;
	spin_unlock_irq(&run->lane->lock);
	if (!last)
		return;
	ds_run_event(run, &event);
	ds_event_quiet(&event, now, now - last);
}

static bool is_quiet(const struct ds_run *run, u64 now)
{
	return now - min(now, READ_ONCE(run->last_ns)) >= run->rule.linger_ns;
}

/*
 * Who is held can show nothing: it is as active as it was, and wants to be who waits at a door. That it has nothing to do while it waits
 * stays as it was, too.
 */
static void keep(struct ds_run *run, u64 now)
{
	bool wants = waits(run);

	spin_lock_irq(&run->lane->lock);
	if (!run->active && wants) {
		run->since_ns = now;
		run->ended_ns = now;
	}
	if ((run->active && !ds_run_ended(run)) || wants) {
		run->active = true;
		run->last_ns = max(run->last_ns, now);
	}
	spin_unlock_irq(&run->lane->lock);
}

static void sample_held(struct look *look, struct ds_run *run)
{
	/* a gate leaves what is queued alone: that is paid for, and ends */
	if (look->metered && READ_ONCE(run->active) && !READ_ONCE(run->pause.off))
		inquire(look, run);
	else
		run->known_ns = look->now;
	keep(run, look->now);
}

static void sample(struct look *look, struct ds_run *run)
{
	u64 every = run->rule.linger_ns / 2, now = look->now, from;

	if (run->watched && is_held(run)) {
		sample_held(look, run);
		return;
	}
	if (!run->watched || !READ_ONCE(run->active)) {
		run->known_ns = now;
		return;
	}
	from = shows_life(run, now);
	if (from)
		show_life(run, from, now);
	else if (look->metered || is_quiet(run, now))
		inquire(look, run);
	else
		run->known_ns = now;
	if (is_quiet(run, now))
		go_idle(run, now);
	/* who is quiet and still active waits for the driver's answer, armed: that and its next launch come by themselves */
	if (READ_ONCE(run->active) && !is_quiet(run, now))
		again_at(look, now + (look->metered ? min(every, METER_NS) : every));
}

/* Who is held by order or has nothing left is nobody to wait for. */
static bool is_waited_for(const struct ds_run *run)
{
	return run->watched && READ_ONCE(run->active) && !run->holds && !run->spent;
}

static void find_top(struct look *look)
{
	struct ds_run *run;

	list_for_each_entry(run, &look->lane->runs, link)
		if (is_waited_for(run))
			look->top = max(look->top, run->rule.rank);
}

/*
 * When a run that is held is to be paused: its deadline after one above it is active without a doubt. A pause and its end cost more than an
 * answer of the driver's, so nobody is paused for who may have ended, but for a bound.
 */
static u64 pause_at(const struct look *look, const struct ds_run *run)
{
	u64 deadline = run->rule.deadline_ns, when = run->held_ns + deadline + DOUBT_MOST_NS;
	const struct ds_run *other;

	list_for_each_entry(other, &look->lane->runs, link) {
		if (when <= look->now)
			break;
		if (other->rule.rank > run->rule.rank && is_waited_for(other) && !in_doubt(other, look->now))
			when = min(when, max(run->held_ns, READ_ONCE(other->steady_ns)) + deadline);
	}
	return when;
}

/* ---- what is to be ------------------------------------------------------------------------- */

static void decide(struct look *look, struct ds_run *run)
{
	bool below = run->rule.rank && run->rule.rank < look->top && !run->lean && !look->free;
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
		again_at(look, deadline);
	ds_pause_want(run, DETSHARE_HOLD_ORDER, holds & DS_HOLDS_PAUSE);
	ds_pause_want(run, DETSHARE_HOLD_REFLEX, late);
	ds_pause_want(run, DETSHARE_HOLD_BUCKET, spent);
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

static void open(struct look *look, struct ds_run *run)
{
	u32 less = run->gated & ~run->wanted;

	if (!less)
		return;
	/* its next kick is news if it has nothing to do: it pays from then on, not from now on */
	if (run->gated == less && run->watched) {
		if (run->active && !ds_run_ended(run))
			show_life(run, look->now, look->now);
		else
			ds_gate_arm(run->gate);
		/* it was not to be looked at while it was held */
		again_at(look, look->now + run->rule.linger_ns / 2);
	}
	run->gated &= ~less;
	ds_gate_release(run->gate, less);
	if (!run->gated)
		tell(run, DETSHARE_CMD_OPENED);
}

static void look_at(struct look *look)
{
	struct ds_lane *lane = look->lane;
	struct ds_floor_look floors = { .now = look->now, .elapsed = look->now - lane->looked_ns, .free = look->free };
	struct ds_run *run;

	refresh_all(look);
	watch_all(look);
	list_for_each_entry(run, &lane->runs, link)
		sample(look, run);
	if (!look->free)
		look->next = min(look->next, ds_bucket_turn(lane, look->now));
	find_top(look);
	floors.top = look->top;
	list_for_each_entry(run, &lane->runs, link) {
		again_at(look, ds_floor_count(run, &floors));
		decide(look, run);
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
	struct look look = { .lane = lane, .next = KTIME_MAX, .metered = ds_bucket_on() };

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
