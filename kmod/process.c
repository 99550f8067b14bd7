// SPDX-License-Identifier: GPL-2.0-only
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
static DEFINE_SPINLOCK(table_lock);
static unsigned int known;

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

	spin_lock(&table_lock);
	process = find_locked(pid);
	spin_unlock(&table_lock);
	return process;
}

/* task: any of the thread group, held by the caller. */
static struct ds_process *find_or_make(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct pid *pid = get_task_pid(task, PIDTYPE_TGID);
	struct ds_process *process, *made;

	process = ds_process_find(pid);
	if (process)
		goto put_pid;
	made = kzalloc(sizeof(*made), GFP_KERNEL);
	if (!made)
		goto put_pid;
	made->pid = pid;
	refcount_set(&made->refs, 1);
	made->start = div_u64(leader->start_boottime, NSEC_PER_SEC / USER_HZ);
	made->order.level = -1;
	get_task_comm(made->comm, leader);

	spin_lock(&table_lock);
	process = find_locked(pid);
	if (!process) {
		hlist_add_head(&made->link, bucket_of(pid));
		known++;
	}
	spin_unlock(&table_lock);
	if (!process)
		return made;
	kfree(made);
put_pid:
	put_pid(pid);
	return process;
}

struct ds_process *ds_process_current(void)
{
	return find_or_make(current);
}

struct ds_process *ds_process_get(pid_t nr)
{
	struct ds_process *process = NULL;
	struct task_struct *task;
	struct pid *pid = NULL;

	rcu_read_lock();
	if (nr > 0)
		pid = find_pid_ns(nr, &init_pid_ns);
	task = pid ? pid_task(pid, PIDTYPE_TGID) : NULL;
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return ERR_PTR(-ESRCH);
	/* a zombie uses nothing any more; its leader may be one while other threads run */
	if (atomic_read(&task->signal->live) > 0)
		process = find_or_make(task);
	else
		process = ERR_PTR(-ESRCH);
	put_task_struct(task);
	return process ?: ERR_PTR(-ENOMEM);
}

struct ds_process *ds_process_hold(struct ds_process *process)
{
	refcount_inc(&process->refs);
	return process;
}

void ds_process_put(struct ds_process *process)
{
	if (!process || !refcount_dec_and_test(&process->refs))
		return;
	spin_lock(&table_lock);
	hlist_del(&process->link);
	known--;
	spin_unlock(&table_lock);
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

void ds_processes_desert(const struct ds_tenant *tenant)
{
	struct ds_process *process;
	unsigned int i;

	spin_lock(&table_lock);
	for (i = 0; i < ARRAY_SIZE(table); i++)
		hlist_for_each_entry(process, &table[i], link)
			if (process->tenant == tenant)
				process->tenant = NULL;
	spin_unlock(&table_lock);
}

unsigned int ds_process_count(void)
{
	return READ_ONCE(known);
}
