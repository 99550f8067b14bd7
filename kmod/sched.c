// SPDX-License-Identifier: GPL-2.0-only
#include <linux/completion.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "rmcall.h"
#include "sched.h"

#define LEVEL_BEFORE NVA06C_CTRL_INTERLEAVE_LEVEL_MEDIUM	/* the driver's default; it cannot be asked */

/* Hangs on a channel group's object (priv) from its first order on. Under client->tree. */
struct managed {
	u64 slice_before;	/* 0: never set by us */
	s32 level;		/* -1: never set by us */
};

/* One channel group and what it is to get, for work outside all locks. */
struct task {
	u32 client, tsg;
	bool set_slice, set_level;
	u64 slice;
	u32 level;
	u32 status;
	u64 slice_before;
};

struct job {
	struct work_struct work;
	struct completion done;
	refcount_t refs;	/* who waits, and the work */
	unsigned int count;
	struct task tasks[];
};

/* Orders and their list; outside ds_clients_lock. */
static DEFINE_MUTEX(orders_lock);
/* ds_process.order alone, for readers that hold anything. */
static DEFINE_SPINLOCK(order_lock);
static LIST_HEAD(orders);
static bool stopping;

struct ordered {
	struct list_head link;
	struct ds_process *process;
};

static void put_job(struct job *job)
{
	if (refcount_dec_and_test(&job->refs))
		kvfree(job);
}

static void perform(struct task *task)
{
	if (task->set_slice) {
		if (!task->slice_before)
			ds_rm_get_slice(task->client, task->tsg, &task->slice_before);
		task->status = ds_rm_set_slice(task->client, task->tsg, task->slice);
	}
	if (!task->status && task->set_level)
		task->status = ds_rm_set_level(task->client, task->tsg, task->level);
}

/* The result goes to the object, if it is still the same kind of thing. */
static void write_down(const struct task *task)
{
	struct ds_client *client;
	struct rm_object *tsg;
	struct managed *managed;

	down_read(&ds_clients_lock);
	client = ds_client_find(task->client);
	if (!client)
		goto unlock;
	mutex_lock(&client->tree);
	tsg = rm_tree_find(&client->rm, task->tsg);
	managed = tsg && tsg->kind == RM_KIND_TSG ? tsg->priv : NULL;
	if (managed) {
		if (task->set_slice && !managed->slice_before)
			managed->slice_before = task->slice_before;
		if (task->set_level)
			managed->level = task->level;
	}
	mutex_unlock(&client->tree);
unlock:
	up_read(&ds_clients_lock);
}

static void work(struct work_struct *item)
{
	struct job *job = container_of(item, struct job, work);
	unsigned int i;

	for (i = 0; i < job->count; i++) {
		perform(&job->tasks[i]);
		if (!job->tasks[i].status)
			write_down(&job->tasks[i]);
	}
	complete_all(&job->done);
	put_job(job);
}

static struct job *make_job(unsigned int room)
{
	struct job *job = kvzalloc(struct_size(job, tasks, room), GFP_KERNEL);

	if (job) {
		INIT_WORK(&job->work, work);
		init_completion(&job->done);
		refcount_set(&job->refs, 2);
	}
	return job;
}

/* Takes the job over. */
static int run_job(struct job *job, struct ds_sched_result *result)
{
	unsigned int i;
	int err;

	queue_work(ds_rm_queue, &job->work);
	err = wait_for_completion_killable(&job->done);
	if (err) {
		err = -EINTR;
	} else if (result) {
		for (i = 0; i < job->count; i++) {
			if (!job->tasks[i].status) {
				result->set++;
				continue;
			}
			result->failed++;
			result->status = job->tasks[i].status;
		}
	}
	put_job(job);
	return err;
}

bool ds_tsg_computes(const struct ds_client *client, const struct rm_object *tsg)
{
	if (tsg->kind != RM_KIND_TSG)
		return false;
	if (tsg->engine >= NV2080_ENGINE_TYPE_GR0 && tsg->engine <= NV2080_ENGINE_TYPE_GR7)
		return true;
	/* the engine of one that is older than the module is not known */
	return !tsg->engine && rm_tree_computes(&client->rm, tsg);
}

/* ---- which channel groups --------------------------------------------------- */

static struct managed *manage(struct rm_object *tsg)
{
	struct managed *managed = tsg->priv;

	if (!managed) {
		managed = kzalloc(sizeof(*managed), GFP_KERNEL);
		if (managed)
			managed->level = -1;
		tsg->priv = managed;
	}
	return managed;
}

/* Under client->tree. false: there is nothing to do for it. */
static bool plan_order(struct task *task, const struct ds_client *client, struct rm_object *tsg,
		       const struct ds_order *order)
{
	struct managed *managed = tsg->priv;

	*task = (struct task){ .client = client->rm.handle, .tsg = tsg->handle };
	if (order->set) {
		managed = manage(tsg);
		task->set_slice = order->slice_us;
		task->slice = order->slice_us;
		task->set_level = order->level >= 0;
		task->level = order->level;
	}
	if (!managed)
		return false;
	/* what is no longer ordered goes back to what it was */
	if (!task->set_slice && managed->slice_before) {
		task->set_slice = true;
		task->slice = managed->slice_before;
	}
	if (!task->set_level && managed->level >= 0) {
		task->set_level = true;
		task->level = LEVEL_BEFORE;
	}
	task->slice_before = managed->slice_before;
	if (!order->set) {
		kfree(managed);
		tsg->priv = NULL;
	}
	return task->set_slice || task->set_level;
}

