// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/math64.h>

#include "activity.h"
#include "busy.h"
#include "rotation.h"
#include "run.h"
#include "unseen.h"
#include "userd.h"

/* Who shows no life for so long is quiet; in between he is looked at. */
#define LINGER_NS NSEC_PER_MSEC
/*
 * Who was busy so long is asked again after this part of it, by half more or less, but not at once, for an answer takes about as long, and not
 * later than that.
 */
#define ASK_PART 16
#define ASK_LEAST_NS NSEC_PER_MSEC
#define ASK_MOST_NS (5 * NSEC_PER_MSEC)
/* Who pays is charged so often while the driver is left alone. */
#define BLIND_NS (50 * NSEC_PER_MSEC)
/* Of what a run was busy for certain, the part that it may have rested unseen before its next launch. */
#define REST_PART 32
#define RESTS_MOST 4u

/* It has something to do, or may have: it counts as active until it shows that it is quiet. Under lane->lock. */
static void assume(struct ds_run *run, u64 now)
{
	if (!run->active)
		run->since_ns = now;
	run->active = true;
	run->last_ns = max(run->last_ns, now);
	run->launched_ns = max(run->launched_ns, now);
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

void ds_activity_kicked(void *owner, u64 idle_ns, pid_t who)
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
	assume(run, now);
	run->seen_ns = now;
	run->fresh = true;
	spin_unlock_irqrestore(&run->lane->lock, flags);
	ds_lane_look(run->lane);
	ds_run_event(run, &event);
	ds_event_kick(&event, now, idle_ns, who);
	/* the page is not back before this returns: what took so long was not the GPU's work */
	spin_lock_irqsave(&run->lane->lock, flags);
	if (run->since_ns == now)
		run->since_ns = ktime_get_ns();
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

/* ---- who is looked at -------------------------------------------------------------------- */

static void set_watched(struct ds_run *run, bool watched, u64 now)
{
	if (watched == run->watched)
		return;
	spin_lock_irq(&run->lane->lock);
	run->watched = watched;
	/* what it did until now is not known: let it show that it is quiet */
	run->active = false;
	assume(run, now);
	run->since_ns = now;
	spin_unlock_irq(&run->lane->lock);
	if (!watched)
		ds_gate_disarm(run->gate);
}

/* Whether a run is active matters where others may have turns, and where GPU time is counted. */
void ds_activity_watch(struct ds_look *look)
{
	bool counted = look->metered || ds_event_activity_wanted();
	struct ds_run *run;
	unsigned int runs = 0;
	bool turns = false;

	list_for_each_entry(run, &look->lane->runs, link) {
		runs++;
		turns |= ds_rotation_has(run);
	}
	/* whose turn it may be, and what is left to them */
	turns &= runs > 1;
	list_for_each_entry(run, &look->lane->runs, link)
		set_watched(run, !look->free && (counted || (turns && run->rule.class[0])), look->now);
}

/* ---- what it shows ------------------------------------------------------------------------ */

static bool is_held(const struct ds_run *run)
{
	return run->gated || READ_ONCE(run->pause.off);
}

static bool shows_life(struct ds_run *run)
{
	return ds_gate_touched(run->gate) == DS_TOUCH_YES || ds_userd_lives(run->process, run->client, run->gpu);
}

/* It launches or has something queued: until now it may have been at work all the time. */
void ds_activity_seen(struct ds_run *run, u64 now)
{
	spin_lock_irq(&run->lane->lock);
	assume(run, now);
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

/* ---- what the driver says ------------------------------------------------------------------- */

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

/* Chance has a part in it: else kernels that all take the same time would all be charged with the same error. */
static u64 ask_again_at(const struct ds_run *run, u64 asked, u64 launched)
{
	u64 gap = clamp_t(u64, (asked - min(asked, launched)) / ASK_PART, ASK_LEAST_NS, ASK_MOST_NS);

	return asked + gap / 2 + mul_u64_u32_shr(gap, READ_ONCE(run->busy.chance), 32);
}

/* It has launched, and the driver that could tell whether that runs still is left alone: who pays for GPU time pays on. */
static bool is_unsure(const struct ds_run *run)
{
	return run->counted && !ds_run_ended(run) && ds_busy_rests(run->gpu);
}

/*
 * A run shows no life. What it launched may run still: the driver is asked, again and again while it says so. What the run did since
 * is known up to the last question that is answered.
 */
static void inquire(struct ds_look *look, struct ds_run *run)
{
	enum ds_busy said = DS_BUSY_UNKNOWN;
	u64 asked, again, launched = at_work_since(run);

	if (ds_run_ended(run) || !ds_busy_can(run->gpu)) {
		run->known_ns = look->now;
		if (is_unsure(run))
			ds_look_again(look, look->now + BLIND_NS);
		return;
	}
	if (!is_told(run, &said, &asked)) {
		ds_busy_ask(run);
		return;
	}
	if (said == DS_BUSY_UNSURE && run->counted)
		said = DS_BUSY_YES;
	switch (said) {
	case DS_BUSY_YES:
		WRITE_ONCE(run->busy_ns, asked);
		run->known_ns = asked;
		again = ask_again_at(run, asked, launched);
		if (again <= look->now + DS_LOOK_TICK_NS / 2)
			ds_busy_ask(run);
		else
			ds_look_again(look, again);
		break;
	case DS_BUSY_NO:
		spin_lock_irq(&run->lane->lock);
		/* between the two answers, so in their middle on average; one alone says nothing about when, but for work that was let go on */
		if (run->busy_ns > launched)
			asked = run->busy_ns + (asked - run->busy_ns) / 2;
		else if (run->resumed_ns >= run->launched_ns)
			asked = launched + (asked - min(asked, launched)) / 2;
		WRITE_ONCE(run->ended_ns, asked);
		run->rests = min(run->rests + 1, RESTS_MOST);
		spin_unlock_irq(&run->lane->lock);
		run->known_ns = look->now;
		break;
	case DS_BUSY_UNSURE:
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

	if (is_unsure(run))
		return true;
	if (ds_run_ended(run) || !ds_busy_can(run->gpu))
		return false;
	return !is_told(run, &said, &asked) || said == DS_BUSY_YES || (said == DS_BUSY_UNSURE && run->counted);
}

/* ---- one look at it ---------------------------------------------------------------------------- */

/* It was quiet for its linger time: unless a kick comes this very moment, it is idle from now on. */
static void go_idle(struct ds_run *run, u64 now)
{
	struct ds_event_run event;
	u64 last;

	if (ds_gate_arm(run->gate) == DS_TOUCH_YES || ds_userd_lives(run->process, run->client, run->gpu)) {
		ds_activity_seen(run, now);
		return;
	}
	if (may_be_busy(run))
		return;
	spin_lock_irq(&run->lane->lock);
	last = run->last_ns;
	/* it may have been kicked since it was armed */
	if (now - min(now, last) >= LINGER_NS)
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
	return now - min(now, READ_ONCE(run->last_ns)) >= LINGER_NS;
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

/*
 * Its launch was caught since the lane looked last. There is nothing to find that the fault did not tell, and who looks takes the page's
 * dirty bit back from all processors just when the launch is under way.
 */
static bool take_fresh(struct ds_run *run)
{
	bool fresh;

	spin_lock_irq(&run->lane->lock);
	fresh = run->fresh;
	run->fresh = false;
	spin_unlock_irq(&run->lane->lock);
	return fresh;
}

static void sample_held(struct ds_look *look, struct ds_run *run)
{
	/* a gate leaves what is queued alone: that is paid for, and ends */
	if (look->metered && READ_ONCE(run->active) && !READ_ONCE(run->pause.off))
		inquire(look, run);
	else
		run->known_ns = look->now;
	keep(run, look->now);
}

void ds_activity_sample(struct ds_look *look, struct ds_run *run)
{
	u64 now = look->now;

	if (run->watched && is_held(run)) {
		sample_held(look, run);
		return;
	}
	if (!run->watched || !READ_ONCE(run->active)) {
		run->known_ns = now;
		if (run->watched)
			ds_unseen_sample(look, run);
		return;
	}
	if (take_fresh(run)) {
		/* counted, it is looked at when it may be quiet */
		ds_look_again(look, now + (look->metered ? LINGER_NS : LINGER_NS / 2));
		return;
	}
	if (shows_life(run))
		ds_activity_seen(run, now);
	else if (look->metered || is_quiet(run, now))
		inquire(look, run);
	else
		run->known_ns = now;
	if (is_quiet(run, now))
		go_idle(run, now);
	/* who is quiet and still active waits for the driver's answer, armed: that and its next launch come by themselves */
	if (READ_ONCE(run->active) && !is_quiet(run, now))
		ds_look_again(look, now + LINGER_NS / 2);
}

void ds_activity_reopen(struct ds_look *look, struct ds_run *run)
{
	/* its next kick is news if it has nothing to do: it pays from then on, not from now on */
	if (run->active && !ds_run_ended(run)) {
		ds_activity_seen(run, look->now);
		run->resumed_ns = look->now;
	} else {
		ds_gate_arm(run->gate);
	}
	/* it was not to be looked at while it was held */
	ds_look_again(look, look->now + LINGER_NS / 2);
}
