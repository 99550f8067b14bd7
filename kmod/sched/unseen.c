// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/random.h>

#include "activity.h"
#include "busy.h"
#include "run.h"
#include "spend.h"
#include "unseen.h"

/* From one question about a run to the next, and how much of it is left to chance. */
#define GAP_NS (50 * NSEC_PER_MSEC)
#define CHANCE_NS (100 * NSEC_PER_MSEC)
/* All questions of a lane together come no closer: each takes the driver's lock for a millisecond. */
#define LANE_GAP_NS (20 * NSEC_PER_MSEC)

static void wait_for_next(struct ds_run *run, u64 now)
{
	run->unseen.asking_ns = 0;
	run->unseen.next_ns = now + GAP_NS + get_random_u32() % CHANCE_NS;
}

/* The driver's answer to the question that was asked last. false: it is not there yet. */
static bool is_answered(struct ds_run *run, enum ds_busy *said, u64 *asked)
{
	bool answered;

	spin_lock_irq(&run->lane->lock);
	answered = run->busy.begun_ns >= run->unseen.asking_ns;
	*said = run->busy.said;
	*asked = run->busy.asked_ns;
	spin_unlock_irq(&run->lane->lock);
	return answered;
}

static void take_answer(struct ds_look *look, struct ds_run *run)
{
	enum ds_busy said;
	u64 asked;

	if (!is_answered(run, &said, &asked)) {
		ds_busy_ask(run);
		return;
	}
	wait_for_next(run, look->now);
	if (said != DS_BUSY_YES && said != DS_BUSY_NO)
		return;
	if (said == DS_BUSY_YES) {
		ds_bucket_pay(run, asked - min(asked, run->unseen.vouched_ns));
		ds_activity_seen(run, look->now);
	}
	run->unseen.vouched_ns = asked;
}

static void ask(struct ds_look *look, struct ds_run *run)
{
	u64 soonest = run->lane->unseen_ns + LANE_GAP_NS;

	if (look->now < soonest) {
		run->unseen.next_ns = soonest + get_random_u32() % LANE_GAP_NS;
		return;
	}
	run->lane->unseen_ns = look->now;
	run->unseen.asking_ns = look->now;
	ds_busy_ask(run);
}

void ds_unseen_sample(struct ds_look *look, struct ds_run *run)
{
	struct ds_run_unseen *unseen = &run->unseen;

	if (!look->metered || !run->counted || !ds_busy_can(run->gpu)) {
		unseen->vouched_ns = 0;
		return;
	}
	if (unseen->vouched_ns <= READ_ONCE(run->last_ns)) {
		/* it has just become idle */
		unseen->vouched_ns = look->now;
		wait_for_next(run, look->now);
	} else if (unseen->asking_ns) {
		take_answer(look, run);
	} else if (look->now >= unseen->next_ns) {
		ask(look, run);
	}
	if (!unseen->asking_ns)
		ds_look_again(look, unseen->next_ns);
}
