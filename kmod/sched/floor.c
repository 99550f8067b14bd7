// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/string.h>

#include "floor.h"
#include "run.h"
#include "sched.h"
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

/* A floor is the class's: those of it that are held and want the GPU divide it, or who opens many clients had it many times. */
static u32 floor_of(const struct ds_run *run)
{
	const struct ds_run *other;
	unsigned int count = 0;

	if (!run->rule.floor)
		return 0;
	list_for_each_entry(other, &run->lane->runs, link)
		count += (other == run || claims(other)) && !strcmp(other->rule.class, run->rule.class);
	return max(run->rule.floor / count, 1u);
}

/* The slice with which a lean run gets its floor, beside those above it that are active. */
static u64 slice_of(const struct ds_run *lean)
{
	u32 floor = floor_of(lean);
	struct ds_turns turns = { 0 };
	const struct ds_run *run;
	u64 others = 0, own;

	list_for_each_entry(run, &lean->lane->runs, link)
		if (run == lean || is_above(run, lean))
			ds_turns_add(&turns, run->level, run->tsgs);
	ds_turns_count(&turns);
	list_for_each_entry(run, &lean->lane->runs, link)
		if (is_above(run, lean))
			others = ds_turns_sum(others, ds_turns_taken(&turns, run->level, run->tsgs, run->slice_us));
	/* all that is not its own slices: f / (1 - f) of that is to be its own */
	others = ds_turns_sum(others, ds_turns_taken(&turns, lean->level, lean->tsgs, 1) - ds_turns_used(&turns, lean->level, lean->tsgs, 1));
	own = div_u64(min(others, U64_MAX / 1000) * floor, 1000 - floor);
	return max(div64_u64(own, ds_turns_used(&turns, lean->level, lean->tsgs, 1)), 1ULL);
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

u64 ds_floor_count(struct ds_run *run, const struct ds_floor_look *look)
{
	u32 floor = floor_of(run);
	u64 owed = (u64)floor * (1000 - floor) * (PERIOD_NS / 1000), next = KTIME_MAX;
	bool below = run->rule.rank && run->rule.rank < look->top;

	if (!floor || look->free) {
		run->debt = 0;
	} else if (below && !run->lean) {
		if (run->gated & DETSHARE_HOLD_REFLEX)
			run->debt += look->elapsed * floor;
		if (run->debt < owed)
			next = look->now + div_u64(owed - run->debt, floor);
	} else if (!below) {
		run->debt -= min(run->debt, look->elapsed * (1000 - floor));
		if (run->debt)
			next = look->now + div_u64(run->debt, 1000 - floor);
	}
	if (run->debt >= owed && owed)
		run->lean = true;
	else if (!run->debt)
		run->lean = false;
	if (!run->lean)
		set_boost(run, 0);
	else if (below)
		set_boost(run, slice_of(run));
	return next;
}
