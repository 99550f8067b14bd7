// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/math64.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/time_namespace.h>

#include "process.h"

#define PROCESS_BITS 8

static struct hlist_head table[1 << PROCESS_BITS];
/* Interrupts off: taken inside the lock of the kernel's cgroup events, which its soft interrupts take too. */
static DEFINE_SPINLOCK(table_lock);
static unsigned int known;

/* In the initial pid namespace, held. NULL: nobody has this number. */
static struct pid *find_get_pid_init(pid_t nr)
{
	struct pid *pid;

	rcu_read_lock();
	pid = get_pid(find_pid_ns(nr, &init_pid_ns));
	rcu_read_unlock();
	return pid;
}

static struct hlist_head *bucket_of(const struct pid *pid)
{
	return &table[hash_ptr(pid, PROCESS_BITS)];
}

static struct ds_process *find_locked(struct pid *pid)
{
	struct ds_process *process;

	hlist_for_each_entry(process, bucket_of(pid), link)
		if (process->pid == pid && refcount_inc_not_zero(&process->refs))
			return process;
	return NULL;
}

struct ds_process *ds_process_find(struct pid *pid)
{
	struct ds_process *process;
	unsigned long flags;

	spin_lock_irqsave(&table_lock, flags);
	process = find_locked(pid);
	spin_unlock_irqrestore(&table_lock, flags);
	return process;
}

/* pid: of the thread group that the task belongs to; the caller holds both. */
static struct ds_process *find_or_make(struct task_struct *task, struct pid *pid)
{
	struct ds_process *process, *made;
	struct task_struct *leader;
	unsigned long flags;

	process = ds_process_find(pid);
	if (process)
		return process;
	made = kzalloc(sizeof(*made), GFP_KERNEL);
	if (!made)
		return NULL;
	made->pid = get_pid(pid);
	refcount_set(&made->refs, 1);
	made->order.level = -1;
	mutex_init(&made->moving);
	rcu_read_lock();
	/* another thread may become the leader at this moment, by exec */
	leader = READ_ONCE(task->group_leader);
	made->start = div_u64(leader->start_boottime, NSEC_PER_SEC / USER_HZ);
	get_task_comm(made->comm, leader);
	rcu_read_unlock();

	spin_lock_irqsave(&table_lock, flags);
	process = find_locked(pid);
	if (!process) {
		hlist_add_head(&made->link, bucket_of(pid));
		known++;
	}
	spin_unlock_irqrestore(&table_lock, flags);
	if (!process)
		return made;
	put_pid(pid);
	kfree(made);
	return process;
}

struct ds_process *ds_process_current(void)
{
	return find_or_make(current, task_tgid(current));
}

struct ds_process *ds_process_get(pid_t nr)
{
	struct ds_process *process = ERR_PTR(-ESRCH);
	struct task_struct *task = NULL;
	struct pid *pid = NULL;

	if (nr > 0)
		pid = find_get_pid_init(nr);
	if (pid)
		task = get_pid_task(pid, PIDTYPE_TGID);
	/* a zombie uses nothing any more; its leader may be one while other threads run */
	if (task && atomic_read(&task->signal->live) > 0)
		process = find_or_make(task, pid) ?: ERR_PTR(-ENOMEM);
	if (task)
		put_task_struct(task);
	put_pid(pid);
	return process;
}

struct ds_process *ds_process_get_ended(pid_t nr, u64 start)
{
	struct ds_process *process, *found = NULL;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&table_lock, flags);
	for (i = 0; i < ARRAY_SIZE(table); i++)
		hlist_for_each_entry(process, &table[i], link)
			if (ds_process_nr(process) == nr && (!start || process->start == start) &&
			    (!found || process->start >= found->start) && !ds_process_alive(process))
				found = process;
	if (found && !refcount_inc_not_zero(&found->refs))
		found = NULL;
	spin_unlock_irqrestore(&table_lock, flags);
	return found ?: ERR_PTR(-ESRCH);
}

struct ds_process *ds_process_hold(struct ds_process *process)
{
	refcount_inc(&process->refs);
	return process;
}

void ds_process_put(struct ds_process *process)
{
	unsigned long flags;

	if (!process || !refcount_dec_and_test(&process->refs))
		return;
	spin_lock_irqsave(&table_lock, flags);
	hlist_del(&process->link);
	known--;
	spin_unlock_irqrestore(&table_lock, flags);
	if (process->cgroup)
		cgroup_put(process->cgroup);
	if (process->ended_in)
		cgroup_put(process->ended_in);
	put_pid(process->pid);
	kfree(process);
}

