// SPDX-License-Identifier: GPL-2.0-only
/* GPU time as the module counts it, as a shared object for tests: one lane, its runs by number, a clock that the caller moves. */
#include <stdlib.h>

#include "usage_kernel.h"

#define MOST 4096

static struct ds_lane lane;
static struct ds_run runs[MOST];

struct lock *usage_lock = &lane.lock;

/* So many runs with one channel group each, at work and known from `now` on. */
void bench_begin(u64 count, u64 now)
{
	u64 i;

	memset(&lane, 0, sizeof(lane));
	memset(runs, 0, sizeof(runs));
	lane.runs.next = lane.runs.prev = &lane.runs;
	lane.charged_ns = now;
	for (i = 0; i < count; i++) {
		runs[i] = (struct ds_run){ .lane = &lane, .watched = true, .active = true, .level = -1, .tsgs = 1,
					   .since_ns = now, .launched_ns = now, .known_ns = now };
		runs[i].usage.seen_ns = now;
		runs[i].link.prev = lane.runs.prev;
		runs[i].link.next = &lane.runs;
		lane.runs.prev->next = &runs[i].link;
		lane.runs.prev = &runs[i].link;
	}
}

void bench_known(u64 i, u64 until)
{
	runs[i].known_ns = until;
}

void bench_ended(u64 i, u64 when)
{
	runs[i].ended_ns = when;
}

void bench_rest(u64 i, u64 from, u64 to)
{
	runs[i].rest = (struct ds_spell){ .from = from, .to = to };
}

void bench_groups(u64 i, u64 tsgs, u64 slice_us)
{
	runs[i].tsgs = tsgs;
	runs[i].slice_us = slice_us;
}

void bench_level(u64 i, u64 level)
{
	runs[i].level = level;
}

/* What it would still pay if it went now. */
u64 bench_end(u64 i, u64 now)
{
	return ds_usage_end(&runs[i], now);
}

u64 bench_charge(u64 now)
{
	return ds_usage_charge(&lane, now);
}

u64 bench_used(u64 i)
{
	return runs[i].used_ns;
}

u64 bench_sections(void)
{
	return lane.lock.sections;
}

u64 bench_traps(void)
{
	return lane.lock.traps;
}

u64 bench_sums_in_lock(void)
{
	return lane.lock.sums;
}
