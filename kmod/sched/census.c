// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>

#include "census.h"
#include "channels.h"
#include "class.h"
#include "client.h"
#include "orders.h"
#include "rmcall.h"
#include "entity.h"
#include "steered.h"

/* One that is shared with another client is its maker's, unless only who has the object in it can know that it computes. */
static bool is_makers(const struct rm_object *tsg)
{
	return tsg->flags & RM_OBJECT_DUP && (!tsg->engine || ds_engine_computes(tsg->engine));
}

static void count_client(struct ds_census *census, struct ds_client *client)
{
	struct rm_object *object = NULL;
	struct ds_managed *managed;
	bool fixed = ds_shares_groups(client->process);

	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		struct ds_target *target = &census->targets[census->count];

		if (!ds_tsg_computes(client, object) || is_makers(object))
			continue;
		if (census->count++ >= census->room)
			continue;
		managed = object->priv;
		*target = (struct ds_target){
			.process = ds_process_hold(client->process),
			.client = client->rm.handle,
			.tsg = object->handle,
			.gpu = object->gpu,
			.is.level = -1,
			.fixed = fixed,
		};
		if (managed)
			target->is = *managed;
	}
	mutex_unlock(&client->tree);
}

void ds_census_free(struct ds_census *census)
{
	unsigned int i;

	for (i = 0; i < min(census->count, census->room); i++)
		ds_process_put(census->targets[i].process);
	kvfree(census->targets);
	kvfree(census->shares);
}

static bool try_census(struct ds_census *census, unsigned int room)
{
	struct ds_client *client;

	*census = (struct ds_census){ .room = room };
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
static int take(struct ds_census *census)
{
	unsigned int room = 64;

	for (;;) {
		if (!try_census(census, room)) {
			ds_census_free(census);
			return -ENOMEM;
		}
		if (census->count <= census->room)
			return 0;
		room = census->count + 64;
		ds_census_free(census);
	}
}

static void decide(struct ds_census *census, struct ds_target *target, bool nothing)
{
	struct ds_share *share;
	struct ds_class row;
	struct ds_order order;
	u32 weight;

	target->want.level = -1;
	target->want.defaults = !nothing && ds_process_steered(target->process);
	if (nothing || !ds_orders_of(target->process, &order))
		return;
	target->want.managed = true;
	if (!order.class[0] || !ds_class_get(order.class, target->gpu, &row))
		row = (struct ds_class){ .level = -1 };
	target->want.level = order.level >= 0 ? order.level : row.level;
	target->want.tpc_percent = order.tpc_percent < 100 ? order.tpc_percent : 0;
	weight = order.weight ?: row.weight;
	if (row.turn_us)
		target->turn = ds_order_account(&order);
	/* a weight in a class with turns is a part of those */
	if (order.slice_us || !weight || row.turn_us) {
		target->want.slice = order.slice_us ?: row.slice_us;
		target->want.own = order.slice_us;
		return;
	}
	/* shares are slices of turns that are equally many */
	if (target->want.level < 0)
		target->want.level = NVA06C_CTRL_INTERLEAVE_LEVEL_MEDIUM;
	share = ds_share_of(census->shares, &census->shared, &(struct ds_share){
		.gpu = target->gpu, .kind = order.kind, .account = order.account, .weight = weight });
	share->tsgs++;
	target->share = share - census->shares + 1;
}

/* Does another channel group run at the same time, in turns? With slices shorter than a switch neither would get anything done. */
static bool has_rival(const struct ds_census *census, const struct ds_target *target)
{
	const struct ds_target *other;

	for_each_target(other, census)
		if (other != target && other->gpu == target->gpu && other->turn &&
		    (other->turn == target->turn || other->fixed || target->fixed))
			return true;
	return false;
}

/* Is a busy entity without a class there (rival.h)? */
static bool is_beside_rival(const struct ds_target *target)
{
	return target->gpu < RM_GPUS && READ_ONCE(ds_runq_at(target->gpu)->rotation.rival);
}

static void decide_all(struct ds_census *census, bool nothing)
{
	struct ds_target *target;

	for_each_target(target, census)
		decide(census, target, nothing);
	ds_shares_slices(census->shares, census->shared);
	for_each_target(target, census) {
		if (target->share)
			target->want.slice = census->shares[target->share - 1].slice_us;
		if (target->turn && !target->want.own && target->want.slice && target->want.slice < DS_SHARE_RIVAL_US &&
		    (has_rival(census, target) || is_beside_rival(target)))
			target->want.slice = DS_SHARE_RIVAL_US;
	}
}

int ds_census_take(struct ds_census *census, bool nothing)
{
	int err = take(census);

	if (!err)
		decide_all(census, nothing);
	return err;
}

bool ds_target_in_line(const struct ds_target *target)
{
	const struct ds_managed *is = &target->is;

	return !is->failed && is->slice == target->want.slice && is->level == target->want.level &&
	       is->tpc_percent == target->want.tpc_percent && is->defaults == target->want.defaults;
}
