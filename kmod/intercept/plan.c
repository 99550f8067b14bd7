// SPDX-License-Identifier: GPL-2.0-only
#include "plan.h"
#include "raw.h"
#include "rm/answer.h"
#include "rmcall.h"
#include "runq.h"
#include "trace.h"

/* More than any GPU has; what many ask for at once is still far from where an account's sums would wrap. */
#define BYTES_MAX (1ULL << 52)

void ds_alloc_refused(struct ds_call *call, struct ds_vctx *vctx, const struct ds_refusal *refusal)
{
	if (refusal) {
		const struct ds_event_vctx event = ds_vctx_event(vctx);

		atomic64_inc(&vctx->refused);
		ds_event_refused(&event, refusal);
		trace_detshare_refused(&event, refusal);
	}
	ds_call_refuse(call, NV_ERR_NO_MEMORY);
}

u32 ds_gpu_below(struct ds_client *client, u32 parent)
{
	struct rm_object *object = rm_tree_find(&client->rm, parent);

	return object ? object->gpu : RM_GPU_NONE;
}

static bool is_limited(struct ds_vctx *vctx)
{
	struct rm_view view;

	if (!vctx)
		return false;
	rm_payer_view(ds_vctx_payer(vctx), &view);
	return view.limit != RM_NO_LIMIT;
}

/*
 * Holds memory that the new object is to keep, for who is charged. 0; -EPERM; -ENOMEM, *refusal as in prepare(). Under client->tree and the
 * order of the file, so what the handle names stays what it is.
 */
static int hold_attached(struct ds_client *client, struct ds_plan *plan, struct ds_refusal *refusal)
{
	struct rm_object *object = rm_tree_find(&client->rm, plan->alloc.attached);
	struct rm_account *refuser = NULL;
	int err;

	/* an object pays on its own GPU: what it keeps of another's would be counted here, and there no more */
	if (object && object->gpu < RM_GPUS && object->gpu != plan->vctx->gpu && rm_object_bytes(object) &&
	    (is_limited(plan->vctx) || is_limited(ds_vctx_find(client, object->gpu))))
		return -EPERM;
	err = object ? rm_memory_share(&client->rm, object, &plan->held) : -ENOENT;
	if (err)
		return err == -ENOENT ? 0 : err;
	err = rm_memory_hold(plan->held, ds_vctx_payer(plan->vctx), &refuser);
	if (err && refuser)
		ds_refusal_fill(refusal, refuser, rm_memory_bytes(plan->held));
	if (err)
		plan->held = NULL;
	else
		plan->gpu = plan->vctx->gpu;
	return err;
}

/*
 * Reserves and charges. 0; else *refusal, if its asked is set, says who refused. Under client->tree.
 */
static int prepare(struct ds_client *client, struct ds_plan *plan, struct ds_refusal *refusal)
{
	struct rm_account *refuser = NULL;
	u32 gpu = plan->gpu;
	u64 bytes;
	int err;

	refusal->asked = 0;
	/* what belongs to no GPU takes its memory somewhere */
	if (gpu == RM_GPU_NONE && (plan->alloc.vidmem || plan->alloc.window || plan->alloc.attached))
		gpu = ds_client_first_gpu(client);
	plan->vctx = ds_vctx_find(client, gpu);
	if (!plan->vctx) {
		/* below nothing that we know: the driver will refuse it, in its own words */
		gpu = RM_GPU_NONE;
		plan->vctx = ds_vctx_find(client, gpu);
	}
	if (plan->alloc.window) {
		/* a view of everybody's memory is not for who is limited */
		if (is_limited(plan->vctx))
			return -EPERM;
	}
	err = rm_tree_reserve(&client->rm);
	if (err)
		return err;
	if (plan->alloc.vidmem) {
		plan->gpu = gpu;
		bytes = rm_round_up_request(&plan->alloc);
		/* a size that cannot be: who has no limit hears that from the driver */
		if (bytes > BYTES_MAX && !is_limited(plan->vctx))
			bytes = 0;
		err = rm_payer_charge(ds_vctx_payer(plan->vctx), bytes, &refuser);
		if (!err)
			plan->charged = bytes;
		else if (refuser)
			ds_refusal_fill(refusal, refuser, plan->alloc.bytes);
	} else if (plan->alloc.attached) {
		err = hold_attached(client, plan, refusal);
	}
	if (err)
		rm_tree_unreserve(&client->rm);
	return err;
}

/* Nothing came of it. Under client->tree. */
static void abandon(struct ds_client *client, struct ds_plan *plan)
{
	rm_payer_uncharge(ds_vctx_payer(plan->vctx), plan->charged);
	if (plan->held)
		rm_memory_drop(plan->held, ds_vctx_payer(plan->vctx));
	rm_tree_unreserve(&client->rm);
}

