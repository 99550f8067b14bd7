// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>

#include "alloc.h"
#include "busy.h"
#include "driver.h"
#include "events.h"
#include "filter.h"
#include "gpu.h"
#include "groups.h"
#include "pause.h"
#include "raw.h"
#include "rm/answer.h"
#include "rmcall.h"
#include "trace.h"
#include "userd.h"

/* More than any GPU has; what many ask for at once is still far from where an account's sums would wrap. */
#define BYTES_MAX (1ULL << 52)

/* What an allocation will be, and what was promised for it. */
struct plan {
	struct rm_alloc alloc;
	u32 parent;
	u32 gpu;
	struct ds_vctx *vctx;	/* who is charged */
	u64 charged;
	struct rm_memory *held;	/* memory that was there before and that the object keeps: one hold of vctx's payer */
};

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

/* The GPU on which an object below this parent will be. Under client->tree. */
static u32 gpu_below(struct ds_client *client, u32 parent)
{
	struct rm_object *object = rm_tree_find(&client->rm, parent);

	return object ? object->gpu : RM_GPU_NONE;
}

/*
 * Holds memory that the new object is to keep, for who is charged. 0; -ENOMEM, *refusal as in prepare(). Under client->tree and the
 * order of the file, so what the handle names stays what it is.
 */
