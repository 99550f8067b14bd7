// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/math64.h>

#include "activity.h"
#include "busy.h"
#include "rotation.h"
#include "entity.h"
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
/* Whose turn does not pass is looked at, and asked about, so often. */
#define LONE_NS (50 * NSEC_PER_MSEC)
/* Who pays is charged so often while the driver is left alone. */
#define BLIND_NS (50 * NSEC_PER_MSEC)
/* Of what an entity was busy for certain, the part that it may have rested unseen before its next launch. */
#define REST_PART 32
#define RESTS_MOST 4u

/* It has something to do, or may have: it counts as active until it shows that it is quiet. Under runq->lock. */
static void assume(struct ds_entity *entity, u64 now)
{
	if (!entity->active)
		entity->since_ns = now;
	entity->active = true;
	entity->last_ns = max(entity->last_ns, now);
	entity->launched_ns = max(entity->launched_ns, now);
}

static u64 at_work_since(const struct ds_entity *entity)
{
	return max(READ_ONCE(entity->launched_ns), READ_ONCE(entity->pause.on_ns));
}

/*
 * It launches after a silence whose end nobody saw: the driver's last word was "busy". On average it ended its work half way between. A
 * program that launches while its kernels run looks the same, so one that is never heard to rest has nothing for it, and what others may
 * have is bounded. Under runq->lock.
 */
static void guess_rest(struct ds_entity *entity, u64 now)
{
	u64 since = at_work_since(entity), busy = READ_ONCE(entity->busy_ns);

	if (!entity->active || !entity->rests || entity->rest.to || busy <= since || busy >= now)
		return;
	if (entity->pause.off || entity->pause.moving_ns || entity->pause.wanted)
		return;
	entity->rests--;
	entity->rest = (struct ds_spell){ .from = now - min((now - busy) / 2, (busy - since) / REST_PART), .to = now };
}

void ds_activity_kicked(void *owner, u64 idle_ns, pid_t who)
{
	struct ds_entity *entity = owner;
	struct ds_event_entity event;
	u64 now = ktime_get_ns();
	unsigned long flags;

	spin_lock_irqsave(&entity->runq->lock, flags);
	if (ds_entity_ended(entity))
		entity->since_ns = now;
	else
		guess_rest(entity, now);
	assume(entity, now);
	entity->seen_ns = now;
	entity->fresh = true;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
	ds_runq_scan(entity->runq);
	ds_entity_event(entity, &event);
	ds_event_kick(&event, now, idle_ns, who);
	/* the page is not back before this returns: what took so long was not the GPU's work */
	spin_lock_irqsave(&entity->runq->lock, flags);
	if (entity->since_ns == now)
		entity->since_ns = ktime_get_ns();
	spin_unlock_irqrestore(&entity->runq->lock, flags);
}

/* ---- who is looked at -------------------------------------------------------------------- */

static void set_watched(struct ds_entity *entity, bool watched, u64 now)
{
	if (watched == entity->watched)
		return;
	spin_lock_irq(&entity->runq->lock);
	entity->watched = watched;
	/* what it did until now is not known: let it show that it is quiet */
	entity->active = false;
	assume(entity, now);
	entity->since_ns = now;
	spin_unlock_irq(&entity->runq->lock);
	if (!watched)
		ds_gate_disarm(entity->gate);
}

/* Whether an entity is active matters where others may have turns, and where GPU time is counted. */
void ds_activity_watch(struct ds_scan *scan)
{
	bool counted = scan->metered || ds_event_activity_wanted();
	struct ds_entity *entity, *first = NULL;
	unsigned int entities = 0;
	bool several = false, turns;

	list_for_each_entry(entity, &scan->runq->entities, link) {
		entities++;
		if (!ds_rotation_has(entity))
			continue;
		first = first ?: entity;
		several |= entity->spans || entity->rule.account != first->rule.account;
	}
	/* whose turn it may be, and what is left to them */
	turns = first && entities > 1;
	scan->lone = !several && !counted && !scan->runq->rotation.gaps.closed;
	list_for_each_entry(entity, &scan->runq->entities, link) {
		bool near = ds_rotation_has(entity) || !scan->runq->rotation.spots.suffice;
		bool looks = counted || (turns && entity->rule.class[0] && near);

		set_watched(entity, !scan->free && looks, scan->now);
	}
}

/* ---- what it shows ------------------------------------------------------------------------ */

static bool is_held(const struct ds_entity *entity)
{
	return entity->gated || ds_entity_in_doubt(entity);
}

static bool shows_life(struct ds_entity *entity)
{
	return ds_gate_touched(entity->gate) == DS_TOUCH_YES || ds_userd_lives(entity->process, entity->client, entity->gpu);
}

