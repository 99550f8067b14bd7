// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/tracepoint.h>

#include "limit.h"
#include "rows.h"
#include "tenant.h"

#define MEMBER_BITS 8

struct member {
	struct hlist_node link;
	struct pid *pid;
	struct ds_tenant *tenant;
};

static LIST_HEAD(tenants);
static struct hlist_head members[1 << MEMBER_BITS];
/* Taken in tracepoints, with interrupts on or off. */
static DEFINE_SPINLOCK(members_lock);
static unsigned int member_count;

/* Not exported by the kernel, but found by name. */
static struct tracepoint *at_fork, *at_exit;
static bool watching;

static struct hlist_head *bucket_of(const struct pid *pid)
{
	return &members[hash_ptr(pid, MEMBER_BITS)];
}

static struct member *find_member(const struct pid *pid)
{
	struct member *member;

	hlist_for_each_entry(member, bucket_of(pid), link)
		if (member->pid == pid)
			return member;
	return NULL;
}

static void add_member(struct member *member, struct pid *pid, struct ds_tenant *tenant)
{
	member->pid = get_pid(pid);
	member->tenant = tenant;
	hlist_add_head(&member->link, bucket_of(pid));
	WRITE_ONCE(member_count, member_count + 1);
}

static void free_member(struct member *member)
{
	hlist_del(&member->link);
	WRITE_ONCE(member_count, member_count - 1);
	put_pid(member->pid);
	kfree(member);
}

/* A thread is no member of its own: threads share the struct pid of their group. */
static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	struct member *of_parent, *made;
	unsigned long flags;

	if (!READ_ONCE(member_count) || !thread_group_leader(child))
		return;
	made = kmalloc(sizeof(*made), GFP_ATOMIC | __GFP_NOWARN);
	spin_lock_irqsave(&members_lock, flags);
	of_parent = find_member(task_tgid(parent));
	if (of_parent && made) {
		add_member(made, task_tgid(child), of_parent->tenant);
		made = NULL;
		of_parent = NULL;
	} else if (of_parent) {
		pr_warn_ratelimited("no memory to take process %d into tenant \"%s\" of its parent: it is killed\n",
				    task_tgid_nr(child), of_parent->tenant->name);
	}
	spin_unlock_irqrestore(&members_lock, flags);
	kfree(made);
	/* a tenant is left by nobody; it has not run yet */
	if (of_parent)
		send_sig(SIGKILL, child, 1);
}

static void on_exit(void *data, struct task_struct *task)
{
	struct member *member;
	unsigned long flags;

	ds_process_ends(task);
	if (!READ_ONCE(member_count) || atomic_read(&task->signal->live))
		return;
	spin_lock_irqsave(&members_lock, flags);
	member = find_member(task_tgid(task));
	if (member)
		free_member(member);
	spin_unlock_irqrestore(&members_lock, flags);
}

static void find_tracepoint(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "sched_process_fork"))
		at_fork = tracepoint;
	else if (!strcmp(tracepoint->name, "sched_process_exit"))
		at_exit = tracepoint;
}

int ds_tenants_watch(void)
{
	static DEFINE_MUTEX(lock);
	int err = 0;

	mutex_lock(&lock);
	if (!watching) {
		err = tracepoint_probe_register(at_fork, on_fork, NULL);
		watching = !err;
	}
	mutex_unlock(&lock);
	return err;
}

void ds_tenant_hold(struct ds_tenant *tenant)
{
	refcount_inc(&tenant->refs);
}

void ds_tenant_put(struct ds_tenant *tenant)
{
	if (refcount_dec_and_test(&tenant->refs))
		kfree(tenant);
}

struct ds_tenant *ds_tenant_find(const char *name)
{
	struct ds_tenant *tenant;

	list_for_each_entry(tenant, &tenants, link)
		if (!strcmp(tenant->name, name))
			return tenant;
	return NULL;
}

struct ds_tenant *ds_tenant_at(unsigned int index)
{
	struct ds_tenant *tenant;

