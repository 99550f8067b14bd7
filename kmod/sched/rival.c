// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/minmax.h>

#include "activity.h"
#include "busy.h"
#include "rival.h"
#include "run.h"
#include "sched.h"

/* A question is a call of the driver, of a millisecond: one at a time, and about each run so often at most. However many there are. */
#define BETWEEN_NS (50 * NSEC_PER_MSEC)
#define EACH_NS (200 * NSEC_PER_MSEC)
/* An answer counts for so long: who rests now and then does not have slices set each time. */
#define KEEP_NS (2 * NSEC_PER_SEC)

static bool may_be_one(const struct ds_run *run)
{
	return !run->rule.class[0] && run->tsgs && !run->gated && !READ_ONCE(run->pause.off);
}

/* When the driver was asked about it last, 0: never. *busy: by its answer; where it had none, a slice too long costs less than one too short. */
static u64 asked_at(const struct ds_run *run, bool *busy)
{
	u64 asked;

	spin_lock_irq(&run->lane->lock);
	asked = run->busy.asked_ns;
	*busy = asked && run->busy.said != DS_BUSY_NO;
	spin_unlock_irq(&run->lane->lock);
	return asked;
}

/* Asks about the one of them that nobody asked about for the longest. */
static void ask(struct ds_look *look, struct ds_run *run, u64 asked)
{
	struct ds_rotation *rotation = &look->lane->rotation;
	u64 when = max(asked + EACH_NS, rotation->rival_asked_ns + BETWEEN_NS);

	if (look->now >= when) {
		rotation->rival_asked_ns = look->now;
		ds_busy_ask(run);
		when = look->now + BETWEEN_NS;
	}
	ds_look_again(look, when);
}

static void find(struct ds_look *look)
{
	struct ds_rotation *rotation = &look->lane->rotation;
	struct ds_run *run, *next = NULL;
	u64 asked, longest = U64_MAX;
	bool busy;

	list_for_each_entry(run, &look->lane->runs, link) {
		if (!may_be_one(run))
			continue;
		asked = asked_at(run, &busy);
		if (busy)
			rotation->rival_ns = max(rotation->rival_ns, asked);
		if (asked < longest) {
			longest = asked;
			next = run;
		}
	}
	if (!next)
		return;
	if (ds_busy_can(look->lane->gpu))
		ask(look, next, longest);
	else
		/* nobody can tell: each counts as busy */
		rotation->rival_ns = look->now;
}

void ds_rival_look(struct ds_look *look, bool turns)
{
	struct ds_rotation *rotation = &look->lane->rotation;
	bool there;

	if (turns && !look->free)
		find(look);
	there = rotation->rival_ns && look->now - min(look->now, rotation->rival_ns) < KEEP_NS;
	if (there)
		ds_look_again(look, rotation->rival_ns + KEEP_NS);
	if (there == rotation->rival)
		return;
	WRITE_ONCE(rotation->rival, there);
	ds_sched_again();
}