/*
 * It launches or has something queued: until now it may have been at work all the time. The look at it is later than `now`, by far if the
 * look's task was stopped: it is quiet no sooner than its linger time after that, or the next look, a moment later, would find it so.
 */
void ds_activity_seen(struct ds_entity *entity, u64 now)
{
	spin_lock_irq(&entity->runq->lock);
	assume(entity, now);
	entity->last_ns = max(entity->last_ns, ktime_get_ns());
	entity->ended_ns = 0;
	WRITE_ONCE(entity->busy_ns, 0);
	spin_unlock_irq(&entity->runq->lock);
	entity->known_ns = now;
}

static bool waits(struct ds_entity *entity)
{
	struct ds_gate_stats stats;

	ds_gate_stats(entity->gate, &stats);
	return stats.waiting;
}

/* When to look at it next, if `soon` is what its turn would want. */
static u64 look_at(const struct ds_scan *scan, const struct ds_entity *entity, u64 soon)
{
	return scan->lone && ds_rotation_has(entity) ? max(soon, scan->now + LONE_NS) : soon;
}

/* ---- what the driver says ------------------------------------------------------------------- */

/* The driver's answer about the time since the entity showed life last. false: there is none yet. */
static bool is_told(struct ds_entity *entity, enum ds_busy *said, u64 *asked)
{
	bool told;

	spin_lock_irq(&entity->runq->lock);
	*said = entity->busy.said;
	*asked = entity->busy.asked_ns;
	/* one that began before may be about the time before, too */
	told = entity->busy.begun_ns > max(entity->launched_ns, entity->pause.on_ns);
	spin_unlock_irq(&entity->runq->lock);
	return told;
}

/* Chance has a part in it: else kernels that all take the same time would all be charged with the same error. */
static u64 ask_again_at(const struct ds_entity *entity, u64 asked, u64 launched)
{
	u64 gap = clamp_t(u64, (asked - min(asked, launched)) / ASK_PART, ASK_LEAST_NS, ASK_MOST_NS);

	return asked + gap / 2 + mul_u64_u32_shr(gap, READ_ONCE(entity->busy.chance), 32);
}

/*
 * It has launched, and the driver that could tell whether that runs still is left alone: who pays for GPU time pays on, and who has turns
 * has them. Two that count as idle beside each other, with slices shorter than a switch, would never get on.
 */
static bool is_unsure(const struct ds_entity *entity)
{
	return (entity->counted || ds_rotation_has(entity)) && !ds_entity_ended(entity) && ds_busy_rests(entity->gpu);
}

/*
 * An entity shows no life. What it launched may run still: the driver is asked, again and again while it says so. What the entity did since
 * is known up to the last question that is answered.
 */
static void inquire(struct ds_scan *scan, struct ds_entity *entity)
{
	enum ds_busy said = DS_BUSY_UNKNOWN;
	u64 asked, again, launched = at_work_since(entity);

	if (ds_entity_ended(entity) || !ds_busy_can(entity->gpu)) {
		entity->known_ns = scan->now;
		if (is_unsure(entity))
			ds_scan_again(scan, scan->now + BLIND_NS);
		return;
	}
	if (!is_told(entity, &said, &asked)) {
		ds_busy_ask(entity);
		return;
	}
	if (said == DS_BUSY_UNSURE && entity->counted)
		said = DS_BUSY_YES;
	switch (said) {
	case DS_BUSY_YES:
		WRITE_ONCE(entity->busy_ns, asked);
		entity->known_ns = asked;
		again = look_at(scan, entity, ask_again_at(entity, asked, launched));
		if (again <= scan->now + DS_SCAN_TICK_NS / 2)
			ds_busy_ask(entity);
		else
			ds_scan_again(scan, again);
		break;
	case DS_BUSY_NO:
		spin_lock_irq(&entity->runq->lock);
		/* between the two answers, so in their middle on average; one alone says nothing about when, but for work that was let go on */
		if (entity->busy_ns > launched)
			asked = entity->busy_ns + (asked - entity->busy_ns) / 2;
		else if (entity->resumed_ns >= entity->launched_ns)
			asked = launched + (asked - min(asked, launched)) / 2;
		WRITE_ONCE(entity->ended_ns, asked);
		entity->rests = min(entity->rests + 1, RESTS_MOST);
		spin_unlock_irq(&entity->runq->lock);
		entity->known_ns = scan->now;
		break;
	case DS_BUSY_UNSURE:
	case DS_BUSY_UNKNOWN:
		entity->known_ns = scan->now;
		break;
	}
}