	list_for_each_entry(tenant, &tenants, link)
		if (!index--)
			return tenant;
	return NULL;
}

struct ds_tenant *ds_tenant_make(const char *name)
{
	struct ds_tenant *tenant = ds_tenant_find(name);

	if (tenant)
		return tenant;
	tenant = kzalloc(sizeof(*tenant), GFP_KERNEL);
	if (!tenant)
		return ERR_PTR(-ENOMEM);
	strscpy(tenant->name, name, sizeof(tenant->name));
	refcount_set(&tenant->refs, 1);
	list_add_tail(&tenant->link, &tenants);
	return tenant;
}

void ds_tenant_remove(struct ds_tenant *tenant)
{
	struct member *member;
	struct hlist_node *next;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&members_lock, flags);
	for (i = 0; i < ARRAY_SIZE(members); i++)
		hlist_for_each_entry_safe(member, next, &members[i], link)
			if (member->tenant == tenant)
				free_member(member);
	spin_unlock_irqrestore(&members_lock, flags);
	ds_payers_desert(tenant);
	ds_row_del(&tenant->link);
	WRITE_ONCE(tenant->gone, true);
	ds_tenant_put(tenant);
}

int ds_tenant_take(struct ds_tenant *tenant, struct ds_process *process)
{
	struct member *made = kmalloc(sizeof(*made), GFP_KERNEL), *member;
	unsigned long flags;
	int err;

	if (!made)
		return -ENOMEM;
	err = ds_payers_move(process, tenant);
	if (err)
		goto free;
	spin_lock_irqsave(&members_lock, flags);
	member = find_member(process->pid);
	if (member && tenant) {
		member->tenant = tenant;
	} else if (member) {
		free_member(member);
	} else if (tenant) {
		add_member(made, process->pid, tenant);
		made = NULL;
	}
	/* whoever ended before this has been forgotten by nobody */
	member = find_member(process->pid);
	if (member && !ds_process_alive(process))
		free_member(member);
	spin_unlock_irqrestore(&members_lock, flags);
free:
	kfree(made);
	return err;
}

struct ds_tenant *ds_tenant_of(const struct ds_process *process)
{
	struct ds_tenant *tenant = NULL;
	struct member *member;
	unsigned long flags;

	if (READ_ONCE(member_count)) {
		spin_lock_irqsave(&members_lock, flags);
		member = find_member(process->pid);
		if (member)
			tenant = member->tenant;
		spin_unlock_irqrestore(&members_lock, flags);
	}
	/* who has clients has this from the first one on; it stays when the member has ended */
	return tenant ?: READ_ONCE(process->tenant);
}

int ds_tenant_each(const struct ds_tenant *tenant, int (*tell)(pid_t pid, void *data), void *data)
{
	struct member *member;
	unsigned long flags;
	unsigned int i;
	int err = 0;

	/* forks and ends of everybody wait for the lock: not for all members in one piece */
	for (i = 0; !err && i < ARRAY_SIZE(members); i++) {
		spin_lock_irqsave(&members_lock, flags);
		hlist_for_each_entry(member, &members[i], link)
			if (member->tenant == tenant && !err)
				err = tell(pid_nr(member->pid), data);
		spin_unlock_irqrestore(&members_lock, flags);
	}
	return err;
}

int ds_tenant_init(void)
{
	for_each_kernel_tracepoint(find_tracepoint, NULL);
	/* deaths are watched always: whoever is meant later, by his cgroup, may have ended before */
	return at_fork && at_exit ? tracepoint_probe_register(at_exit, on_exit, NULL) : -ENOENT;
}

void ds_tenant_exit(void)
{
	struct ds_tenant *tenant, *next;

	if (watching)
		tracepoint_probe_unregister(at_fork, on_fork, NULL);
	tracepoint_probe_unregister(at_exit, on_exit, NULL);
	tracepoint_synchronize_unregister();
	mutex_lock(&ds_limits_lock);
	list_for_each_entry_safe(tenant, next, &tenants, link)
		ds_tenant_remove(tenant);
	mutex_unlock(&ds_limits_lock);
}
