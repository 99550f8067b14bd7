// SPDX-License-Identifier: GPL-2.0-only
#include <linux/percpu.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <uapi/linux/sched/types.h>

#include "boost.h"

/* Between two looks. Who did not run from one to the next starves, by cpu.max or, among dozens of tasks, by its processor's round. */
#define LOOK_MS 40
/* Processor time after which it is put back. */
#define MOST_NS (10 * NSEC_PER_MSEC)

/* Calls that began on one processor. A leaf. */
struct ds_boost_shelf {
	spinlock_t lock;
	struct list_head calls;
};

static DEFINE_PER_CPU(struct ds_boost_shelf, shelves);
static unsigned int pass;	/* the work item's own */

static void look(struct work_struct *item);
static DECLARE_DELAYED_WORK(looks, look);

static void look_later(void)
{
	queue_delayed_work(system_highpri_wq, &looks, msecs_to_jiffies(LOOK_MS));
}

void ds_boost_enter(struct ds_boost *boost)
{
	struct ds_boost_shelf *shelf = raw_cpu_ptr(&shelves);

	*boost = (struct ds_boost){ .shelf = shelf, .task = current };
	spin_lock(&shelf->lock);
	list_add(&boost->link, &shelf->calls);
	spin_unlock(&shelf->lock);
	/* a look that finds nobody is the last one, and is not pending when it looks */
	smp_mb();
	if (!delayed_work_pending(&looks))
		look_later();
}

/* Whoever set its policy meanwhile has the last word. */
static void restore(struct task_struct *task, const struct ds_boost *boost)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = boost->policy,
		.sched_nice = task_nice(task),
		.sched_flags = boost->reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
	};

	if (task->policy == SCHED_FIFO && task->rt_priority == 1)
		sched_setattr_nocheck(task, &attr);
}

void ds_boost_leave(struct ds_boost *boost)
{
	bool touched;

	spin_lock(&boost->shelf->lock);
	list_del(&boost->link);
	touched = boost->boosted || boost->moving;
	spin_unlock(&boost->shelf->lock);
	if (!touched)
		return;
	wait_var_event(&boost->moving, !smp_load_acquire(&boost->moving));
	if (boost->boosted)
		restore(current, boost);
}

/* Could it run at the last look and at this one, and did not run in between? Under the shelf's lock. */
static bool starves(struct ds_boost *boost)
{
	const struct task_struct *task = boost->task;
	u64 ran = READ_ONCE(task->se.sum_exec_runtime);
	bool could = task_is_running(task) && !READ_ONCE(task->on_cpu);
	bool starves = could && boost->could && boost->ran == ran;

	boost->could = could;
	boost->ran = ran;
	boost->pass = pass;
	/* others are not stopped by cpu.max */
	return starves && (task->policy == SCHED_NORMAL || task->policy == SCHED_BATCH || task->policy == SCHED_IDLE);
}

/* Is it to be boosted, or to be put back? The same. */
static bool is_to_move(struct ds_boost *boost)
{
	bool starving = starves(boost);

	return boost->boosted ? boost->ran - boost->since >= MOST_NS : starving;
}

/* The next one that is to move; NULL: all were looked at. It does not leave while it is moving. */
static struct ds_boost *choose(struct ds_boost_shelf *shelf, bool *any)
{
	struct ds_boost *boost, *found = NULL;

	spin_lock(&shelf->lock);
	*any |= !list_empty(&shelf->calls);
	list_for_each_entry(boost, &shelf->calls, link) {
		if (boost->pass == pass || !is_to_move(boost))
			continue;
		boost->moving = true;
		found = boost;
		break;
	}
	spin_unlock(&shelf->lock);
	return found;
}

static void move(struct ds_boost *boost)
{
	struct task_struct *task = boost->task;

	if (boost->boosted) {
		restore(task, boost);
		boost->could = false;
	} else {
		boost->policy = task->policy;
		boost->reset_on_fork = task->sched_reset_on_fork;
		boost->since = boost->ran;
		sched_set_fifo_low(task);
	}
	boost->boosted = !boost->boosted;
	/* from here on it may leave, and *boost be gone: an address to wake by, nothing more */
	smp_store_release(&boost->moving, false);
	/* whoever goes to sleep looks once more after it has said so */
	smp_mb();
	wake_up_var(&boost->moving);
}

static void look(struct work_struct *item)
{
	struct ds_boost *boost;
	bool any = false;
	int cpu;

	pass = pass + 1 ?: 1;
	for_each_possible_cpu(cpu) {
		while ((boost = choose(per_cpu_ptr(&shelves, cpu), &any)))
			move(boost);
	}
	if (any)
		look_later();
}

int ds_boost_init(void)
{
	struct ds_boost_shelf *shelf;
	int cpu;

	for_each_possible_cpu(cpu) {
		shelf = per_cpu_ptr(&shelves, cpu);
		spin_lock_init(&shelf->lock);
		INIT_LIST_HEAD(&shelf->calls);
	}
	return 0;
}

void ds_boost_exit(void)
{
	cancel_delayed_work_sync(&looks);
}
