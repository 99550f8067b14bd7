// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "events.h"
#include "lease.h"
#include "pause.h"
#include "run.h"

struct hold {
	struct ds_subject subject;	/* held; the first */
	struct list_head link;
	bool gate, pause;
	u64 until;			/* ktime, ns */
};

static LIST_HEAD(holds);
/* Taken where spinlocks are held; inside it, that of tenants' members. */
static DEFINE_SPINLOCK(holds_lock);
static unsigned int hold_count;
static bool stopping;

static void expire(struct work_struct *work);
static DECLARE_DELAYED_WORK(expiry, expire);

static struct hold *find(const struct ds_subject *subject)
{
	struct hold *hold;

	list_for_each_entry(hold, &holds, link)
		if (ds_subject_same(&hold->subject, subject))
			return hold;
	return NULL;
}

static void remove(struct hold *hold)
{
	list_del(&hold->link);
	WRITE_ONCE(hold_count, hold_count - 1);
}

static void free_hold(struct hold *hold)
{
	if (!hold)
		return;
	ds_subject_put(&hold->subject);
	kfree(hold);
}

u32 ds_holds_of(struct ds_process *process)
{
	struct hold *hold;
	unsigned long flags;
	u32 found = 0;

	if (!READ_ONCE(hold_count))
		return 0;
	spin_lock_irqsave(&holds_lock, flags);
	list_for_each_entry(hold, &holds, link)
		if (ds_subject_meant(&hold->subject, process))
			found |= (hold->gate ? DS_HOLDS_GATE : 0) | (hold->pause ? DS_HOLDS_PAUSE : 0);
	spin_unlock_irqrestore(&holds_lock, flags);
	return found;
}

unsigned int ds_hold_count(void)
{
	return READ_ONCE(hold_count);
}

/* ---- what came of it ------------------------------------------------------------ */

/* The runs that are meant, held. */
struct meant {
	const struct ds_subject *subject;	/* held */
	unsigned int count, room;
	struct ds_run **runs;
};

static int add(struct ds_run *run, void *data)
{
	struct meant *meant = data;

	if (!ds_subject_meant(meant->subject, run->process))
		return 0;
	if (meant->count < meant->room)
		meant->runs[meant->count] = ds_run_hold(run);
	meant->count++;
	return 0;
}

static void put_meant(struct meant *meant)
{
	unsigned int i;

	for (i = 0; i < min(meant->count, meant->room); i++)
		ds_run_put(meant->runs[i]);
	kvfree(meant->runs);
}

/* -ENOMEM. */
static int find_meant(struct meant *meant, const struct ds_subject *subject)
{
	unsigned int room = ds_run_count() + 8;

	for (;;) {
		*meant = (struct meant){ .subject = subject, .room = room };
		meant->runs = kvcalloc(room, sizeof(*meant->runs), GFP_KERNEL);
		if (!meant->runs)
			return -ENOMEM;
		ds_runs_each(add, meant);
		if (meant->count <= meant->room)
			return 0;
		room = meant->count + 8;
		put_meant(meant);
	}
}

static int add_result(struct ds_run *run, bool pause, struct ds_hold_result *result)
{
	int err;

	spin_lock_irq(&run->lane->lock);
	err = run->gone ? 0 : run->pause.err;
	result->runs++;
	result->gated += !!ds_gate_reasons(run->gate);
	result->paused += run->pause.off;
	if (pause && !run->pause.off && err) {
		result->failed++;
		result->why = ds_pause_why(err);
		if (err == -EIO)
			result->status = run->pause.status;
	}
	spin_unlock_irq(&run->lane->lock);
	return err;
}

/* *cannot: a pause was asked for, and everybody's was refused for good. */
static int wait_for_all(const struct ds_subject *subject, bool pause, u64 begin, struct ds_hold_result *result, bool *cannot)
{
	unsigned int refused = 0, i;
	struct meant meant;
	int err;

	err = find_meant(&meant, subject);
	if (err)
		return err;
	for (i = 0; !err && i < meant.count; i++)
		err = ds_pause_wait(meant.runs[i]);
	result->pause_ns = ktime_get_ns() - begin;
	for (i = 0; i < meant.count; i++)
		refused += add_result(meant.runs[i], pause, result) == -EOPNOTSUPP;
	*cannot = pause && refused && refused == meant.count;
	put_meant(&meant);
	return err;
}

static int settle(const struct ds_subject *subject, bool pause, struct ds_hold_result *result, bool *cannot)
{
	u64 begin = ktime_get_ns();

	*result = (struct ds_hold_result){ 0 };
	ds_lanes_settle();
	result->gate_ns = ktime_get_ns() - begin;
	return wait_for_all(subject, pause, begin, result, cannot);
}

/* ---- leases ------------------------------------------------------------------------ */