static int hold_attached(struct ds_client *client, struct plan *plan, struct ds_refusal *refusal)
{
	struct rm_object *object = rm_tree_find(&client->rm, plan->alloc.attached);
	struct rm_account *refuser = NULL;
	int err;

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
static int prepare(struct ds_client *client, struct plan *plan, struct ds_refusal *refusal)
{
	struct rm_account *refuser = NULL;
	struct rm_view view;
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
		rm_payer_view(ds_vctx_payer(plan->vctx), &view);
		if (view.limit != RM_NO_LIMIT)
			return -EPERM;
	}
	err = rm_tree_reserve(&client->rm);
	if (err)
		return err;
	if (plan->alloc.vidmem) {
		plan->gpu = gpu;
		bytes = rm_round_up_request(&plan->alloc);
		rm_payer_view(ds_vctx_payer(plan->vctx), &view);
		/* a size that cannot be: who has no limit hears that from the driver */
		if (bytes > BYTES_MAX && view.limit == RM_NO_LIMIT)
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
static void abandon(struct ds_client *client, struct plan *plan)
{
	rm_payer_uncharge(ds_vctx_payer(plan->vctx), plan->charged);
	if (plan->held)
		rm_memory_drop(plan->held, ds_vctx_payer(plan->vctx));
	rm_tree_unreserve(&client->rm);
}

/* The driver made it, with `bytes` of memory. Under client->tree. */
static struct rm_object *insert(struct ds_client *client, struct plan *plan, u32 handle, u64 bytes)
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
static bool charge_more(struct plan *plan, u64 bytes, struct ds_refusal *refusal)
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
static bool nobody_pays(const struct plan *plan, u64 bytes)
{
	return plan->alloc.vidmem && !plan->alloc.fabric && bytes && plan->vctx->gpu == RM_GPU_NONE;
}

/* The raw interface that was noted by the handle asked for has been made, perhaps by another, or not. */
static void settle_raw(struct ds_call *call, const struct plan *plan, bool made)
{
	struct ds_client *client = call->client;
	struct rm_object *before;
	bool other;

	if (plan->alloc.kind != RM_KIND_BINAPI || (made && call->done.object == call->asked.object))
		return;
	if (made && ds_raw_new(client->rm.handle, call->done.object))
		pr_warn_once("no memory to note a raw interface of process %d\n", ds_process_nr(client->process));
	mutex_lock(&client->tree);
	before = rm_tree_find(&client->rm, call->asked.object);
	other = !before || before->kind != RM_KIND_BINAPI;
	mutex_unlock(&client->tree);
	if (other)
		ds_raw_gone(client->rm.handle, call->asked.object);
}

/*
 * From plan to object: the way that all allocations go. `bytes_of` tells what the driver took, from its answer. false: there is no new
 * object, whatever stands in the caller's block.
 */
static bool allocate(struct ds_call *call, struct plan *plan,
		     u64 (*bytes_of)(struct ds_call *call, const struct plan *plan))
{
	struct ds_client *client = call->client;
	struct rm_object *object;
	struct ds_refusal refusal;
	u64 bytes;
	int err;

	mutex_lock(&client->tree);
	err = prepare(client, plan, &refusal);
	mutex_unlock(&client->tree);
	/* known before anybody can use it */
	if (!err && plan->alloc.kind == RM_KIND_BINAPI && ds_raw_new(client->rm.handle, call->asked.object)) {
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
	if (plan->alloc.kind == RM_KIND_CHANNEL ? !ds_call_aside(call) : !ds_call_driver(call)) {
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

void ds_alloc_client(struct ds_call *call)
{
	u32 handle = call->done.object;
	struct ds_client *client = ds_client_of_file(call->known, handle);

	if (client)
		ds_client_remove(client);
	client = ds_client_add(call->known, handle, false);
	if (IS_ERR(client)) {
		ds_rm_free(handle, handle);
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
	}
}

static u64 answered_bytes(struct ds_call *call, const struct plan *plan)
{
	struct ds_frame *frame = call->frame;
	struct rm_alloc answer;

	if (!frame->answered || rm_decode_alloc(call->abi, plan->alloc.class, frame->params,
						frame->params_size, &answer))
		return plan->charged;
	return rm_answer_bytes(&plan->alloc, &answer);
}

/* What the filter does not let through is answered. */
static bool filtered(struct ds_call *call, const struct rm_alloc *alloc)
{
	unsigned int i;

	if (alloc->kind == RM_KIND_CHANNEL)
		return ds_filter_channel(call, alloc);
	if (alloc->kind == RM_KIND_COMPUTE || alloc->kind == RM_KIND_GR)
		return ds_filter_engine_object(call);
	if (ds_filter_object(call, alloc->kind, call->asked.object))
		return true;
	if (alloc->kind == RM_KIND_DEBUGGER && ds_filter_debugger(call))
		return true;
	for (i = 0; alloc->kind == RM_KIND_CTXDMA && i < alloc->n_deps; i++)
		if (ds_filter_gpu_map(call, alloc->deps[i]))
			return true;
	return false;
}

/* What was made is scheduled, paused and watched before its maker hears of it. */
static void follow(struct ds_call *call, const struct plan *plan)
{
	struct ds_client *client = call->client;
	u32 handle = call->done.object;

	switch (plan->alloc.kind) {
	case RM_KIND_TSG:
		ds_tsg_new(client, handle);
		break;
	case RM_KIND_CHANNEL:
		ds_userd_channel_new(client, plan->gpu, handle, &plan->alloc);
		ds_channel_new(client, handle);
		ds_pause_channel_new(client, handle);
		ds_busy_channel_new(client, handle);
		break;
	case RM_KIND_COMPUTE:
	case RM_KIND_GR:
	case RM_KIND_CTXSHARE:
		if (ds_tsg_part_new(client, handle))
			ds_busy_channel_new(client, plan->parent);
		break;
	case RM_KIND_SUBDEVICE:
		ds_gpu_seen(plan->gpu, client->rm.handle, handle);
		break;
	default:
		break;
	}
}

static void allocate_device(struct ds_call *call, struct plan *plan)
{
	struct ds_client *client = call->client;
	struct ds_vctx *vctx;

	plan->gpu = plan->alloc.device_id < RM_GPUS ? plan->alloc.device_id : RM_GPU_NONE;
	vctx = ds_vctx_get(client, plan->gpu);
	if (IS_ERR(vctx)) {
		ds_call_refuse(call, PTR_ERR(vctx) == -ENOSPC ? NV_ERR_INSUFFICIENT_RESOURCES :
								 NV_ERR_NO_MEMORY);
		return;
	}
	if (!allocate(call, plan, NULL)) {
		ds_vctx_unused(vctx);
		return;
	}
	mutex_lock(&client->tree);
	vctx->device = vctx->gpu != RM_GPU_NONE;
	mutex_unlock(&client->tree);
}

/*
 * Parameters in the serialised form cannot be read here. No driver of a known ABI has this form for any class: each refuses the call,
 * in its own words. One that makes an object all the same has to let go of it.
 */
static void allocate_serialised(struct ds_call *call)
{
	if (!ds_call_driver(call))
		return;
	ds_rm_free(call->client->rm.handle, call->done.object);
	ds_call_refuse(call, NV_ERR_NOT_SUPPORTED);
}

void ds_alloc(struct ds_call *call)
{
	struct plan plan = { .parent = call->asked.parent };
	u32 class = call->asked.class;
	u32 size;

	if (rm_class_is_root(class)) {
		if (ds_call_driver(call))
			ds_alloc_client(call);
		return;
	}
	if (!call->client) {
		ds_call_driver(call);
		return;
	}
	if (call->asked.flags & NVOS64_FLAGS_FINN_SERIALIZED) {
		allocate_serialised(call);
		return;
	}
	size = rm_alloc_params_size(call->abi, class);
	if (size && call->asked.params && ds_frame_read_params(call->frame, call->asked.params, size)) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	rm_decode_alloc(call->abi, class, call->frame->params, call->frame->params_size, &plan.alloc);
	plan.alloc.class = class;
	if (filtered(call, &plan.alloc))
		return;
	if (plan.alloc.kind == RM_KIND_DEVICE) {
		allocate_device(call, &plan);
		return;
	}
	mutex_lock(&call->client->tree);
	plan.gpu = gpu_below(call->client, plan.parent);
	mutex_unlock(&call->client->tree);
	if (allocate(call, &plan, answered_bytes))
		follow(call, &plan);
}

/*
 * The driver frees an object, the client itself perhaps. What is gone must not be taken for living because the caller's memory makes the answer
 * wait.
 */
static void let_go(struct ds_call *call, u32 handle)
{
	struct ds_client *client = call->client;

	if (!ds_call_aside(call) || !client)
		return;
	if (handle == client->rm.handle) {
		ds_client_remove(client);
		return;
	}
	mutex_lock(&client->tree);
	rm_tree_free(&client->rm, handle);
	mutex_unlock(&client->tree);
}

void ds_alloc_free(struct ds_call *call)
{
	let_go(call, call->asked.object);
}

/* ---- the legacy ways ------------------------------------------------------ */

static u64 vid_heap_bytes(struct ds_call *call, const struct plan *plan)
{
	struct rm_alloc answer;
	u32 handle;

	if (rm_decode_vid_heap(call->abi, call->frame->block, call->frame->size, &answer, &handle))
		return plan->charged;
	return rm_answer_bytes(&plan->alloc, &answer);
}

/* Atomic context: totals and free bytes as the limits allow. */
static void show_view(struct ds_frame *frame, void *block)
{
	rm_answer_vid_heap(ds_abi_outer(), frame->edit_data, block, frame->size);
}

static void see_view(struct ds_call *call, struct rm_view *view)
{
	struct ds_client *client = call->client;
	struct ds_vctx *vctx;
	u32 gpu;

	mutex_lock(&client->tree);
	gpu = gpu_below(client, call->asked.parent);
	vctx = ds_vctx_find(client, gpu == RM_GPU_NONE ? ds_client_first_gpu(client) : gpu);
	if (vctx) {
		rm_payer_view(ds_vctx_payer(vctx), view);
		call->frame->edit = show_view;
		call->frame->edit_data = view;
	}
	mutex_unlock(&client->tree);
}

void ds_alloc_vid_heap(struct ds_call *call)
{
	struct plan plan = { .parent = call->asked.parent };
	struct ds_client *client = call->client;
	struct rm_view view;
	u32 handle;

	if (!client) {
		ds_call_driver(call);
		return;
	}
	see_view(call, &view);
	if (!rm_decode_vid_heap(call->abi, call->frame->block, call->frame->size, &plan.alloc, &handle)) {
		mutex_lock(&client->tree);
		plan.gpu = gpu_below(client, plan.parent);
		mutex_unlock(&client->tree);
		allocate(call, &plan, vid_heap_bytes);
		return;
	}
	if (rm_decode_vid_heap_free(call->abi, call->frame->block, call->frame->size, &handle))
		ds_call_driver(call);
	else
		let_go(call, handle);
}

static u64 memory_bytes(struct ds_call *call, const struct plan *plan)
{
	struct rm_alloc answer;

	if (rm_decode_alloc_memory(call->abi, call->frame->block, call->frame->size, &answer))
		return plan->charged;
	return rm_answer_bytes(&plan->alloc, &answer);
}

void ds_alloc_memory(struct ds_call *call)
{
	struct plan plan = { .parent = call->asked.parent };

	if (!call->client) {
		ds_call_driver(call);
		return;
	}
	rm_decode_alloc_memory(call->abi, call->frame->block, call->frame->size, &plan.alloc);
	if (filtered(call, &plan.alloc))
		return;
	mutex_lock(&call->client->tree);
	plan.gpu = gpu_below(call->client, plan.parent);
	mutex_unlock(&call->client->tree);
	allocate(call, &plan, memory_bytes);
}

void ds_alloc_object(struct ds_call *call)
{
	struct plan plan = { .parent = call->asked.parent };

	if (rm_class_is_root(call->asked.class) && call->asked.op == RM_OP_ALLOC_OBJECT) {
		if (ds_call_driver(call))
			ds_alloc_client(call);
		return;
	}
	if (!call->client) {
		ds_call_driver(call);
		return;
	}
	rm_decode_alloc(call->abi, call->asked.class, NULL, 0, &plan.alloc);
	plan.alloc.class = call->asked.class;
	if (filtered(call, &plan.alloc))
		return;
	mutex_lock(&call->client->tree);
	if (call->asked.op == RM_OP_CTXDMA) {
		struct rm_object *memory = rm_tree_find(&call->client->rm, call->asked.src_object);

		/* it becomes a sibling of its memory and dies with it */
		if (memory)
			memory = rm_tree_parent(&call->client->rm, memory);
		plan.parent = memory ? memory->handle : call->client->rm.handle;
		plan.alloc.deps[0] = call->asked.src_object;
		plan.alloc.n_deps = 1;
	}
	plan.gpu = gpu_below(call->client, plan.parent);
	mutex_unlock(&call->client->tree);
	if (allocate(call, &plan, NULL))
		follow(call, &plan);
}
