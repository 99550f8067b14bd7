// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>

#include "activity.h"
#include "busy.h"
#include "rival.h"
#include "run.h"
#include "sched.h"

/* Each is asked about so often: a question is a call of the driver, of a millisecond. */
#define ASK_NS (200 * NSEC_PER_MSEC)
/* It counts for so long: who rests now and then does not have slices set each time. */
#define KEEP_NS (2 * NSEC_PER_SEC)

static bool may_be_one(const struct ds_run *run)
{
	return !run->rule.class[0] && run->tsgs && !run->gated && !READ_ONCE(run->pause.off);
}

/* Where the driver does not tell, it counts as busy: a slice too long costs a wait, one too short all progress. */
static bool is_busy(struct ds_look *look, struct ds_run *run)
{
	enum ds_busy said;
	u64 asked;

	if (!ds_busy_can(run->gpu))
		return true;
	spin_lock_irq(&run->lane->lock);
	said = run->busy.said;
	asked = run->busy.asked_ns;
	spin_unlock_irq(&run->lane->lock);
	if (look->now >= asked + ASK_NS)
		ds_busy_ask(run);
	ds_look_again(look, max(asked, look->now) + ASK_NS);
	return asked && look->now < asked + 2 * ASK_NS && said != DS_BUSY_NO;
}

void ds_rival_look(struct ds_look *look, bool turns)
{
	struct ds_rotation *rotation = &look->lane->rotation;
	struct ds_run *run;
	bool there;

	if (turns && !look->free)
		list_for_each_entry(run, &look->lane->runs, link)
			if (may_be_one(run) && is_busy(look, run))
				rotation->rival_ns = look->now;
	there = rotation->rival_ns && look->now - rotation->rival_ns < KEEP_NS;
	if (there)
		ds_look_again(look, rotation->rival_ns + KEEP_NS);
	if (there == rotation->rival)
		return;
	WRITE_ONCE(rotation->rival, there);
	ds_sched_again();
}