/* Under holds_lock. */
static void await_end(void)
{
	u64 now = ktime_get_ns(), next = U64_MAX;
	struct hold *hold;

	list_for_each_entry(hold, &holds, link)
		next = min(next, hold->until);
	if (next != U64_MAX && !stopping)
		mod_delayed_work(system_wq, &expiry, nsecs_to_jiffies(next - min(next, now)) + 1);
}

/* One that has ended, or whose subject is gone; out of the list. */
static struct hold *take_ended(u64 now)
{
	struct hold *hold, *ended = NULL;

	spin_lock_irq(&holds_lock);
	list_for_each_entry(hold, &holds, link) {
		if (hold->until > now && !ds_subject_gone(&hold->subject))
			continue;
		ended = hold;
		remove(hold);
		break;
	}
	if (!ended)
		await_end();
	spin_unlock_irq(&holds_lock);
	return ended;
}

static void tell_ended(const struct hold *hold, u64 now)
{
	struct ds_event_subject subject;

	ds_subject_event(&hold->subject, &subject);
	ds_event_lease_ended(&subject, now);
}

static void expire(struct work_struct *work)
{
	u64 now = ktime_get_ns();
	struct hold *hold;
	bool any = false;

	while ((hold = take_ended(now))) {
		if (hold->until <= now)
			tell_ended(hold, now);
		free_hold(hold);
		any = true;
	}
	if (any) {
		ds_lanes_stale();
		ds_sched_again();
	}
}

/* Takes *made over. */
static int insert(struct hold *made)
{
	struct hold *hold;
	int err = 0;

	spin_lock_irq(&holds_lock);
	hold = find(&made->subject);
	if (stopping) {
		err = -ENODEV;
	} else if (hold) {
		hold->gate = made->gate;
		hold->pause = made->pause;
		hold->until = made->until;
	} else {
		list_add_tail(&made->link, &holds);
		WRITE_ONCE(hold_count, hold_count + 1);
		made = NULL;
	}
	await_end();
	spin_unlock_irq(&holds_lock);
	free_hold(made);
	return err;
}

static bool take_out(const struct ds_subject *subject)
{
	struct hold *hold;

	spin_lock_irq(&holds_lock);
	hold = find(subject);
	if (hold)
		remove(hold);
	spin_unlock_irq(&holds_lock);
	free_hold(hold);
	return hold;
}

int ds_hold_set(const struct ds_subject *subject, bool gate, bool pause, u32 lease_ms, struct ds_hold_result *result)
{
	struct hold *made = ds_subject_make(subject, sizeof(*made));
	struct ds_subject held;
	bool cannot = false;
	int err;

	if (IS_ERR(made))
		return PTR_ERR(made);
	held = made->subject;
	ds_subject_copy(&held);
	made->gate = gate;
	made->pause = pause;
	made->until = ktime_get_ns() + (u64)lease_ms * NSEC_PER_MSEC;
	err = insert(made);
	ds_sched_again();
	if (!err)
		err = settle(&held, pause, result, &cannot);
	if (!err && cannot && !gate) {
		take_out(&held);
		ds_lanes_settle();
		err = -EOPNOTSUPP;
	}
	ds_subject_put(&held);
	return err;
}

int ds_hold_del(const struct ds_subject *subject, struct ds_hold_result *result)
{
	struct ds_subject held = *subject;
	struct ds_hold_result unasked;
	bool cannot;
	int err;

	/* one that is gone names nobody to wait for */
	if (!take_out(subject))
		return -ENOENT;
	ds_sched_again();
	if (ds_subject_hold(&held)) {
		ds_lanes_stale();
		return 0;
	}
	err = settle(&held, false, result ?: &unasked, &cannot);
	ds_subject_put(&held);
	return err;
}

bool ds_hold_at(unsigned int index, struct ds_hold_info *info)
{
	u64 now = ktime_get_ns();
	struct hold *hold;
	struct meant meant;
	bool found = false;
	unsigned int i;

	/* those whose subject is gone go */
	if (!index)
		expire(NULL);
	spin_lock_irq(&holds_lock);
	list_for_each_entry(hold, &holds, link) {
		if (index--)
			continue;
		*info = (struct ds_hold_info){
			.subject = hold->subject,
			.gate = hold->gate,
			.pause = hold->pause,
			.left_ms = div_u64(hold->until - min(hold->until, now), NSEC_PER_MSEC),
		};
		ds_subject_copy(&info->subject);
		found = true;
		break;
	}
	spin_unlock_irq(&holds_lock);
	if (!found || find_meant(&meant, &info->subject))
		return found;
	for (i = 0; i < meant.count; i++)
		add_result(meant.runs[i], info->pause, &info->result);
	put_meant(&meant);
	return true;
}

void ds_lease_exit(void)
{
	struct hold *hold;

	spin_lock_irq(&holds_lock);
	stopping = true;
	spin_unlock_irq(&holds_lock);
	cancel_delayed_work_sync(&expiry);
	while ((hold = take_ended(U64_MAX)))
		free_hold(hold);
}
