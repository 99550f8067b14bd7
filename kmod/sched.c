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

/* A channel group that an order is to be carried out on. */
struct target {
	u32 client, tsg;
};

/*
 * One order for some channel groups. Jobs run one after the other, in the order in which they were queued (under orders_lock), and
 * look only then at what has been done before: so the last order is what stays, and what was before the first is never forgotten.
 */
struct job {
	struct work_struct work;
	struct completion done;
	refcount_t refs;	/* who waits, and the work */
	struct ds_process *process;	/* held */
	struct ds_order order;
	struct ds_sched_result result;	/* to be read when it is done */
	unsigned int count;
	struct target targets[];
};

/* What one channel group is to get, for the driver, outside all locks; and what it got. */
struct task {
	bool set_slice, set_level;
	bool slice_done, level_done;
	u64 slice;
	u32 level;
	u32 status;
	u64 slice_before;
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

bool ds_tsg_computes(const struct ds_client *client, const struct rm_object *tsg)
{
	if (tsg->kind != RM_KIND_TSG)
		return false;
	if (tsg->engine >= NV2080_ENGINE_TYPE_GR0 && tsg->engine <= NV2080_ENGINE_TYPE_GR7)
		return true;
	/* the engine of one that is older than the module is not known */
	return !tsg->engine && rm_tree_computes(&client->rm, tsg);
}

/* ---- jobs ------------------------------------------------------------------ */

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
static bool plan(struct task *task, struct rm_object *tsg, const struct ds_order *order)
{
	struct managed *managed = order->set ? manage(tsg) : tsg->priv;

	*task = (struct task){ 0 };
	if (!managed) {
		task->status = order->set ? NV_ERR_NO_MEMORY : NV_OK;
		return order->set;
	}
	if (order->set) {
		task->set_slice = order->slice_us;
		task->slice = order->slice_us;
		task->set_level = order->level >= 0;
		task->level = order->level;
	}
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
	return task->set_slice || task->set_level;
}

static void perform(const struct target *target, struct task *task)
{
	u32 status;

	if (task->set_slice) {
		if (!task->slice_before)
			ds_rm_get_slice(target->client, target->tsg, &task->slice_before);
		status = ds_rm_set_slice(target->client, target->tsg, task->slice);
		task->slice_done = !status;
		task->status = status;
	}
	if (task->set_level) {
		status = ds_rm_set_level(target->client, target->tsg, task->level);
		task->level_done = !status;
		task->status = task->status ?: status;
	}
}

/* Under client->tree. */
static void write_down(const struct task *task, struct rm_object *tsg, const struct ds_order *order)
{
	struct managed *managed = tsg->priv;

	if (!managed)
		return;
	if (task->slice_done && !managed->slice_before)
		managed->slice_before = task->slice_before;
	if (task->level_done)
		managed->level = task->level;
	/* what could not be put back is kept in mind */
	if (!order->set && !task->status) {
		kfree(managed);
		tsg->priv = NULL;
	}
}

/*
 * The channel group, with ds_clients_lock and its client's tree locked; NULL, and nothing locked: it has gone, or its name
 * belongs to another process by now.
 */
static struct rm_object *lock_target(const struct job *job, const struct target *target, struct ds_client **client)
{
	struct rm_object *tsg;

	down_read(&ds_clients_lock);
	*client = ds_client_find(target->client);
	if (*client && (*client)->process == job->process) {
		mutex_lock(&(*client)->tree);
		tsg = rm_tree_find(&(*client)->rm, target->tsg);
		if (tsg && ds_tsg_computes(*client, tsg))
			return tsg;
		mutex_unlock(&(*client)->tree);
	}
	up_read(&ds_clients_lock);
	return NULL;
}

static void unlock_target(struct ds_client *client)
{
	mutex_unlock(&client->tree);
	up_read(&ds_clients_lock);
}

static void carry_out(struct job *job, const struct target *target)
{
	struct ds_client *client;
	struct rm_object *tsg;
	struct task task;
	bool wanted;

	tsg = lock_target(job, target, &client);
	if (!tsg)
		return;
	wanted = plan(&task, tsg, &job->order);
	unlock_target(client);
	if (!wanted)
		return;
	perform(target, &task);
	tsg = lock_target(job, target, &client);
	if (tsg) {
		write_down(&task, tsg, &job->order);
		unlock_target(client);
	}
	if (task.status) {
		job->result.failed++;
		job->result.status = task.status;
	} else {
		job->result.set++;
	}
}

static void put_job(struct job *job)
{
	if (!refcount_dec_and_test(&job->refs))
		return;
	ds_process_put(job->process);
	kvfree(job);
}

static void work(struct work_struct *item)
{
	struct job *job = container_of(item, struct job, work);
	unsigned int i;

	for (i = 0; i < job->count; i++)
		carry_out(job, &job->targets[i]);
	complete_all(&job->done);
	put_job(job);
}

/* For the process's order of this moment. Under orders_lock, until it is queued. NULL: no memory. */
static struct job *make_job(struct ds_process *process, unsigned int room)
{
	struct job *job = kvzalloc(struct_size(job, targets, room), GFP_KERNEL);

	if (job) {
		INIT_WORK(&job->work, work);
		init_completion(&job->done);
		refcount_set(&job->refs, 2);
		job->process = ds_process_hold(process);
		job->order = process->order;
	}
	return job;
}

static void queue_job(struct job *job)
{
	queue_work(ds_rm_ordered, &job->work);
}

/* Takes the job over. -EINTR: the caller is being killed; the job goes on without him. */
static int wait_for_job(struct job *job, struct ds_sched_result *result)
{
	int err = wait_for_completion_killable(&job->done) ? -EINTR : 0;

	if (!err && result)
		*result = job->result;
	put_job(job);
	return err;
}

/* ---- which channel groups --------------------------------------------------- */

static unsigned int collect_client(struct job *job, unsigned int room, struct ds_client *client)
{
	struct rm_object *object = NULL;
	unsigned int found = 0;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		if (!ds_tsg_computes(client, object))
			continue;
		found++;
		if (job && job->count < room)
			job->targets[job->count++] = (struct target){ client->rm.handle, object->handle };
	}
	mutex_unlock(&client->tree);
	return found;
}

/* With job NULL only counts. */
static unsigned int collect(struct job *job, unsigned int room, struct ds_process *process)
{
	struct ds_client *client;
	unsigned int found = 0;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link)
		if (client->process == process)
			found += collect_client(job, room, client);
	up_read(&ds_clients_lock);
	return found;
}

/* Brings the process's channel groups into line with its order. The caller holds orders_lock; it is dropped. */
static int apply(struct ds_process *process, struct ds_sched_result *result)
{
	/* a channel group made after this count sees the order, which is set already */
	unsigned int room = collect(NULL, 0, process);
	struct job *job = make_job(process, room);

	if (job) {
		collect(job, room, process);
		queue_job(job);
	}
	mutex_unlock(&orders_lock);
	return job ? wait_for_job(job, result) : -ENOMEM;
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
	return apply(process, result);
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
	return apply(process, result);
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
	struct ds_process *process = client->process;
	struct job *job = NULL;

	if (!READ_ONCE(process->order.set))
		return;
	mutex_lock(&orders_lock);
	if (!stopping && process->order.set)
		job = make_job(process, 1);
	if (job) {
		job->targets[job->count++] = (struct target){ client->rm.handle, handle };
		queue_job(job);
	}
	mutex_unlock(&orders_lock);
	if (job)
		wait_for_job(job, NULL);
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
		apply(process, NULL);
		ds_process_put(process);
	}
	mutex_unlock(&orders_lock);
}
