// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/slab.h>

#include "channels.h"
#include "rmcall.h"
#include "run.h"

static struct ds_lane lanes[RM_GPUS];
/* Not bound to the processor of who launched: the look that a launch asks for does not delay the launch. */
static struct workqueue_struct *queue;
static bool let_go;
static atomic_t run_count;

/* ---- lanes ------------------------------------------------------------------- */

void ds_lane_look(struct ds_lane *lane)
{
	queue_work(queue, &lane->work);
}

static bool is_used(struct ds_lane *lane)
{
	unsigned long flags;
	bool used;

	spin_lock_irqsave(&lane->lock, flags);
	used = !list_empty(&lane->runs);
	lane->stale |= used;
	spin_unlock_irqrestore(&lane->lock, flags);
	return used;
}

void ds_lanes_stale(void)
{
	struct ds_lane *lane;

	for (lane = lanes; lane < lanes + ARRAY_SIZE(lanes); lane++)
		if (is_used(lane))
			ds_lane_look(lane);
}

/* The number of a look that begins from here on, which is asked for. */
static u64 ask_for_look(struct ds_lane *lane)
{
	unsigned long flags;
	u64 next;

	spin_lock_irqsave(&lane->lock, flags);
	next = lane->begun + 1;
	spin_unlock_irqrestore(&lane->lock, flags);
	ds_lane_look(lane);
	return next;
}

static bool has_looked(struct ds_lane *lane, u64 look)
{
	unsigned long flags;
	bool has;

	spin_lock_irqsave(&lane->lock, flags);
	has = lane->done >= look;
	spin_unlock_irqrestore(&lane->lock, flags);
	return has;
}

bool ds_lanes_settle(void)
{
	u64 until = jiffies + DS_RM_PATIENCE, looks[RM_GPUS];
	struct ds_lane *lane;
	bool settled = true;

	ds_lanes_stale();
	for (lane = lanes; lane < lanes + ARRAY_SIZE(lanes); lane++)
		looks[lane->gpu] = is_used(lane) ? ask_for_look(lane) : 0;
	for (lane = lanes; lane < lanes + ARRAY_SIZE(lanes); lane++) {
		u64 look = looks[lane->gpu];

		if (!look || wait_event_timeout(lane->looked, has_looked(lane, look), ds_rm_patience(until)))
			continue;
		settled = false;
		pr_warn_ratelimited("on GPU %u what was ordered is not in force after %u s and nobody waits longer: it comes into force when the work item goes on, which `echo w >/proc/sysrq-trigger` shows in the log (workqueue detshare_lanes)\n",
				    lane->gpu, DS_RM_PATIENCE / HZ);
	}
	return settled;
}

bool ds_lane_settle_killable(struct ds_lane *lane)
{
	u64 look = ask_for_look(lane);

	return !wait_event_killable(lane->looked, has_looked(lane, look));
}

struct ds_lane *ds_lane_at(u32 gpu)
{
	return &lanes[gpu];
}

int ds_runs_each(int (*tell)(struct ds_run *run, void *data), void *data)
{
	struct ds_lane *lane;
	struct ds_run *run;
	int err = 0;

	for (lane = lanes; !err && lane < lanes + ARRAY_SIZE(lanes); lane++) {
		mutex_lock(&lane->members);
		list_for_each_entry(run, &lane->runs, link) {
			err = tell(run, data);
			if (err)
				break;
		}
		mutex_unlock(&lane->members);
	}
	return err;
}

/* ---- runs ---------------------------------------------------------------------- */

struct ds_run *ds_run_hold(struct ds_run *run)
{
	refcount_inc(&run->refs);
	return run;
}

void ds_run_put(struct ds_run *run)
{
	if (!run || !refcount_dec_and_test(&run->refs))
		return;
	ds_gate_put(run->gate);
	ds_process_put(run->process);
	atomic_dec(&run_count);
	kfree(run);
}

struct ds_run *ds_run_make(const struct ds_client *client, const struct ds_vctx *vctx, ds_kicked_fn kicked)
{
	struct ds_run *run = kzalloc(sizeof(*run), GFP_KERNEL_ACCOUNT);

	if (!run)
		return NULL;
	refcount_set(&run->refs, 1);
	run->lane = &lanes[vctx->gpu];
	run->gpu = vctx->gpu;
	run->client = client->rm.handle;
	run->vctx = vctx->id;
	run->level = -1;
	run->gate = ds_gate_new(run->gpu, client->process->pid, kicked, run);
	if (!run->gate) {
		kfree(run);
		return NULL;
	}
	run->process = ds_process_hold(client->process);
	atomic_inc(&run_count);
	return run;
}

struct ds_client *ds_run_client_lock(const struct ds_run *run)
{
	struct ds_client *client;
	struct ds_vctx *vctx;
	bool same = false;

	down_read(&ds_clients_lock);
	client = ds_client_find(run->client);
	if (client && client->process == run->process) {
		mutex_lock(&client->tree);
		vctx = ds_vctx_find(client, run->gpu);
		same = vctx && vctx->run == run;
		mutex_unlock(&client->tree);
	}
	if (same)
		return client;
	up_read(&ds_clients_lock);
	return NULL;
}

