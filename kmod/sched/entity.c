// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/slab.h>

#include "channels.h"
#include "entity.h"
#include "rmcall.h"

static struct ds_runq runqs[RM_GPUS];
/* Not bound to the processor of who launched: the look that a launch asks for does not delay the launch. */
static struct workqueue_struct *queue;
static bool let_go;
static atomic_t entity_count;

/* ---- runqs ------------------------------------------------------------------- */

void ds_runq_scan(struct ds_runq *runq)
{
	queue_work(queue, &runq->work);
}

static bool is_used(struct ds_runq *runq)
{
	unsigned long flags;
	bool used;

	spin_lock_irqsave(&runq->lock, flags);
	used = !list_empty(&runq->entities);
	runq->stale |= used;
	spin_unlock_irqrestore(&runq->lock, flags);
	return used;
}

void ds_runqs_stale(void)
{
	struct ds_runq *runq;

	for (runq = runqs; runq < runqs + ARRAY_SIZE(runqs); runq++)
		if (is_used(runq))
			ds_runq_scan(runq);
}

/* The number of a scan that begins from here on, which is asked for. */
static u64 ask_for_scan(struct ds_runq *runq)
{
	unsigned long flags;
	u64 next;

	spin_lock_irqsave(&runq->lock, flags);
	next = runq->begun + 1;
	spin_unlock_irqrestore(&runq->lock, flags);
	ds_runq_scan(runq);
	return next;
}

static bool has_scanned(struct ds_runq *runq, u64 scan)
{
	unsigned long flags;
	bool has;

	spin_lock_irqsave(&runq->lock, flags);
	has = runq->done >= scan;
	spin_unlock_irqrestore(&runq->lock, flags);
	return has;
}

bool ds_runqs_settle(void)
{
	u64 until = jiffies + DS_RM_PATIENCE, scans[RM_GPUS];
	struct ds_runq *runq;
	bool settled = true;

	ds_runqs_stale();
	for (runq = runqs; runq < runqs + ARRAY_SIZE(runqs); runq++)
		scans[runq->gpu] = is_used(runq) ? ask_for_scan(runq) : 0;
	for (runq = runqs; runq < runqs + ARRAY_SIZE(runqs); runq++) {
		u64 scan = scans[runq->gpu];

		if (!scan || wait_event_timeout(runq->scanned, has_scanned(runq, scan), ds_rm_patience(until)))
			continue;
		settled = false;
		pr_warn_ratelimited("on GPU %u what was ordered is not in force after %u s and nobody waits longer: it comes into force when the work item goes on, which `echo w >/proc/sysrq-trigger` shows in the log (workqueue detshare_runqs)\n",
				    runq->gpu, DS_RM_PATIENCE / HZ);
	}
	return settled;
}

bool ds_runq_settle_killable(struct ds_runq *runq)
{
	u64 scan = ask_for_scan(runq);

	return !wait_event_killable(runq->scanned, has_scanned(runq, scan));
}

struct ds_runq *ds_runq_at(u32 gpu)
{
	return &runqs[gpu];
}

int ds_entities_each(int (*tell)(struct ds_entity *entity, void *data), void *data)
{
	struct ds_runq *runq;
	struct ds_entity *entity;
	int err = 0;

	for (runq = runqs; !err && runq < runqs + ARRAY_SIZE(runqs); runq++) {
		mutex_lock(&runq->members);
		list_for_each_entry(entity, &runq->entities, link) {
			err = tell(entity, data);
			if (err)
				break;
		}
		mutex_unlock(&runq->members);
	}
	return err;
}

/* ---- entities ---------------------------------------------------------------------- */

struct ds_entity *ds_entity_hold(struct ds_entity *entity)
{
	refcount_inc(&entity->refs);
	return entity;
}

void ds_entity_put(struct ds_entity *entity)
{
	if (!entity || !refcount_dec_and_test(&entity->refs))
		return;
	ds_gate_put(entity->gate);
	ds_process_put(entity->process);
	atomic_dec(&entity_count);
	kfree(entity);
}

struct ds_entity *ds_entity_make(const struct ds_client *client, const struct ds_vctx *vctx, ds_kicked_fn kicked)
{
	struct ds_entity *entity = kzalloc(sizeof(*entity), GFP_KERNEL_ACCOUNT);

	if (!entity)
		return NULL;
	refcount_set(&entity->refs, 1);
	entity->runq = &runqs[vctx->gpu];
	entity->gpu = vctx->gpu;
	entity->client = client->rm.handle;
	entity->vctx = vctx->id;
	entity->level = -1;
	entity->gate = ds_gate_new(entity->gpu, client->process->pid, client->who, kicked, entity);
	if (!entity->gate) {
		kfree(entity);
		return NULL;
	}
	entity->process = ds_process_hold(client->process);
	atomic_inc(&entity_count);
	return entity;
}

struct ds_client *ds_entity_client_lock(const struct ds_entity *entity)
{
	struct ds_client *client;
	struct ds_vctx *vctx;
	bool same = false;

	down_read(&ds_clients_lock);
	client = ds_client_find(entity->client);
	if (client && client->process == entity->process) {
		mutex_lock(&client->tree);
		vctx = ds_vctx_find(client, entity->gpu);
		same = vctx && vctx->entity == entity;
		mutex_unlock(&client->tree);
	}
	if (same)
		return client;
	up_read(&ds_clients_lock);
	return NULL;
}

