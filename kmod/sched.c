// SPDX-License-Identifier: GPL-2.0-only
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/slab.h>

#include "bucket.h"
#include "ceiling.h"
#include "lease.h"
#include "reflex.h"
#include "rmcall.h"
#include "run.h"
#include "sched.h"
#include "shares.h"

#define LEVEL_BEFORE NVA06C_CTRL_INTERLEAVE_LEVEL_MEDIUM	/* the driver's default; it cannot be asked */
#define SLICE_BEFORE_US 2048	/* the same, where the driver did not tell */

#define RETRY_FIRST (HZ / 10)
#define RETRY_MOST (30 * HZ)
#define EXIT_TRIES 5
#define EXIT_PAUSE_MS 200

/* Hangs on a channel group's object (priv) from its first order on. Under client->tree. */
struct managed {
	u64 slice_before;	/* 0: never set by us */
	u64 slice;		/* set by us, 0: as it was */
	s32 level;		/* set by us, -1: as it was */
	u32 tpc_percent;	/* ceiling in force, 0: none */
	bool failed;		/* the driver refused something: not yet as it is to be */
};

/* What a channel group is to have. */
struct want {
	bool managed;
	u64 slice;		/* 0: as it was */
	s32 level;		/* -1: as it was */
	u32 tpc_percent;	/* 0: no ceiling */
};

/* A compute channel group at the moment of a job. */
struct target {
	struct ds_process *process;	/* held */
	u32 client, tsg, gpu;
	struct managed is;
	u64 boost;			/* slice by a reflex, 0: none */
	unsigned int share;		/* 1 + its account's place among the shares; 0: no weight */
	struct want want;
};

/* The driver's answers. */
struct done {
	bool slice, level, ceiling;	/* are as wanted now */
	u64 slice_before;
	u32 status, tpc_status;
};

/*
 * A job looks at all compute channel groups. It carries out what is ordered for those that it is meant for, and for all others
 * what has changed: so weights stay in proportion, and who moved is followed.
 */
struct job {
	struct work_struct work;
	struct completion done;
	refcount_t refs;		/* who waits, and the work */
	enum {
		FOR_SUBJECT,
		FOR_TSG,
		FOR_ALL,
	} scope;
	struct ds_subject subject;	/* held */
	u32 client, tsg;
	struct ds_sched_result result;	/* to be read when it is done */
	int err;
};

struct census {
	struct target *targets;
	struct ds_share *shares;
	unsigned int count, room, shared;
};

static bool stopping;
static void retry_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(retry, retry_work);
static unsigned long retry_after = RETRY_FIRST;	/* the ordered queue's own */

bool ds_tsg_computes(const struct ds_client *client, const struct rm_object *tsg)
{
	if (tsg->kind != RM_KIND_TSG)
		return false;
	if (tsg->engine >= NV2080_ENGINE_TYPE_GR0 && tsg->engine <= NV2080_ENGINE_TYPE_GR7)
		return true;
	/* the engine of one that is older than the module is not known */
	return !tsg->engine && rm_tree_computes(&client->rm, tsg);
}

bool ds_process_managed(const struct ds_process *process)
{
	struct ds_order order;

	return ds_orders_of(process, &order);
}

/* ---- all compute channel groups ----------------------------------------------- */

static void count_client(struct census *census, struct ds_client *client)
{
	struct rm_object *object = NULL;
	struct managed *managed;
	struct ds_vctx *vctx;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		struct target *target = &census->targets[census->count];

		/* one that is shared with another client is its maker's */
		if (!ds_tsg_computes(client, object) || object->flags & RM_OBJECT_DUP)
			continue;
		if (census->count++ >= census->room)
			continue;
		managed = object->priv;
		vctx = ds_vctx_find(client, object->gpu);
		*target = (struct target){
			.process = ds_process_hold(client->process),
			.client = client->rm.handle,
			.tsg = object->handle,
			.gpu = object->gpu,
			.is.level = -1,
			.boost = vctx && vctx->run ? READ_ONCE(vctx->run->boost_us) : 0,
		};
		if (managed)
			target->is = *managed;
	}
	mutex_unlock(&client->tree);
}

static void free_census(struct census *census)
{
	unsigned int i;

	for (i = 0; i < min(census->count, census->room); i++)
		ds_process_put(census->targets[i].process);
	kvfree(census->targets);
	kvfree(census->shares);
}