/* The driver made it, with `bytes` of memory. Under client->tree. */
static struct rm_object *insert(struct ds_client *client, struct ds_plan *plan, u32 handle, u64 bytes)
{
	struct rm_insert insert = {
		.handle = handle,
		.parent = plan->parent,
		.class = plan->alloc.class,
		.engine = plan->alloc.engine,
		.gpu = plan->gpu,
		.memory = plan->held,
		.deps = plan->alloc.deps,
		.n_deps = plan->alloc.n_deps,
	};

	if (plan->alloc.vidmem)
		insert.bytes = rm_payer_settle(ds_vctx_payer(plan->vctx), plan->charged, bytes);
	return rm_tree_insert(&client->rm, &insert);
}

/*
 * The driver took more than was charged, so it acted on something else than we saw. false: that much is not granted. Under
 * client->tree.
 */
static bool charge_more(struct ds_plan *plan, u64 bytes, struct ds_refusal *refusal)
{
	struct rm_account *refuser = NULL;

	if (!rm_payer_charge(ds_vctx_payer(plan->vctx), bytes - plan->charged, &refuser)) {
		plan->charged = bytes;
		return true;
	}
	if (refuser)
		ds_refusal_fill(refusal, refuser, bytes);
	return false;
}

/* Memory of a GPU that the client has no device on, as far as we know: the driver should not have granted it. */
static bool nobody_pays(const struct ds_plan *plan, u64 bytes)
{
	return plan->alloc.vidmem && !plan->alloc.fabric && bytes && plan->vctx->gpu == RM_GPU_NONE;
}

/* The raw interface that was noted by the handle asked for has been made, perhaps by another, or not. */
static void settle_raw(struct ds_call *call, const struct ds_plan *plan, bool made)
{
	struct ds_client *client = call->client;
	struct rm_object *before;
	bool other;

	if (plan->alloc.kind != RM_KIND_BINAPI || (made && call->done.object == call->asked.object))
		return;
	if (made && ds_raw_new(client, call->done.object, true))
		pr_warn_once("no memory to note a raw interface of process %d\n", ds_process_nr(client->process));
	mutex_lock(&client->tree);
	before = rm_tree_find(&client->rm, call->asked.object);
	other = !before || before->kind != RM_KIND_BINAPI;
	mutex_unlock(&client->tree);
	if (other)
		ds_raw_gone(client, call->asked.object);
}

bool ds_plan_allocate(struct ds_call *call, struct ds_plan *plan, u64 (*bytes_of)(struct ds_call *call, const struct ds_plan *plan))
{
	struct ds_client *client = call->client;
	struct rm_object *object;
	struct ds_refusal refusal;
	u64 bytes;
	int err;

	/* what could not be held or paused is not made */
	if ((plan->alloc.kind == RM_KIND_TSG || plan->alloc.kind == RM_KIND_CHANNEL) && !ds_entity_room(client, plan->gpu)) {
		ds_call_refuse(call, NV_ERR_INSUFFICIENT_RESOURCES);
		return false;
	}
	mutex_lock(&client->tree);
	err = prepare(client, plan, &refusal);
	mutex_unlock(&client->tree);
	/* known before anybody can use it */
	if (!err && plan->alloc.kind == RM_KIND_BINAPI && ds_raw_new(client, call->asked.object, false)) {
		mutex_lock(&client->tree);
		abandon(client, plan);
		mutex_unlock(&client->tree);
		err = -ENOMEM;
	}
	if (err) {
		ds_alloc_refused(call, plan->vctx, refusal.asked ? &refusal : NULL);
		return false;
	}
	/* nobody works with a channel that a pause does not know, because the caller's memory makes the answer wait */
	if (plan->alloc.kind == RM_KIND_CHANNEL ? !ds_call_deferred(call) : !ds_call_driver(call)) {
		mutex_lock(&client->tree);
		abandon(client, plan);
		mutex_unlock(&client->tree);
		settle_raw(call, plan, false);
		return false;
	}
	bytes = bytes_of ? bytes_of(call, plan) : plan->charged;
	settle_raw(call, plan, true);
	mutex_lock(&client->tree);
	if (nobody_pays(plan, bytes) ||
	    (bytes > plan->charged && !charge_more(plan, bytes, &refusal))) {
		abandon(client, plan);
		mutex_unlock(&client->tree);
		ds_rm_free(client->rm.handle, call->done.object);
		ds_alloc_refused(call, plan->vctx, refusal.asked ? &refusal : NULL);
		return false;
	}
	object = insert(client, plan, call->done.object, bytes);
	if (object && object->kind == RM_KIND_TSG)
		ds_client_tell_tsg(DETSHARE_CMD_TSG_NEW, client, object);
	if (object && object->kind == RM_KIND_MPS)
		client->mps = true;
	mutex_unlock(&client->tree);
	return object;
}
