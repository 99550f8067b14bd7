// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/string.h>

#include "floor.h"
#include "run.h"
#include "sched.h"
#include "shares.h"
#include "turns.h"

#define PERIOD_NS (DS_PERIOD_US * NSEC_PER_USEC)

static bool is_above(const struct ds_run *run, const struct ds_run *lean)
{
	return run != lean && run->rule.rank > lean->rule.rank && READ_ONCE(run->active);
}

static bool claims(const struct ds_run *run)
{
	return run->lean || (READ_ONCE(run->active) && run->gated & DETSHARE_HOLD_REFLEX);
}

/* Those of one class that divide its floor. */
struct club {
	unsigned int count;
	s64 debt;	/* of all of them */
	s64 most;	/* of one of the others */
	bool leans;	/* one of the others */
};

/* A floor is the class's: those of it that are held and want the GPU divide it, or who opens many clients had it many times. */
static void find_club(const struct ds_run *run, struct club *club)
{
	const struct ds_run *other;

	*club = (struct club){ .count = 1, .debt = run->debt, .most = S64_MIN };
	list_for_each_entry(other, &run->lane->runs, link) {
		if (other == run || !claims(other) || other->resting || strcmp(other->rule.class, run->rule.class))
			continue;
		club->count++;
		club->debt += other->debt;
		club->most = max(club->most, other->debt);
		club->leans |= other->lean;
	}
}

/*
 * The slice with which a run gets the floor of its class, beside those above it that are active, but none in which nothing gets done.
 * *part: what it gets by that, permille.
 */
static u64 slice_of(const struct ds_run *lean, u32 *part)
{
	u64 others = 0, own, unit, floor = lean->rule.floor;
	struct ds_turns turns = { 0 };
	const struct ds_run *run;

	list_for_each_entry(run, &lean->lane->runs, link)
		if (run == lean || is_above(run, lean))
			ds_turns_add(&turns, run->level, run->tsgs);
	ds_turns_count(&turns);
	list_for_each_entry(run, &lean->lane->runs, link)
		if (is_above(run, lean))
			others = ds_turns_sum(others, ds_turns_used(&turns, run->level, run->tsgs, run->slice_us));
	others = min(others, U64_MAX / 1000);
	unit = ds_turns_used(&turns, lean->level, lean->tsgs, 1);
	own = div64_u64(div_u64(others * floor, 1000 - floor), unit);
	*part = floor;
	if (own >= DS_SHARE_SHORTEST_US)
		return own;
	own = unit * DS_SHARE_SHORTEST_US;
	*part = max(div64_u64(own, div_u64(own + others, 1000)), floor);
	return DS_SHARE_SHORTEST_US;
}

static void set_boost(struct ds_run *run, u64 us)
{
	u64 is = run->boost_us;

	/* small changes are not worth a call */
	if (us == is || (us && is && us < is + is / 8 && us + us / 8 > is))
		return;
	WRITE_ONCE(run->boost_us, us);
	ds_sched_again();
}

/* It was let go with a slice for its floor, and is not off again yet. */
static bool gets_part(const struct ds_run *run)
{
	return run->lean || (run->boost_us && run->rule.deadline_ns && !READ_ONCE(run->pause.off));
}

/* ns times permille that are owed when a run is let go: as much as it would have got until the end of a period. */
static s64 enough(const struct ds_run *run)
{
	return (u64)run->rule.floor * (1000 - run->rule.floor) * (PERIOD_NS / 1000);
}

/* One of a class at a time is let go, for a period if others wait: slices that all of them had at once would be too short for any of them. */
static u64 choose(struct ds_run *run, const struct club *club, u32 part, u64 now)
{
	bool over = !READ_ONCE(run->active) || now >= run->lean_ns + PERIOD_NS;
	u32 floor = run->rule.floor;
	u64 next = KTIME_MAX;

	if (run->lean && (club->debt <= 0 || run->resting || (club->most > run->debt && over))) {
		run->lean = false;
		return now;
	}
	if (!run->lean && claims(run) && club->debt >= enough(run) && run->debt >= club->most && !club->leans && !run->resting) {
		run->lean = true;
		run->lean_ns = now;
	}
	if (run->lean && club->count > 1)
		next = now < run->lean_ns + PERIOD_NS ? run->lean_ns + PERIOD_NS : now + PERIOD_NS / 10;
	if (run->lean && part > floor)
		next = min(next, now + div_u64(max_t(s64, club->debt, 0), part - floor));
	if (!run->lean && !club->leans && club->debt < enough(run))
		next = now + div_u64(enough(run) - club->debt, floor);
	return next;
}

/* Somebody above it is active. */
static u64 count_below(struct ds_run *run, const struct ds_floor_look *look)
{
	s64 rate = run->rule.floor, most = 2 * enough(run), before = run->debt;
	struct club club;
	u64 us, next;
	u32 part;

	find_club(run, &club);
	us = slice_of(run, &part);
	rate = max_t(s64, div_s64(rate, club.count), 1);
	if (gets_part(run))
		rate -= part;
	if (gets_part(run) || run->gated & DETSHARE_HOLD_REFLEX)
		run->debt = clamp(run->debt + (s64)look->elapsed * rate, -most, most);
	club.debt += run->debt - before;
	next = choose(run, &club, part, look->now);
	if (run->lean)
		set_boost(run, us);
	return next;
}

u64 ds_floor_count(struct ds_run *run, const struct ds_floor_look *look)
{
	bool below = run->rule.rank && run->rule.rank < look->top;
	u32 floor = run->rule.floor;

	if (floor && !look->free && below)
		return count_below(run, look);
	if (!floor || look->free)
		run->debt = 0;
	else if (run->debt > 0)
		run->debt -= min_t(u64, run->debt, look->elapsed * (1000 - floor));
	if (run->debt <= 0) {
		run->lean = false;
		set_boost(run, 0);
		return KTIME_MAX;
	}
	return look->now + div_u64(run->debt, 1000 - floor);
}