void ds_entity_client_unlock(void)
{
	up_read(&ds_clients_lock);
}

void ds_entity_event(const struct ds_entity *entity, struct ds_event_entity *event)
{
	*event = (struct ds_event_entity){
		.vctx = entity->vctx,
		.pid = ds_process_nr(entity->process),
		.gpu = entity->gpu,
		.client = entity->client,
	};
}

/* ---- channel groups --------------------------------------------------------------- */

void ds_entity_count_tsgs(struct ds_client *client, u32 gpu)
{
	struct rm_object *object = NULL;
	unsigned int count = 0;
	struct ds_vctx *vctx;
	unsigned long flags;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object)))
		count += object->gpu == gpu && ds_tsg_computes(client, object);
	vctx = ds_vctx_find(client, gpu);
	if (vctx && vctx->entity) {
		spin_lock_irqsave(&vctx->entity->runq->lock, flags);
		vctx->entity->tsgs = count;
		spin_unlock_irqrestore(&vctx->entity->runq->lock, flags);
	}
	mutex_unlock(&client->tree);
}

void ds_entity_tsg_gone(struct ds_entity *entity)
{
	unsigned long flags;

	spin_lock_irqsave(&entity->runq->lock, flags);
	entity->tsgs -= !!entity->tsgs;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
}

void ds_entity_turns(struct ds_entity *entity, u64 slice_us, s32 level)
{
	unsigned long flags;

	spin_lock_irqsave(&entity->runq->lock, flags);
	entity->slice_us = slice_us;
	entity->level = level;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
}

/* ---- for people --------------------------------------------------------------------- */

static void fill(struct ds_entity *entity, struct ds_entity_info *info)
{
	u64 now = ktime_get_ns();
	unsigned long flags;

	memset(info, 0, sizeof(*info));
	ds_gate_stats(entity->gate, &info->gate);
	info->process = ds_process_hold(entity->process);
	info->vctx = entity->vctx;
	info->gpu = entity->gpu;
	info->client = entity->client;
	spin_lock_irqsave(&entity->runq->lock, flags);
	info->rule = entity->rule;
	info->reasons = info->gate.reasons | entity->pause.wanted;
	info->last_ns = max(entity->seen_ns, info->gate.last_ns);
	info->idle_ns = entity->last_ns ? now - min(now, max(entity->last_ns, info->gate.last_ns)) : 0;
	info->held_ns = info->gate.shut_ns;
	info->used_us = div_u64(entity->used_ns, NSEC_PER_USEC);
	info->tsgs = entity->tsgs;
	info->channels_off = entity->pause.channels;
	info->pause_err = entity->pause.err;
	info->pause_status = entity->pause.status;
	if (entity->pause.off)
		info->state = DETSHARE_ENTITY_STATE_PAUSED;
	else if (info->gate.reasons)
		info->state = DETSHARE_ENTITY_STATE_GATED;
	else
		info->state = entity->active || !entity->watched ? DETSHARE_ENTITY_STATE_ACTIVE : DETSHARE_ENTITY_STATE_IDLE;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
}

struct lookup {
	unsigned int index;
	struct ds_entity_info *info;
};

static int at_index(struct ds_entity *entity, void *data)
{
	struct lookup *lookup = data;

	if (lookup->index--)
		return 0;
	fill(entity, lookup->info);
	return 1;
}

bool ds_entity_at(unsigned int index, struct ds_entity_info *info)
{
	struct lookup lookup = { .index = index, .info = info };

	return ds_entities_each(at_index, &lookup);
}

unsigned int ds_entity_count(void)
{
	return atomic_read(&entity_count);
}

struct class_count {
	const char *class;
	u32 gpu;
	unsigned int entities;
};

static int count_of_class(struct ds_entity *entity, void *data)
{
	struct class_count *count = data;

	count->entities += !strcmp(entity->rule.class, count->class) && (count->gpu == DS_ALL_GPUS || count->gpu == entity->gpu);
	return 0;
}

unsigned int ds_entity_count_class(const char *class, u32 gpu)
{
	struct class_count count = { .class = class, .gpu = gpu };

	ds_entities_each(count_of_class, &count);
	return count.entities;
}

/* ---- nobody is held --------------------------------------------------------------------- */

bool ds_entities_free(void)
{
	return READ_ONCE(let_go);
}

void ds_entities_set_free(bool free)
{
	WRITE_ONCE(let_go, free);
}

int ds_entity_init(void (*init_runq)(struct ds_runq *runq))
{
	struct ds_runq *runq;

	queue = alloc_workqueue("detshare_runqs", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!queue)
		return -ENOMEM;
	for (runq = runqs; runq < runqs + ARRAY_SIZE(runqs); runq++) {
		runq->gpu = runq - runqs;
		mutex_init(&runq->members);
		INIT_LIST_HEAD(&runq->entities);
		spin_lock_init(&runq->lock);
		init_waitqueue_head(&runq->scanned);
		init_runq(runq);
	}
	return 0;
}

void ds_entity_exit(void (*exit_runq)(struct ds_runq *runq))
{
	struct ds_runq *runq;

	for (runq = runqs; runq < runqs + ARRAY_SIZE(runqs); runq++) {
		/* each starts the other; without entities the work item starts no timer */
		cancel_work_sync(&runq->work);
		hrtimer_cancel(&runq->timer);
		cancel_work_sync(&runq->work);
		exit_runq(runq);
	}
	destroy_workqueue(queue);
}