/* Is it to be waited for an answer before it counts as idle? */
static bool may_be_busy(struct ds_entity *entity)
{
	enum ds_busy said;
	u64 asked;

	if (is_unsure(entity))
		return true;
	if (ds_entity_ended(entity) || !ds_busy_can(entity->gpu))
		return false;
	return !is_told(entity, &said, &asked) || said == DS_BUSY_YES || (said == DS_BUSY_UNSURE && entity->counted);
}

/* ---- one look at it ---------------------------------------------------------------------------- */

/* It was quiet for its linger time: unless a kick comes this very moment, it is idle from now on. */
static void go_idle(struct ds_entity *entity, u64 now)
{
	struct ds_event_entity event;
	u64 last;

	if (ds_gate_arm(entity->gate) == DS_TOUCH_YES || ds_userd_lives(entity->process, entity->client, entity->gpu)) {
		ds_activity_seen(entity, now);
		return;
	}
	if (may_be_busy(entity))
		return;
	spin_lock_irq(&entity->runq->lock);
	last = entity->last_ns;
	/* it may have been kicked since it was armed */
	if (now - min(now, last) >= LINGER_NS)
		entity->active = false;
	else
		last = 0;
	spin_unlock_irq(&entity->runq->lock);
	if (!last)
		return;
	ds_entity_event(entity, &event);
	ds_event_quiet(&event, now, now - last);
}

static bool is_quiet(const struct ds_entity *entity, u64 now)
{
	return now - min(now, READ_ONCE(entity->last_ns)) >= LINGER_NS;
}

/*
 * Who is held can show nothing: it is as active as it was, and wants to be who waits at a door. That it has nothing to do while it waits
 * stays as it was, too.
 */
static void keep(struct ds_entity *entity, u64 now)
{
	bool wants = waits(entity);

	spin_lock_irq(&entity->runq->lock);
	if (!entity->active && wants) {
		entity->since_ns = now;
		entity->ended_ns = now;
	}
	if ((entity->active && !ds_entity_ended(entity)) || wants) {
		entity->active = true;
		entity->last_ns = max(entity->last_ns, now);
	}
	spin_unlock_irq(&entity->runq->lock);
}

/*
 * Its launch was caught since the runq looked last. There is nothing to find that the fault did not tell, and who looks takes the page's
 * dirty bit back from all processors just when the launch is under way.
 */
static bool take_fresh(struct ds_entity *entity)
{
	bool fresh;

	spin_lock_irq(&entity->runq->lock);
	fresh = entity->fresh;
	entity->fresh = false;
	spin_unlock_irq(&entity->runq->lock);
	return fresh;
}

static void sample_held(struct ds_scan *scan, struct ds_entity *entity)
{
	/* a gate leaves what is queued alone: that is paid for, and ends */
	if (scan->metered && READ_ONCE(entity->active) && !ds_entity_in_doubt(entity))
		inquire(scan, entity);
	else
		entity->known_ns = scan->now;
	keep(entity, scan->now);
}

void ds_activity_sample(struct ds_scan *scan, struct ds_entity *entity)
{
	u64 now = scan->now;

	if (entity->watched && is_held(entity)) {
		sample_held(scan, entity);
		return;
	}
	if (!entity->watched || !READ_ONCE(entity->active)) {
		entity->known_ns = now;
		if (entity->watched)
			ds_unseen_sample(scan, entity);
		return;
	}
	if (take_fresh(entity)) {
		/* counted, it is looked at when it may be quiet */
		ds_scan_again(scan, look_at(scan, entity, now + (scan->metered ? LINGER_NS : LINGER_NS / 2)));
		return;
	}
	if (shows_life(entity))
		ds_activity_seen(entity, now);
	else if (scan->metered || is_quiet(entity, now))
		inquire(scan, entity);
	else
		entity->known_ns = now;
	if (is_quiet(entity, now))
		go_idle(entity, now);
	/* who is quiet and still active waits for the driver's answer, armed: that and its next launch come by themselves */
	if (!READ_ONCE(entity->active))
		ds_unseen_sample(scan, entity);
	else if (!is_quiet(entity, now))
		ds_scan_again(scan, look_at(scan, entity, now + LINGER_NS / 2));
}

void ds_activity_reopen(struct ds_scan *scan, struct ds_entity *entity)
{
	/* its next kick is news if it has nothing to do: it pays from then on, not from now on */
	if (entity->active && !ds_entity_ended(entity)) {
		ds_activity_seen(entity, scan->now);
		entity->resumed_ns = scan->now;
	} else {
		ds_gate_arm(entity->gate);
	}
	/* it was not to be looked at while it was held */
	ds_scan_again(scan, scan->now + LINGER_NS / 2);
}
