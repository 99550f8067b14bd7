// SPDX-License-Identifier: Apache-2.0
/*
 * Happens-before as vector clocks. Actors are streams and the branches of executable graphs. All host threads share one
 * clock, for their own locks are not seen here; helper threads ("ds-...") have clocks of their own.
 */
#include <stdio.h>
#include <sys/prctl.h>

#include "fake.h"

#define REUSE_FROM 512

static struct clock *shared_host;
static uint64_t *counts;
static unsigned int actors;
static unsigned int *spare;
static unsigned int spares;

struct clock *clock_get(struct clock *clock)
{
	if (clock)
		clock->refs++;
	return clock;
}

void clock_put(struct clock *clock)
{
	if (clock && !--clock->refs)
		free(clock);
}

static struct clock *writable(struct clock *a, unsigned int n)
{
	struct clock *b;
	unsigned int old = a ? a->n : 0;

	if (a && a->refs == 1 && n <= old)
		return a;
	if (n < old)
		n = old;
	b = xalloc(sizeof(*b) + n * sizeof(b->t[0]));
	b->refs = 1;
	b->n = n;
	if (a)
		memcpy(b->t, a->t, old * sizeof(b->t[0]));
	clock_put(a);
	return b;
}

struct clock *clock_join(struct clock *a, const struct clock *b)
{
	if (!b || a == b)
		return a;
	for (unsigned int i = 0; i < b->n; i++) {
		if (b->t[i] <= (a && i < a->n ? a->t[i] : 0))
			continue;
		a = writable(a, b->n);
		a->t[i] = b->t[i];
	}
	return a;
}

struct clock *clock_tick(struct clock *a, unsigned int actor)
{
	a = writable(a, actor + 1);
	a->t[actor] = ++counts[actor];
	return a;
}

bool clock_covers(const struct clock *clock, unsigned int actor, uint64_t time)
{
	return time == 0 || (clock && actor < clock->n && clock->t[actor] >= time);
}

/* Ids come back only once there are many: a new owner looks ordered behind the old one's work. */
unsigned int actor_new(void)
{
	if (actors >= REUSE_FROM && spares)
		return spare[--spares];
	counts = xrealloc(counts, (actors + 1) * sizeof(*counts));
	counts[actors] = 0;
	return actors++;
}

void actor_free(unsigned int actor)
{
	spare = xrealloc(spare, (spares + 1) * sizeof(*spare));
	spare[spares++] = actor;
}

bool helper_thread(void)
{
	if (!self.known) {
		char name[17] = "";

		self.known = true;
		prctl(PR_GET_NAME, name);
		self.aside = !strncmp(name, "ds-", 3) || !strncmp(name, "detshare", 8);
	}
	return self.aside;
}

static struct clock **mine(void)
{
	return helper_thread() ? &self.clock : &shared_host;
}

void host_join(const struct clock *clock)
{
	struct clock **host = mine();

	*host = clock_join(*host, clock);
}

struct clock *host_clock(void)
{
	return clock_get(*mine());
}
