// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "change.h"
#include "events.h"
#include "lease.h"
#include "rows.h"

/* What was asked for once. */
struct terms {
	u64 number;			/* no two have the same */
	bool gate, pause;
	u64 until;			/* ktime, ns */
};

struct hold {
	struct ds_subject subject;	/* held; the first */
	struct list_head link;
	struct terms now;
	struct terms kept;	/* stand again if those of now are refused; number 0: none */
};

static LIST_HEAD(holds);
/* Taken where spinlocks are held; inside it, that of tenants' members. */
static DEFINE_SPINLOCK(holds_lock);
static unsigned int hold_count;
static u64 last_number;
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
	ds_row_del(&hold->link);
	WRITE_ONCE(hold_count, hold_count - 1);
}

static void free_hold(struct hold *hold)
{
	if (!hold)
		return;
	ds_subject_put(&hold->subject);
	kfree(hold);
}

/* It is not known yet whether its terms are refused. */
static bool undecided(const struct hold *hold)
{
	return hold->kept.number != hold->now.number;
}

/* A gate that stood stays until that is known: else what it holds would run before a pause in its place is there. */
static bool is_gate(const struct hold *hold)
{
	return hold->now.gate || (undecided(hold) && hold->kept.gate);
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
			found |= (is_gate(hold) ? DS_HOLDS_GATE : 0) | (hold->now.pause ? DS_HOLDS_PAUSE : 0);
	spin_unlock_irqrestore(&holds_lock, flags);
	return found;
}

unsigned int ds_hold_count(void)
{
	return READ_ONCE(hold_count);
}

/* ---- leases ------------------------------------------------------------------------ */

/* While it is not known whether its terms are refused those that may stand again have not ended with them. */
static u64 end_of(const struct hold *hold)
{
	return undecided(hold) ? max(hold->now.until, hold->kept.until) : hold->now.until;
}

/* Under holds_lock. */
static void await_end(void)
{
	u64 now = ktime_get_ns(), next = U64_MAX;
	struct hold *hold;

	list_for_each_entry(hold, &holds, link)
		next = min(next, end_of(hold));
	if (next != U64_MAX && !stopping)
		mod_delayed_work(system_highpri_wq, &expiry, nsecs_to_jiffies(next - min(next, now)) + 1);
}

/* One that has ended, or whose subject is gone; out of the list. */
static struct hold *take_ended(u64 now)
{
	struct hold *hold, *ended = NULL;

	spin_lock_irq(&holds_lock);
	list_for_each_entry(hold, &holds, link) {
		if (end_of(hold) > now && !ds_subject_gone(&hold->subject))
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
		if (end_of(hold) <= now)
			tell_ended(hold, now);
		free_hold(hold);
		any = true;
	}
	if (any)
		ds_rules_changed_soon();
}

/* Takes *made over; *terms: with their number. */
static int insert(struct hold *made, struct terms *terms)
{
	struct hold *hold;
	int err = 0;

	spin_lock_irq(&holds_lock);
	hold = find(&made->subject);
	if (stopping) {
		err = -ENODEV;
	} else {
		if (!hold) {
			hold = made;
			made = NULL;
			list_add_tail(&hold->link, &holds);
			WRITE_ONCE(hold_count, hold_count + 1);
		}
		terms->number = ++last_number;
		hold->now = *terms;
		/* others are not refused */
		if (!terms->pause || terms->gate)
			hold->kept = *terms;
	}
	await_end();
	spin_unlock_irq(&holds_lock);
	free_hold(made);
	return err;
}

bool ds_lease_del(const struct ds_subject *subject)
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

int ds_lease_set(const struct ds_subject *subject, bool gate, bool pause, u32 lease_ms, struct ds_subject *held, u64 *number)
{
	struct hold *made = ds_subject_make(subject, sizeof(*made));
	struct terms terms = {
		.gate = gate,
		.pause = pause,
		.until = ktime_get_ns() + (u64)lease_ms * NSEC_PER_MSEC,
	};
	int err;

	if (IS_ERR(made))
		return PTR_ERR(made);
	*held = made->subject;
	ds_subject_copy(held);
	err = insert(made, &terms);
	if (err)
		ds_subject_put(held);
	*number = terms.number;
	return err;
}

bool ds_lease_keep(const struct ds_subject *subject, u64 number)
{
	struct hold *hold;
	bool opens = false;

	spin_lock_irq(&holds_lock);
	hold = find(subject);
	if (hold && hold->now.number == number) {
		opens = is_gate(hold) && !hold->now.gate;
		hold->kept = hold->now;
		await_end();
	}
	spin_unlock_irq(&holds_lock);
	return opens;
}

void ds_lease_refuse(const struct ds_subject *subject, u64 number)
{
	struct hold *hold, *ended = NULL;

	spin_lock_irq(&holds_lock);
	hold = find(subject);
	if (hold && hold->now.number == number) {
		hold->now = hold->kept;
		if (!hold->kept.number) {
			ended = hold;
			remove(hold);
		}
		await_end();
	}
	spin_unlock_irq(&holds_lock);
	free_hold(ended);
}

bool ds_lease_at(unsigned int index, struct ds_lease *lease)
{
	u64 now = ktime_get_ns();
	struct hold *hold;
	bool found = false;

	/* those whose subject is gone go */
	if (!index)
		expire(NULL);
	spin_lock_irq(&holds_lock);
	list_for_each_entry(hold, &holds, link) {
		if (index--)
			continue;
		*lease = (struct ds_lease){
			.subject = hold->subject,
			.gate = hold->now.gate,
			.pause = hold->now.pause,
			.left_ms = div_u64(hold->now.until - min(hold->now.until, now), NSEC_PER_MSEC),
		};
		ds_subject_copy(&lease->subject);
		found = true;
		break;
	}
	spin_unlock_irq(&holds_lock);
	return found;
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
