// SPDX-License-Identifier: GPL-2.0-only
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "idle.h"
#include "process.h"

/* Those that have their turn. */
static LIST_HEAD(turns);
static DEFINE_SPINLOCK(turns_lock);
static DECLARE_WAIT_QUEUE_HEAD(turns_wait);

static bool take(struct ds_idle *idle)
{
	struct ds_idle *other;
	bool mine = true;

	spin_lock(&turns_lock);
	list_for_each_entry(other, &turns, link)
		mine &= other->who != idle->who;
	if (mine)
		list_add(&idle->link, &turns);
	spin_unlock(&turns_lock);
	return mine;
}

bool ds_idle_begin(struct ds_idle *idle, const struct ds_process *process)
{
	/* a name to compare, nothing more: who moves meanwhile has two turns at once, of which one ends */
	idle->who = READ_ONCE(process->tenant);
	if (!idle->who)
		idle->who = READ_ONCE(process->cgroup);
	if (!idle->who)
		idle->who = process;
	return !wait_event_killable(turns_wait, take(idle));
}

void ds_idle_end(struct ds_idle *idle)
{
	spin_lock(&turns_lock);
	list_del(&idle->link);
	spin_unlock(&turns_lock);
	wake_up_all(&turns_wait);
}
