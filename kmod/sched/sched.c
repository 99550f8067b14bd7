// SPDX-License-Identifier: GPL-2.0-only
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/slab.h>

#include "enact.h"
#include "rmcall.h"
#include "entity.h"
#include "sched.h"

#define RETRY_FIRST (HZ / 10)
#define RETRY_MOST HZ	/* two that keep slices shorter than a switch do not get on until then */
#define EXIT_TRIES 50	/* as long as channels are waited for that are to come back */
#define EXIT_PAUSE_MS 200

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

static bool stopping;
static void retry_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(retry, retry_work);
static unsigned long retry_after = RETRY_FIRST;	/* the ordered queue's own */

static bool meant(const struct job *job, const struct ds_target *target)
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

static void count_result(struct ds_sched_result *result, const struct ds_done *done)
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
	struct ds_census census;
	struct ds_target *target;
	bool failed = false;
	int err;

	err = ds_census_take(&census, READ_ONCE(stopping));
	if (err) {
		mod_delayed_work(ds_rm_ordered, &retry, retry_after);
		return err;
	}
	for_each_target(target, &census) {
		bool asked = job && meant(job, target);
		struct ds_done done;

		/* all of it anew: what the program chose may have come after what was set back */
		if (asked)
			target->is.defaults = false;
		if (!asked && ds_target_in_line(target))
			continue;
		if (!target->want.managed && ds_target_in_line(target) && !target->is.slice_before)
			continue;
		ds_target_enact(target, &done);
		failed |= ds_done_again(&done);
		if (asked)
			count_result(&job->result, &done);
	}
	ds_census_free(&census);
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

/* Takes the job over. -EINTR: the caller is being killed, -ETIMEDOUT: the driver takes too long; the job goes on without him. */
static int entity_job(struct job *job, struct ds_sched_result *result, unsigned long patience)
{
	long left;
	int err;

	queue_work(ds_rm_ordered, &job->work);
	left = wait_for_completion_killable_timeout(&job->done, patience);
	err = left < 0 ? -EINTR : left ? job->err : -ETIMEDOUT;
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
	ds_runqs_stale();
	return entity_job(job, result, DS_RM_PATIENCE);
}

void ds_sched_again(void)
{
	if (!READ_ONCE(stopping))
		mod_delayed_work(ds_rm_ordered, &retry, 0);
}

void ds_sched_follow(struct ds_process *process)
{
	ds_runqs_stale();
	ds_sched_again();
}

/* ---- channel groups ------------------------------------------------------------ */

void ds_sched_apply_tsg(const struct ds_client *client, u32 tsg)
{
	struct job *job = READ_ONCE(stopping) ? NULL : make_job();

	if (!job)
		return;
	job->scope = FOR_TSG;
	job->client = client->rm.handle;
	job->tsg = tsg;
	entity_job(job, NULL, MAX_SCHEDULE_TIMEOUT);
}

void ds_sched_doubt(struct ds_process *process)
{
	const struct ds_subject subject = { .kind = DETSHARE_KIND_PID, .process = process };
	struct ds_sched_result result;

	/* by a job: what is being written down at this moment is set anew too */
	ds_sched_apply(&subject, &result);
}

void ds_sched_state(const struct rm_object *tsg, struct ds_tsg_state *state)
{
	const struct ds_managed *managed = tsg->priv;

	*state = (struct ds_tsg_state){ .level = -1 };
	if (!managed)
		return;
	*state = (struct ds_tsg_state){
		.managed = managed->ordered,
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