static bool try_census(struct census *census, unsigned int room)
{
	struct ds_client *client;

	*census = (struct census){ .room = room };
	census->targets = kvcalloc(room, sizeof(*census->targets), GFP_KERNEL);
	census->shares = kvcalloc(room, sizeof(*census->shares), GFP_KERNEL);
	if (!census->targets || !census->shares)
		return false;
	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link)
		count_client(census, client);
	up_read(&ds_clients_lock);
	return true;
}

/* -ENOMEM. */
static int take_census(struct census *census)
{
	unsigned int room = 64;

	for (;;) {
		if (!try_census(census, room)) {
			free_census(census);
			return -ENOMEM;
		}
		if (census->count <= census->room)
			return 0;
		room = census->count + 64;
		free_census(census);
	}
}

static void decide(struct census *census, struct target *target)
{
	struct want *want = &target->want;
	struct ds_share *share;
	struct ds_class row;
	struct ds_order order;
	u32 weight;

	*want = (struct want){ .level = -1 };
	if (READ_ONCE(stopping) || !ds_orders_of(target->process, &order))
		return;
	want->managed = true;
	if (!order.class[0] || !ds_class_get(order.class, target->gpu, &row))
		row = (struct ds_class){ .level = -1 };
	want->level = order.level >= 0 ? order.level : row.level;
	want->tpc_percent = order.tpc_percent < 100 ? order.tpc_percent : 0;
	weight = order.weight ?: row.weight;
	if (order.slice_us || !weight) {
		want->slice = order.slice_us ?: row.slice_us;
		return;
	}
	/* shares are slices of turns that are equally many */
	if (want->level < 0)
		want->level = NVA06C_CTRL_INTERLEAVE_LEVEL_MEDIUM;
	share = ds_share_of(census->shares, &census->shared, &(struct ds_share){
		.gpu = target->gpu, .kind = order.kind, .account = order.account, .weight = weight });
	share->tsgs++;
	target->share = share - census->shares + 1;
}

static void decide_all(struct census *census)
{
	struct target *target;

	for (target = census->targets; target < census->targets + census->count; target++)
		decide(census, target);
	ds_shares_slices(census->shares, census->shared);
	for (target = census->targets; target < census->targets + census->count; target++) {
		if (target->share)
			target->want.slice = census->shares[target->share - 1].slice_us;
		if (target->want.managed && target->boost)
			target->want.slice = target->boost;
	}
}

/* ---- jobs --------------------------------------------------------------------------- */

/*
 * The channel group, with ds_clients_lock and its client's tree locked; NULL, and nothing locked: it has gone, or its name
 * belongs to another process by now.
 */
static struct rm_object *lock_target(const struct target *target, struct ds_client **client)
{
	struct rm_object *tsg;

