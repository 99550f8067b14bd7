// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>

#include "activity.h"
#include "busy.h"
#include "gangs.h"
#include "rows.h"
#include "runq.h"
#include "scan.h"
#include "pause.h"
#include "spend.h"
#include "usage.h"

static struct ds_entity *make_entity(const struct ds_client *client, const struct ds_vctx *vctx)
{
	struct ds_entity *entity = ds_entity_make(client, vctx, ds_activity_kicked);

	if (!entity)
		return NULL;
	ds_pause_init_entity(entity);
	ds_busy_init_entity(entity);
	return entity;
}

static void join(struct ds_entity *entity)
{
	struct ds_runq *runq = entity->runq;
	unsigned long flags;

	mutex_lock(&runq->members);
	spin_lock_irqsave(&runq->lock, flags);
	list_add_tail(&entity->link, &runq->entities);
	runq->stale = true;
	spin_unlock_irqrestore(&runq->lock, flags);
	mutex_unlock(&runq->members);
	/* what holds for its process holds for it before its maker goes on */
	ds_runq_settle_killable(runq);
}

bool ds_entity_room(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx;
	bool needs;

	if (gpu >= RM_GPUS)
		return true;
	mutex_lock(&client->tree);
	vctx = ds_vctx_find(client, gpu);
	needs = vctx && !vctx->entity;
	mutex_unlock(&client->tree);
	return !needs || ds_bound_room(DS_BOUND_RUNS, gpu, client->who);
}

struct ds_entity *ds_entity_of(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx;
	struct ds_entity *entity;

	if (gpu >= RM_GPUS)
		return NULL;
	mutex_lock(&client->tree);
	vctx = ds_vctx_find(client, gpu);
	entity = vctx ? vctx->entity : NULL;
	mutex_unlock(&client->tree);
	if (entity || !vctx)
		return entity;
	/* order is held: nobody else makes it, and the vCtx stays */
	entity = make_entity(client, vctx);
	if (!entity)
		return NULL;
	mutex_lock(&client->tree);
	vctx->entity = entity;
	mutex_unlock(&client->tree);
	join(entity);
	return entity;
}

void ds_entity_drop(struct ds_vctx *vctx)
{
	struct ds_entity *entity = vctx->entity;
	unsigned long flags;

	if (!entity)
		return;
	vctx->entity = NULL;
	mutex_lock(&entity->runq->members);
	if (ds_bucket_on())
		ds_bucket_pay(entity, ds_usage_end(entity, ktime_get_ns()));
	spin_lock_irqsave(&entity->runq->lock, flags);
	ds_row_del(&entity->link);
	entity->gone = true;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
	/* no scan shuts it any more: before the next one its doors are those of whoever uses them */
	ds_gate_leave(entity->gate);
	mutex_unlock(&entity->runq->members);
	ds_pause_drop_entity(entity);
	/* whom it held, or was held for */
	ds_runq_scan(entity->runq);
	ds_entity_put(entity);
}

void ds_runq_tell(u32 gpu, struct ds_rotation_info *info)
{
	struct ds_runq *runq = ds_runq_at(gpu);

	mutex_lock(&runq->members);
	ds_rotation_tell(runq, info);
	mutex_unlock(&runq->members);
}

/* ---- nobody is held --------------------------------------------------------------------- */

static int wait_resumed(struct ds_entity *entity, void *data)
{
	bool *patient = data;

	/*
	 * nobody kills who unloads or suspends here: the driver answers, or the retry gives up. Others had the time of the first one that is given
	 * up: of a GPU that is lost none comes back
	 */
	*patient &= ds_pause_wait_resumed(entity, *patient);
	return 0;
}

void ds_entities_let_go(void)
{
	bool patient = true;

	ds_entities_set_free(true);
	ds_runqs_settle();
	ds_entities_each(wait_resumed, &patient);
}

void ds_entities_take_back(void)
{
	ds_entities_set_free(false);
	ds_runqs_stale();
}

static int forget(struct ds_entity *entity, void *unused)
{
	ds_pause_forget(entity);
	flush_work(&entity->busy.work);
	return 0;
}

void ds_entities_forget(void)
{
	ds_entities_each(forget, NULL);
}

int ds_runq_init(void)
{
	return ds_entity_init(ds_scan_init_runq);
}

void ds_runq_exit(void)
{
	ds_entity_exit(ds_rotation_exit);
	ds_gangs_exit();
}