bool ds_process_alive(const struct ds_process *process)
{
	struct task_struct *task;
	bool alive;

	rcu_read_lock();
	task = pid_task(process->pid, PIDTYPE_TGID);
	alive = task && atomic_read(&task->signal->live) > 0;
	rcu_read_unlock();
	return alive;
}

bool ds_process_gone(const struct ds_process *process)
{
	return !READ_ONCE(process->payers) && !ds_process_alive(process);
}

void ds_process_ends(struct task_struct *task)
{
	struct ds_process *process;
	struct cgroup *cgroup;

	if (!ds_process_count() || atomic_read(&task->signal->live))
		return;
	process = ds_process_find(task_tgid(task));
	if (!process)
		return;
	/* one that ends is moved no more, and keeps its cgroup */
	rcu_read_lock();
	cgroup = task_dfl_cgroup(task);
	cgroup_get(cgroup);
	rcu_read_unlock();
	/* of the last threads two may come here */
	if (cmpxchg(&process->ended_in, NULL, cgroup))
		cgroup_put(cgroup);
	ds_process_put(process);
}

void ds_process_moves(struct task_struct *task)
{
	const struct pid *pid = task_tgid(task);
	struct ds_process *process;
	unsigned long flags;

	spin_lock_irqsave(&table_lock, flags);
	hlist_for_each_entry(process, bucket_of(pid), link)
		if (process->pid == pid)
			WRITE_ONCE(process->followed, 0);
	spin_unlock_irqrestore(&table_lock, flags);
}

pid_t ds_process_nr(const struct ds_process *process)
{
	return process->pid->numbers[0].nr;
}

void ds_process_comm(struct ds_process *process, char comm[TASK_COMM_LEN])
{
	struct task_struct *task;

	rcu_read_lock();
	task = pid_task(process->pid, PIDTYPE_TGID);
	if (task)
		get_task_comm(process->comm, task);
	rcu_read_unlock();
	strscpy(comm, process->comm, TASK_COMM_LEN);
}

/*
 * Where the process is: where its leader is, as the kernel's memory controller sees it. A leader that has ended is moved no more, so
 * another thread stands for it; if none is left, it is where it ended. NULL: that was before it was known. Under RCU.
 */
static struct cgroup *present_cgroup(const struct ds_process *process)
{
	struct task_struct *leader = pid_task(process->pid, PIDTYPE_TGID), *thread;

	if (!leader)
		return READ_ONCE(process->ended_in);
	if (likely(!(READ_ONCE(leader->flags) & PF_EXITING)))
		return task_dfl_cgroup(leader);
	for_each_thread(leader, thread)
		if (!(READ_ONCE(thread->flags) & PF_EXITING))
			return task_dfl_cgroup(thread);
	/* the last one may not have come to ds_process_ends() yet */
	return READ_ONCE(process->ended_in) ?: task_dfl_cgroup(leader);
}

bool ds_process_moved(const struct ds_process *process)
{
	struct cgroup *cgroup;

	rcu_read_lock();
	cgroup = present_cgroup(process);
	rcu_read_unlock();
	/* compared only: what process->cgroup holds cannot have become another */
	return cgroup && cgroup != READ_ONCE(process->cgroup);
}

struct cgroup *ds_process_cgroup(const struct ds_process *process)
{
	struct cgroup *cgroup;

	rcu_read_lock();
	/* one that is going has lost the process to another meanwhile */
	do {
		cgroup = present_cgroup(process);
	} while (cgroup && !cgroup_tryget(cgroup));
	rcu_read_unlock();
	return cgroup;
}

bool ds_process_within(const struct ds_process *process, struct cgroup *cgroup)
{
	struct cgroup *present;
	bool within;

	rcu_read_lock();
	present = present_cgroup(process);
	within = present && cgroup_is_descendant(present, cgroup);
	rcu_read_unlock();
	return within;
}

u64 ds_process_cgroup_id(const struct ds_process *process)
{
	struct cgroup *present;
	u64 id;

	rcu_read_lock();
	present = present_cgroup(process);
	id = present ? cgroup_id(present) : 0;
	rcu_read_unlock();
	return id;
}

void ds_processes_desert(const struct ds_tenant *tenant)
{
	struct ds_process *process;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&table_lock, flags);
	for (i = 0; i < ARRAY_SIZE(table); i++)
		hlist_for_each_entry(process, &table[i], link)
			if (process->tenant == tenant)
				WRITE_ONCE(process->tenant, NULL);
	spin_unlock_irqrestore(&table_lock, flags);
}

unsigned int ds_process_count(void)
{
	return READ_ONCE(known);
}