	down_read(&ds_clients_lock);
	*client = ds_client_find(target->client);
	if (*client && (*client)->process == target->process) {
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

static bool in_line(const struct target *target)
{
	const struct managed *is = &target->is;
	const struct want *want = &target->want;

	return !is->failed && is->slice == want->slice && is->level == want->level &&
	       is->tpc_percent == want->tpc_percent;
}

static void set_slice(const struct target *target, struct done *done)
{
	const struct want *want = &target->want;
	u64 us = want->slice ?: target->is.slice_before;

	done->slice_before = target->is.slice_before;
	if (!want->slice && !target->is.slice)
		return;
	if (!done->slice_before)
		ds_rm_get_slice(target->client, target->tsg, &done->slice_before);
	done->slice_before = done->slice_before ?: SLICE_BEFORE_US;
	done->status = ds_rm_set_slice(target->client, target->tsg, us);
	done->slice = !done->status;
}

static void set_level(const struct target *target, struct done *done)
{
	const struct want *want = &target->want;
	u32 status;

	if (want->level < 0 && target->is.level < 0)
		return;
	status = ds_rm_set_level(target->client, target->tsg, want->level >= 0 ? want->level : LEVEL_BEFORE);
	done->level = !status;
	done->status = done->status ?: status;
}

static void set_ceiling(const struct target *target, struct done *done)
{
	if (!target->want.tpc_percent && !target->is.tpc_percent)
		return;
	done->tpc_status = ds_ceiling_set(target->gpu, target->client, target->tsg, target->want.tpc_percent, &done->ceiling);
}

/* Under client->tree. */
static void write_down(const struct target *target, const struct done *done, struct ds_client *client, struct rm_object *tsg)
{
	const struct want *want = &target->want;
	struct managed *managed = tsg->priv;
	struct ds_vctx *vctx = ds_vctx_find(client, tsg->gpu);

	if (!managed) {
		managed = tsg->priv = kzalloc(sizeof(*managed), GFP_KERNEL);
		if (!managed)
			return;
		managed->level = -1;
	}
	if (done->slice) {
		managed->slice_before = done->slice_before;
		managed->slice = want->slice;
	}
	if (done->level)
		managed->level = want->level;
	if (done->ceiling)
		managed->tpc_percent = want->tpc_percent;
	/* a ceiling that cannot be had is told, not tried for ever */
	managed->failed = done->status || ds_ceiling_again(done->tpc_status);
	if (vctx && vctx->run)
		ds_run_turns(vctx->run, managed->slice, managed->level);
	/* what could not be put back is kept in mind */
	if (!want->managed && !managed->failed) {
		kfree(managed);
		tsg->priv = NULL;
	}
}

static void carry_out(const struct target *target, struct done *done)
{
	struct ds_client *client;
	struct rm_object *tsg;

	tsg = lock_target(target, &client);
	if (!tsg)
		return;
	unlock_target(client);
	set_slice(target, done);
	set_level(target, done);
	set_ceiling(target, done);
	tsg = lock_target(target, &client);
	if (!tsg) {
		*done = (struct done){ 0 };	/* it died: nobody asks what became of it */
		return;
	}
	write_down(target, done, client, tsg);
	unlock_target(client);
}

static bool meant(const struct job *job, const struct target *target)
{
	switch (job->scope) {
	case FOR_SUBJECT:
		return ds_subject_meant(&job->subject, target->process);
	case FOR_TSG:
		return job->client == target->client && job->tsg == target->tsg;
	case FOR_ALL:
		return true;
	}
	return false;
}

static void count_result(struct ds_sched_result *result, const struct done *done)
{
	if (done->status) {
		result->failed++;
		result->status = done->status;
	} else {
		result->set++;
	}
	if (done->tpc_status)
		result->tpc_status = done->tpc_status;
}

/* job NULL: for nobody, so only what has changed. The ordered queue's. */
static int reconcile(struct job *job)
{
	struct census census;
	struct target *target;
	bool failed = false;
	int err;

	err = take_census(&census);
	if (err) {
		mod_delayed_work(ds_rm_ordered, &retry, retry_after);
		return err;
	}
	decide_all(&census);
	for (target = census.targets; target < census.targets + census.count; target++) {
		bool asked = job && meant(job, target);
		struct done done = { 0 };

		if (!asked && in_line(target))
			continue;
		if (!target->want.managed && in_line(target) && !target->is.slice_before)
			continue;
		carry_out(target, &done);
		failed |= done.status || ds_ceiling_again(done.tpc_status);
		if (asked)
			count_result(&job->result, &done);
	}
	free_census(&census);
	if (failed && !READ_ONCE(stopping)) {
		mod_delayed_work(ds_rm_ordered, &retry, retry_after);
		retry_after = min_t(unsigned long, 2 * retry_after, RETRY_MOST);
	} else {
		retry_after = RETRY_FIRST;
	}
	return 0;
}

static void retry_work(struct work_struct *work)
{
	reconcile(NULL);
}

static void put_job(struct job *job)
{
	if (!refcount_dec_and_test(&job->refs))
		return;
	if (job->scope == FOR_SUBJECT)
		ds_subject_put(&job->subject);
	kfree(job);
}

static void do_job(struct work_struct *item)
{
	struct job *job = container_of(item, struct job, work);

	job->err = reconcile(job);
	complete_all(&job->done);
	put_job(job);
}

static struct job *make_job(void)
{
	struct job *job = kzalloc(sizeof(*job), GFP_KERNEL);

	if (job) {
		job->scope = FOR_ALL;
		INIT_WORK(&job->work, do_job);
		init_completion(&job->done);
		refcount_set(&job->refs, 2);
	}
	return job;
}

/* Takes the job over. -EINTR: the caller is being killed; the job goes on without him. */
static int run_job(struct job *job, struct ds_sched_result *result)
{
	int err;

	queue_work(ds_rm_ordered, &job->work);
	err = wait_for_completion_killable(&job->done) ? -EINTR : job->err;
	if (!err && result)
		*result = job->result;
	put_job(job);
	return err;
}

int ds_sched_apply(const struct ds_subject *subject, struct ds_sched_result *result)
{
	struct job *job;
	int err;

	if (READ_ONCE(stopping))
		return -ENODEV;
	job = make_job();
	if (!job)
		return -ENOMEM;
	job->subject = *subject;
	err = ds_subject_hold(&job->subject);
	if (err) {
		kfree(job);
		return err;
	}
	job->scope = FOR_SUBJECT;
	ds_lanes_stale();
	return run_job(job, result);
}

void ds_sched_again(void)
{
	if (!READ_ONCE(stopping))
		mod_delayed_work(ds_rm_ordered, &retry, 0);
}

void ds_sched_follow(struct ds_process *process)
{
	ds_lanes_stale();
	ds_sched_again();
}

void ds_sched_desert(const struct ds_subject *subject)
{
	ds_hold_del(subject, NULL);
	ds_bucket_del(subject);
}

/* ---- channel groups ------------------------------------------------------------ */

static void do_for_tsg(struct ds_client *client, u32 tsg)
{
	struct job *job = READ_ONCE(stopping) ? NULL : make_job();

	if (!job)
		return;
	job->scope = FOR_TSG;
	job->client = client->rm.handle;
	job->tsg = tsg;
	run_job(job, NULL);
}

void ds_sched_tsg_new(struct ds_client *client, u32 handle)
{
	struct rm_object *tsg;
	bool computes;
	u32 gpu = RM_GPU_NONE;

	mutex_lock(&client->tree);
	tsg = rm_tree_find(&client->rm, handle);
	computes = tsg && ds_tsg_computes(client, tsg);
	if (computes)
		gpu = tsg->gpu;
	mutex_unlock(&client->tree);
	if (!computes)
		return;
	if (!ds_run_of(client, gpu))
		pr_warn_ratelimited("no memory to schedule client %#x of process %d\n", client->rm.handle,
				    ds_process_nr(client->process));
	ds_run_count_tsgs(client, gpu);
	if (ds_process_managed(client->process))
		do_for_tsg(client, handle);
}

void ds_sched_part_new(struct ds_client *client, u32 handle)
{
	struct ds_order order;
	struct rm_object *object;
	u32 tsg = 0;

	if (!ds_orders_of(client->process, &order) || !order.tpc_percent)
		return;
	mutex_lock(&client->tree);
	object = rm_tree_find(&client->rm, handle);
	while (object && object->kind != RM_KIND_TSG)
		object = rm_tree_parent(&client->rm, object);
	if (object)
		tsg = object->handle;
	mutex_unlock(&client->tree);
	if (tsg)
		do_for_tsg(client, tsg);
}

void ds_sched_client_found(struct ds_client *client)
{
	u32 gpus[RM_GPUS], count = 0, i;
	struct rm_object *object = NULL;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		if (!ds_tsg_computes(client, object) || object->gpu >= RM_GPUS)
			continue;
		for (i = 0; i < count && gpus[i] != object->gpu; i++)
			;
		if (i == count)
			gpus[count++] = object->gpu;
	}
	mutex_unlock(&client->tree);
	for (i = 0; i < count; i++) {
		ds_run_of(client, gpus[i]);
		ds_run_count_tsgs(client, gpus[i]);
	}
	if (count && ds_process_managed(client->process))
		ds_sched_again();
}

void ds_sched_tsg_gone(struct ds_client *client, struct rm_object *tsg)
{
	bool managed = tsg->priv;
	struct ds_vctx *vctx = ds_vctx_find(client, tsg->gpu);

	kfree(tsg->priv);
	tsg->priv = NULL;
	if (vctx && vctx->run)
		ds_run_tsg_gone(vctx->run);
	/* what it had of a weight goes to its siblings */
	if (managed)
		ds_sched_again();
}

void ds_sched_state(const struct rm_object *tsg, struct ds_tsg_state *state)
{
	const struct managed *managed = tsg->priv;

	*state = (struct ds_tsg_state){ .level = -1 };
	if (!managed)
		return;
	*state = (struct ds_tsg_state){
		.managed = true,
		.slice_before = managed->slice_before,
		.slice = managed->slice,
		.level = managed->level,
		.tpc_percent = managed->tpc_percent,
	};
}

/* false: something is not as it was. */
static bool put_back(void)
{
	struct job *job = make_job();
	bool all;

	if (!job)
		return false;
	queue_work(ds_rm_ordered, &job->work);
	wait_for_completion(&job->done);
	all = !job->err && !job->result.failed;
	put_job(job);
	return all;
}

void ds_sched_exit(void)
{
	unsigned int tries = 0;

	ds_orders_exit();
	WRITE_ONCE(stopping, true);
	cancel_delayed_work_sync(&retry);
	while (!put_back()) {
		if (++tries == EXIT_TRIES) {
			pr_err("some channel groups keep the slice or level that was ordered: the driver refuses to put them back\n");
			break;
		}
		msleep(EXIT_PAUSE_MS);
	}
}

void ds_sched_forget(void)
{
	cancel_delayed_work_sync(&retry);
}
