// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>

#include "change.h"
#include "channels.h"
#include "groups.h"
#include "runq.h"
#include "orders.h"
#include "pause.h"
#include "sched.h"
#include "steered.h"

/* The GPU that it is scheduled on, whatever its engine; RM_GPU_NONE: it is not. Under client->tree. */
static u32 scheduled_on(const struct rm_object *object)
{
	if (!object || object->gpu >= RM_GPUS)
		return RM_GPU_NONE;
	return object->kind == RM_KIND_CHANNEL || object->kind == RM_KIND_TSG ? object->gpu : RM_GPU_NONE;
}

/*
 * The client has an entity on the object's GPU from here on, so that holds and pauses reach it. false: the object is no channel group that
 * computes.
 */
static bool take_in(struct ds_client *client, u32 handle)
{
	struct rm_object *object;
	bool computes;
	u32 gpu;

	mutex_lock(&client->tree);
	object = rm_tree_find(&client->rm, handle);
	gpu = scheduled_on(object);
	computes = object && ds_tsg_computes(client, object);
	mutex_unlock(&client->tree);
	if (gpu == RM_GPU_NONE)
		return false;
	if (!ds_entity_of(client, gpu))
		pr_warn_ratelimited("no memory to schedule client %#x of process %d\n", client->rm.handle,
				    ds_process_nr(client->process));
	ds_entity_count_tsgs(client, gpu);
	return computes;
}

void ds_tsg_new(struct ds_client *client, u32 handle)
{
	if (take_in(client, handle) && ds_process_managed(client->process))
		ds_sched_apply_tsg(client, handle);
}

void ds_channel_new(struct ds_client *client, u32 handle)
{
	take_in(client, handle);
}

static bool has_ceiling(struct ds_process *process)
{
	struct ds_order order;

	return ds_orders_of(process, &order) && order.tpc_percent;
}

bool ds_tsg_part_new(struct ds_client *client, u32 handle)
{
	struct rm_object *object;
	bool computes = false;
	u32 tsg = 0;

	mutex_lock(&client->tree);
	object = rm_tree_find(&client->rm, handle);
	while (object && object->kind != RM_KIND_TSG)
		object = rm_tree_parent(&client->rm, object);
	if (object) {
		tsg = object->handle;
		/* not by its engine, so by what was made in it */
		computes = !ds_engine_computes(object->engine) && ds_tsg_computes(client, object);
	}
	mutex_unlock(&client->tree);
	if (!tsg)
		return false;
	if (computes)
		take_in(client, tsg);
	/* what it set while it did not compute may have to be set back, too */
	if (computes ? ds_process_steered(client->process) : has_ceiling(client->process))
		ds_sched_apply_tsg(client, tsg);
	return computes;
}

void ds_tsgs_found(struct ds_client *client)
{
	u32 gpus[RM_GPUS], count = 0, gpu, i;
	struct rm_object *object = NULL;

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		gpu = scheduled_on(object);
		if (gpu == RM_GPU_NONE)
			continue;
		for (i = 0; i < count && gpus[i] != gpu; i++)
			;
		if (i == count)
			gpus[count++] = gpu;
	}
	mutex_unlock(&client->tree);
	for (i = 0; i < count; i++) {
		ds_entity_of(client, gpus[i]);
		ds_entity_count_tsgs(client, gpus[i]);
	}
	if (count && ds_process_managed(client->process))
		ds_sched_again();
}

/* Under client->tree. */
static void tsg_gone(struct ds_client *client, struct rm_object *tsg)
{
	bool managed = tsg->priv;
	struct ds_vctx *vctx = ds_vctx_find(client, tsg->gpu);

	kfree(tsg->priv);
	tsg->priv = NULL;
	if (vctx && vctx->entity && ds_tsg_computes(client, tsg))
		ds_entity_tsg_gone(vctx->entity);
	/* what it had of a weight goes to its siblings */
	if (managed)
		ds_sched_again();
}

/* Under client->tree. */
static void object_gone(struct ds_client *client, struct rm_object *object)
{
	if (object->kind == RM_KIND_TSG)
		tsg_gone(client, object);
	if (object->kind == RM_KIND_CHANNEL)
		ds_pause_channel_gone(client, object);
}

static void follow_now(void)
{
	ds_runqs_settle();
	ds_sched_again();
}

static void follow_soon(void)
{
	ds_runqs_stale();
	ds_sched_again();
}

int ds_groups_init(void)
{
	static const struct ds_rules_follower follower = {
		.now = follow_now,
		.soon = follow_soon,
		.process = ds_sched_follow,
	};
	static const struct ds_client_observer observer = {
		.object_gone = object_gone,
		.vctx_gone = ds_entity_drop,
	};

	ds_client_observe(DS_OBSERVER_SCHED, &observer);
	ds_rules_on_change(&follower);
	return 0;
}
