// SPDX-License-Identifier: GPL-2.0-only
/* GPU time as the module counts it, as a shared object for tests: one runq, its entities by number, a clock that the caller moves. */
#include <stdlib.h>

#include "usage_kernel.h"

#define MOST 4096

static struct ds_runq runq;
static struct ds_entity entities[MOST];

struct lock *usage_lock = &runq.lock;

/* So many entities with one channel group each, at work and known from `now` on. */
void bench_begin(u64 count, u64 now)
{
	u64 i;

	memset(&runq, 0, sizeof(runq));
	memset(entities, 0, sizeof(entities));
	runq.entities.next = runq.entities.prev = &runq.entities;
	runq.charged_ns = now;
	for (i = 0; i < count; i++) {
		entities[i] = (struct ds_entity){ .runq = &runq, .watched = true, .active = true, .level = -1, .tsgs = 1,
					   .since_ns = now, .launched_ns = now, .known_ns = now };
		entities[i].usage.seen_ns = now;
		entities[i].link.prev = runq.entities.prev;
		entities[i].link.next = &runq.entities;
		runq.entities.prev->next = &entities[i].link;
		runq.entities.prev = &entities[i].link;
	}
}

void bench_known(u64 i, u64 until)
{
	entities[i].known_ns = until;
}

void bench_ended(u64 i, u64 when)
{
	entities[i].ended_ns = when;
}

void bench_rest(u64 i, u64 from, u64 to)
{
	entities[i].rest = (struct ds_spell){ .from = from, .to = to };
}

void bench_groups(u64 i, u64 tsgs, u64 slice_us)
{
	entities[i].tsgs = tsgs;
	entities[i].slice_us = slice_us;
}

void bench_level(u64 i, u64 level)
{
	entities[i].level = level;
}

/* What it would still pay if it went now. */
u64 bench_end(u64 i, u64 now)
{
	return ds_usage_end(&entities[i], now);
}

u64 bench_charge(u64 now)
{
	return ds_usage_charge(&runq, now);
}

u64 bench_used(u64 i)
{
	return entities[i].used_ns;
}

u64 bench_sections(void)
{
	return runq.lock.sections;
}

u64 bench_traps(void)
{
	return runq.lock.traps;
}

u64 bench_sums_in_lock(void)
{
	return runq.lock.sums;
}
