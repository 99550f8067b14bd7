// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>

#include "ceiling.h"
#include "channels.h"
#include "client.h"
#include "enact.h"
#include "rmcall.h"
#include "entity.h"
#include "subdevice.h"

#define LEVEL_BEFORE NVA06C_CTRL_INTERLEAVE_LEVEL_MEDIUM	/* the driver's default; it cannot be asked */
#define SLICE_BEFORE_US 2048	/* the same, where the driver did not tell */

/*
 * The channel group, with ds_clients_lock and its client's tree locked; NULL, and nothing locked: it has gone, or its name
 * belongs to another process by now.
 */
static struct rm_object *lock_target(const struct ds_target *target, struct ds_client **client)
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

/* What the preemption mode of a channel group is set through. */
struct ground {
	bool context;	/* there is one */
	u32 device, subdevice;
};

/* Under client->tree. */
static void scan(const struct ds_client *client, const struct rm_object *tsg, struct ground *ground)
{
	*ground = (struct ground){
		.context = rm_tree_computes(&client->rm, tsg),
		.device = ds_device_of(client, tsg->gpu),
		.subdevice = ds_subdevice_of(client, tsg->gpu),
	};
}

/* What this driver does not know no program can have chosen. */
static u32 unless_unknown(u32 status)
{
	return status == NV_ERR_NOT_SUPPORTED || status == NV_ERR_INVALID_COMMAND ? NV_OK : status;
}

static u32 make_preemptible(const struct ds_target *target, const struct ground *ground)
{
	struct ds_subdevice made;
	u32 status;

	if (ground->subdevice)
		return ds_rm_preemptible(target->client, ground->subdevice, target->tsg);
	status = ds_subdevice_make(target->client, ground->device, &made);
	if (!status)
		status = ds_rm_preemptible(target->client, made.handle, target->tsg);
	ds_subdevice_done(&made);
	return status;
}

/* Who has no context yet chose nothing. Real time goes first: leaving it sets the level. */
static void restore_defaults(const struct ds_target *target, const struct ground *ground, struct ds_done *done)
{
	u32 status = NV_OK;
	u64 us;

	if (target->want.defaults && !target->is.defaults && ground->context) {
		status = unless_unknown(ds_rm_no_realtime(target->client, target->tsg));
		status = unless_unknown(make_preemptible(target, ground)) ?: status;
		/* a slice that is switched off still has its length, and begins to count when that is set */
		if (!target->want.slice && !ds_rm_get_slice(target->client, target->tsg, &us))
			status = ds_rm_set_slice(target->client, target->tsg, us ?: SLICE_BEFORE_US) ?: status;
	}
	done->defaults = !status;
	done->status = status;
}

static void set_slice(const struct ds_target *target, struct ds_done *done)
{
	u64 us = target->want.slice ?: target->is.slice_before;
	u32 status;

	done->slice_before = target->is.slice_before;
	if (!target->want.slice && !target->is.slice)
		return;
	if (!done->slice_before)
		ds_rm_get_slice(target->client, target->tsg, &done->slice_before);
	done->slice_before = done->slice_before ?: SLICE_BEFORE_US;
	status = ds_rm_set_slice(target->client, target->tsg, us ?: done->slice_before);
	done->slice = !status;
	done->status = done->status ?: status;
}

static void set_level(const struct ds_target *target, struct ds_done *done)
{
	s32 level = target->want.level;
	u32 status;

	if (level < 0 && target->is.level < 0)
		return;
	status = ds_rm_set_level(target->client, target->tsg, level >= 0 ? level : LEVEL_BEFORE);
	done->level = !status;
	done->status = done->status ?: status;
}

static void set_ceiling(const struct ds_target *target, struct ds_done *done)
{
	if (!target->want.tpc_percent && !target->is.tpc_percent)
		return;
	done->tpc_status = ds_ceiling_set(target->gpu, target->client, target->tsg, target->want.tpc_percent, &done->ceiling);
}

bool ds_done_again(const struct ds_done *done)
{
	/* a ceiling that cannot be had is told, not tried for ever */
	return done->status || ds_ceiling_again(done->tpc_status);
}

/* Under client->tree. */
static void write_down(const struct ds_target *target, const struct ds_done *done, struct ds_client *client, struct rm_object *tsg)
{
	struct ds_managed *managed = tsg->priv;
	struct ds_vctx *vctx = ds_vctx_find(client, tsg->gpu);

	if (!managed) {
		managed = tsg->priv = kzalloc(sizeof(*managed), GFP_KERNEL);
		if (!managed)
			return;
		managed->level = -1;
	}
	if (done->slice) {
		managed->slice_before = done->slice_before;
		managed->slice = target->want.slice;
	}
	if (done->level)
		managed->level = target->want.level;
	if (done->ceiling)
		managed->tpc_percent = target->want.tpc_percent;
	managed->ordered = target->want.managed;
	managed->defaults = target->want.defaults && done->defaults;
	managed->failed = ds_done_again(done);
	if (vctx && vctx->entity)
		ds_entity_turns(vctx->entity, managed->slice, managed->level);
	/* what could not be put back is kept in mind */
	if (!target->want.managed && !target->want.defaults && !managed->failed) {
		kfree(managed);
		tsg->priv = NULL;
	}
}

void ds_target_enact(const struct ds_target *target, struct ds_done *done)
{
	struct ds_client *client;
	struct rm_object *tsg;
	struct ground ground;

	*done = (struct ds_done){ 0 };
	tsg = lock_target(target, &client);
	if (!tsg)
		return;
	scan(client, tsg, &ground);
	unlock_target(client);
	restore_defaults(target, &ground, done);
	set_slice(target, done);
	set_level(target, done);
	set_ceiling(target, done);
	tsg = lock_target(target, &client);
	if (!tsg) {
		*done = (struct ds_done){ 0 };
		return;
	}
	write_down(target, done, client, tsg);
	unlock_target(client);
}