void ds_run_client_unlock(void)
{
	up_read(&ds_clients_lock);
}

void ds_run_event(const struct ds_run *run, struct ds_event_run *event)
{
	*event = (struct ds_event_run){
		.vctx = run->vctx,
		.pid = ds_process_nr(run->process),
		.gpu = run->gpu,
		.client = run->client,
	};
}

/* ---- channel groups --------------------------------------------------------------- */

void ds_run_count_tsgs(struct ds_client *client, u32 gpu)
{
	struct rm_object *object = NULL;
	unsigned int count = 0;
	struct ds_vctx *vctx;
	unsigned long flags;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object)))
		count += object->gpu == gpu && ds_tsg_computes(client, object);
	vctx = ds_vctx_find(client, gpu);
	if (vctx && vctx->run) {
		spin_lock_irqsave(&vctx->run->lane->lock, flags);
		vctx->run->tsgs = count;
		spin_unlock_irqrestore(&vctx->run->lane->lock, flags);
	}
	mutex_unlock(&client->tree);
}

void ds_run_tsg_gone(struct ds_run *run)
{
	unsigned long flags;

	spin_lock_irqsave(&run->lane->lock, flags);
	run->tsgs -= !!run->tsgs;
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

void ds_run_turns(struct ds_run *run, u64 slice_us, s32 level)
{
	unsigned long flags;

	spin_lock_irqsave(&run->lane->lock, flags);
	run->slice_us = slice_us;
	run->level = level;
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

/* ---- for people --------------------------------------------------------------------- */

static void fill(struct ds_run *run, struct ds_run_info *info)
{
	u64 now = ktime_get_ns();
	unsigned long flags;

	memset(info, 0, sizeof(*info));
	ds_gate_stats(run->gate, &info->gate);
	info->process = ds_process_hold(run->process);
	info->vctx = run->vctx;
	info->gpu = run->gpu;
	info->client = run->client;
	spin_lock_irqsave(&run->lane->lock, flags);
	info->rule = run->rule;
	info->reasons = info->gate.reasons | run->pause.wanted;
	info->last_ns = max(run->seen_ns, info->gate.last_ns);
	info->idle_ns = run->last_ns ? now - min(now, max(run->last_ns, info->gate.last_ns)) : 0;
	info->held_ns = info->gate.shut_ns;
	info->used_us = div_u64(run->used_ns, NSEC_PER_USEC);
	info->tsgs = run->tsgs;
	info->channels_off = run->pause.channels;
	info->pause_err = run->pause.err;
	info->pause_status = run->pause.status;
	if (run->pause.off)
		info->state = DETSHARE_RUN_STATE_PAUSED;
	else if (info->gate.reasons)
		info->state = DETSHARE_RUN_STATE_GATED;
	else
		info->state = run->active || !run->watched ? DETSHARE_RUN_STATE_ACTIVE : DETSHARE_RUN_STATE_IDLE;
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

struct lookup {
	unsigned int index;
	struct ds_run_info *info;
};

static int at_index(struct ds_run *run, void *data)
{
	struct lookup *lookup = data;

	if (lookup->index--)
		return 0;
	fill(run, lookup->info);
	return 1;
}

bool ds_run_at(unsigned int index, struct ds_run_info *info)
{
	struct lookup lookup = { .index = index, .info = info };

	return ds_runs_each(at_index, &lookup);
}

unsigned int ds_run_count(void)
{
	return atomic_read(&run_count);
}

struct class_count {
	const char *class;
	u32 gpu;
	unsigned int runs;
};

static int count_of_class(struct ds_run *run, void *data)
{
	struct class_count *count = data;

	count->runs += !strcmp(run->rule.class, count->class) && (count->gpu == DS_ALL_GPUS || count->gpu == run->gpu);
	return 0;
}

unsigned int ds_run_count_class(const char *class, u32 gpu)
{
	struct class_count count = { .class = class, .gpu = gpu };

	ds_runs_each(count_of_class, &count);
	return count.runs;
}

/* ---- nobody is held --------------------------------------------------------------------- */

bool ds_runs_free(void)
{
	return READ_ONCE(let_go);
}

void ds_runs_set_free(bool free)
{
	WRITE_ONCE(let_go, free);
}

int ds_run_init(void (*init_lane)(struct ds_lane *lane))
{
	struct ds_lane *lane;

	queue = alloc_workqueue("detshare_lanes", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!queue)
		return -ENOMEM;
	for (lane = lanes; lane < lanes + ARRAY_SIZE(lanes); lane++) {
		lane->gpu = lane - lanes;
		mutex_init(&lane->members);
		INIT_LIST_HEAD(&lane->runs);
		spin_lock_init(&lane->lock);
		init_waitqueue_head(&lane->looked);
		init_lane(lane);
	}
	return 0;
}

void ds_run_exit(void (*exit_lane)(struct ds_lane *lane))
{
	struct ds_lane *lane;

	for (lane = lanes; lane < lanes + ARRAY_SIZE(lanes); lane++) {
		/* each starts the other; without runs the work item starts no timer */
		cancel_work_sync(&lane->work);
		hrtimer_cancel(&lane->timer);
		cancel_work_sync(&lane->work);
		exit_lane(lane);
	}
	destroy_workqueue(queue);
}
