// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "change.h"
#include "client.h"
#include "orders.h"
#include "rows.h"
#include "tenant.h"

struct standing {
	struct ds_subject subject;	/* held; the first */
	struct list_head link;
	struct ds_order order;
};

static LIST_HEAD(table);
/* The table. Taken where spinlocks are held; inside it, that of tenants' members. */
static DEFINE_SPINLOCK(table_lock);
static bool stopping;

/* ---- who moves ---------------------------------------------------------------- */

/*
 * A process that was not brought into line for the cgroup that it is in now, held. NULL: there is none. What is written down comes before
 * what is done: a move after it asks again.
 */
static struct ds_process *find_moved(void)
{
	struct ds_process *found = NULL;
	struct ds_client *client;
	u64 now;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link) {
		now = ds_process_cgroup_id(client->process);
		if (!now || now == READ_ONCE(client->process->followed))
			continue;
		WRITE_ONCE(client->process->followed, now);
		found = ds_process_hold(client->process);
		break;
	}
	up_read(&ds_clients_lock);
	return found;
}

static void follow_moved(struct work_struct *unused)
{
	struct ds_process *process;

	while ((process = find_moved())) {
		ds_payers_follow(process);
		ds_rules_process(process);
		ds_process_put(process);
	}
}

static DECLARE_WORK(follow, follow_moved);

/*
 * Under a spinlock of the kernel's, interrupts off. Who is back where it was has to be followed too: whatever looked in between has
 * brought it into line for the other cgroup.
 */
static void on_attach(void *data, struct cgroup *to, const char *path, struct task_struct *task, bool whole)
{
	ds_process_moves(task);
	queue_work(system_highpri_wq, &follow);
}

/* Not exported by the kernel, but found by name. */
static struct tracepoint *at_attach;
static bool watching;

static void find_tracepoint(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "cgroup_attach_task"))
		at_attach = tracepoint;
}

int ds_orders_watch(const struct ds_subject *subject)
{
	static DEFINE_MUTEX(lock);
	int err = 0;

	if (subject->kind != DETSHARE_KIND_CGROUP)
		return 0;
	mutex_lock(&lock);
	if (!watching) {
		for_each_kernel_tracepoint(find_tracepoint, NULL);
		err = at_attach ? tracepoint_probe_register(at_attach, on_attach, NULL) : -ENOENT;
		watching = !err;
	}
	mutex_unlock(&lock);
	/* who moved before that */
	if (!err)
		queue_work(system_highpri_wq, &follow);
	return err;
}

void ds_orders_moved(void)
{
	struct ds_client *client;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link)
		WRITE_ONCE(client->process->followed, 0);
	up_read(&ds_clients_lock);
	queue_work(system_highpri_wq, &follow);
}

/* ---- the table ------------------------------------------------------------------ */

static u64 account_of(const struct ds_subject *subject)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return ds_process_nr(subject->process);
	case DETSHARE_KIND_CGROUP:
		return subject->cgroup;
	case DETSHARE_KIND_TENANT:
		return (unsigned long)subject->tenant;
	}
	return 0;
}

static struct standing *find(const struct ds_subject *subject)
{
	struct standing *standing;

	list_for_each_entry(standing, &table, link)
		if (ds_subject_same(&standing->subject, subject))
			return standing;
	return NULL;
}

static void free_standing(struct standing *standing)
{
	if (!standing)
		return;
	ds_subject_put(&standing->subject);
	kfree(standing);
}

int ds_orders_set(const struct ds_subject *subject, const struct ds_order *order)
{
	struct standing *made = ds_subject_make(subject, sizeof(*made)), *standing;
	unsigned long flags;
	int err = 0;

	if (IS_ERR(made))
		return PTR_ERR(made);
	made->order = *order;
	made->order.set = true;
	made->order.kind = subject->kind;
	made->order.account = account_of(subject);
	spin_lock_irqsave(&table_lock, flags);
	standing = find(subject);
	if (stopping) {
		err = -ENODEV;
	} else if (standing) {
		standing->order = made->order;
	} else {
		list_add_tail(&made->link, &table);
		made = NULL;
	}
	spin_unlock_irqrestore(&table_lock, flags);
	free_standing(made);
	return err;
}

int ds_orders_del(const struct ds_subject *subject)
{
	struct standing *standing;
	unsigned long flags;

	spin_lock_irqsave(&table_lock, flags);
	standing = find(subject);
	if (standing)
		ds_row_del(&standing->link);
	spin_unlock_irqrestore(&table_lock, flags);
	free_standing(standing);
	return standing ? 0 : -ENOENT;
}

bool ds_orders_at(unsigned int index, struct ds_subject *subject, struct ds_order *order)
{
	struct standing *standing;
	unsigned long flags;
	bool found = false;

	spin_lock_irqsave(&table_lock, flags);
	list_for_each_entry(standing, &table, link) {
		if (index--)
			continue;
		*subject = standing->subject;
		*order = standing->order;
		ds_subject_copy(subject);
		found = true;
		break;
	}
	spin_unlock_irqrestore(&table_lock, flags);
	return found;
}

/* The order of one subject goes before that of the other, for a process that both mean. */
static bool nearer(const struct ds_subject *a, const struct ds_subject *b)
{
	if (a->kind != b->kind)
		return a->kind < b->kind;
	return a->kind == DETSHARE_KIND_CGROUP && a->folder->level > b->folder->level;
}

bool ds_orders_of(const struct ds_process *process, struct ds_order *order)
{
	const struct standing *standing, *found = NULL;
	unsigned long flags;

	*order = (struct ds_order){ .level = -1 };
	if (list_empty_careful(&table))
		return false;
	spin_lock_irqsave(&table_lock, flags);
	list_for_each_entry(standing, &table, link)
		if ((!found || nearer(&standing->subject, &found->subject)) &&
		    ds_subject_meant(&standing->subject, process))
			found = standing;
	if (found)
		*order = found->order;
	spin_unlock_irqrestore(&table_lock, flags);
	return found;
}

/* One whose subject is gone, taken out of the table. */
static struct standing *take_gone(bool all)
{
	struct standing *standing, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&table_lock, flags);
	list_for_each_entry(standing, &table, link) {
		if (!all && !ds_subject_gone(&standing->subject))
			continue;
		ds_row_del(&standing->link);
		found = standing;
		break;
	}
	spin_unlock_irqrestore(&table_lock, flags);
	return found;
}

void ds_orders_reap(void)
{
	struct standing *standing;

	while ((standing = take_gone(false)))
		free_standing(standing);
}

void ds_orders_exit(void)
{
	struct standing *standing;
	unsigned long flags;

	spin_lock_irqsave(&table_lock, flags);
	stopping = true;
	spin_unlock_irqrestore(&table_lock, flags);
	if (watching) {
		tracepoint_probe_unregister(at_attach, on_attach, NULL);
		tracepoint_synchronize_unregister();
	}
	cancel_work_sync(&follow);
	while ((standing = take_gone(true)))
		free_standing(standing);
}