static unsigned int plan_client(struct job *job, unsigned int room, struct ds_client *client,
				const struct ds_order *order)
{
	struct rm_object *object = NULL;
	unsigned int found = 0;
	struct task task;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		if (!ds_tsg_computes(client, object))
			continue;
		found++;
		if (job && job->count < room && plan_order(&task, client, object, order))
			job->tasks[job->count++] = task;
	}
	mutex_unlock(&client->tree);
	return found;
}

/* With job NULL only counts. */
static unsigned int plan_process(struct job *job, unsigned int room, struct ds_process *process,
				 const struct ds_order *order)
{
	struct ds_client *client;
	unsigned int found = 0;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link)
		if (client->process == process)
			found += plan_client(job, room, client, order);
	up_read(&ds_clients_lock);
	return found;
}

/* Carries out what process->order says now. The caller holds orders_lock; it is dropped. */
static int carry_out(struct ds_process *process, struct ds_sched_result *result)
{
	struct ds_order order = process->order;
	struct job *job;
	unsigned int room;

	/* a channel group made after this count sees the order that is set already */
	room = plan_process(NULL, 0, process, &order) + 16;
	job = make_job(room);
	if (job)
		plan_process(job, room, process, &order);
	mutex_unlock(&orders_lock);
	return job ? run_job(job, result) : -ENOMEM;
}

/* ---- orders ------------------------------------------------------------------- */

static struct ordered *find_ordered(const struct ds_process *process)
{
	struct ordered *ordered;

	list_for_each_entry(ordered, &orders, link)
		if (ordered->process == process)
			return ordered;
	return NULL;
}

static void write_order(struct ds_process *process, const struct ds_order *order)
{
	spin_lock(&order_lock);
	process->order = *order;
	spin_unlock(&order_lock);
}

static void forget(struct ordered *ordered)
{
	static const struct ds_order none = { .level = -1 };

	write_order(ordered->process, &none);
	list_del(&ordered->link);
	ds_process_put(ordered->process);
	kfree(ordered);
}

static void reap_locked(void)
{
	struct ordered *ordered, *next;

	list_for_each_entry_safe(ordered, next, &orders, link)
		if (!ds_process_alive(ordered->process))
			forget(ordered);
}

int ds_sched_set(struct ds_process *process, const struct ds_order *order,
		 struct ds_sched_result *result)
{
	struct ordered *ordered;
	int err = -ENODEV;

	mutex_lock(&orders_lock);
	reap_locked();
	if (stopping)
		goto unlock;
	ordered = find_ordered(process);
	if (!ordered) {
		err = -ENOMEM;
		ordered = kzalloc(sizeof(*ordered), GFP_KERNEL);
		if (!ordered)
			goto unlock;
		ordered->process = ds_process_hold(process);
		list_add_tail(&ordered->link, &orders);
	}
	write_order(process, order);
	return carry_out(process, result);
unlock:
	mutex_unlock(&orders_lock);
	return err;
}

int ds_sched_del(struct ds_process *process, struct ds_sched_result *result)
{
	struct ordered *ordered;

	mutex_lock(&orders_lock);
	reap_locked();
	ordered = find_ordered(process);
	if (!ordered) {
		mutex_unlock(&orders_lock);
		return -ENOENT;
	}
	/* the caller holds the process too */
	forget(ordered);
	return carry_out(process, result);
}

bool ds_sched_get(struct ds_process *process, struct ds_order *order)
{
	spin_lock(&order_lock);
	*order = process->order;
	spin_unlock(&order_lock);
	return order->set;
}

struct ds_process *ds_sched_at(unsigned int index)
{
	struct ds_process *process = NULL;
	struct ordered *ordered;

	mutex_lock(&orders_lock);
	reap_locked();
	list_for_each_entry(ordered, &orders, link) {
		if (!index--) {
			process = ds_process_hold(ordered->process);
			break;
		}
	}
	mutex_unlock(&orders_lock);
	return process;
}

/* ---- channel groups ------------------------------------------------------------ */

void ds_sched_tsg_new(struct ds_client *client, u32 handle)
{
	struct rm_object *tsg;
	struct job *job = NULL;

	if (!READ_ONCE(client->process->order.set))
		return;
	mutex_lock(&orders_lock);
	if (!stopping && client->process->order.set)
		job = make_job(1);
	if (job) {
		mutex_lock(&client->tree);
		tsg = rm_tree_find(&client->rm, handle);
		if (tsg && ds_tsg_computes(client, tsg) &&
		    plan_order(&job->tasks[0], client, tsg, &client->process->order))
			job->count = 1;
		mutex_unlock(&client->tree);
	}
	mutex_unlock(&orders_lock);
	if (job)
		run_job(job, NULL);
}

void ds_sched_tsg_gone(struct ds_client *client, struct rm_object *tsg)
{
	kfree(tsg->priv);
	tsg->priv = NULL;
}

void ds_sched_state(const struct rm_object *tsg, struct ds_tsg_state *state)
{
	const struct managed *managed = tsg->priv;

	state->managed = managed;
	state->slice_before = managed ? managed->slice_before : 0;
	state->level = managed ? managed->level : -1;
}

void ds_sched_exit(void)
{
	struct ds_process *process;
	struct ordered *ordered;

	for (;;) {
		mutex_lock(&orders_lock);
		stopping = true;
		ordered = list_first_entry_or_null(&orders, struct ordered, link);
		if (!ordered)
			break;
		process = ds_process_hold(ordered->process);
		forget(ordered);
		carry_out(process, NULL);
		ds_process_put(process);
	}
	mutex_unlock(&orders_lock);
}
