// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>

#include "alloc.h"
#include "busy.h"
#include "contexts.h"
#include "driver.h"
#include "filter.h"
#include "gpu.h"
#include "groups.h"
#include "lost.h"
#include "pause.h"
#include "plan.h"
#include "rm/answer.h"
#include "rmcall.h"
#include "userd.h"

void ds_alloc_client(struct ds_call *call)
{
	u32 handle = call->done.object;
	struct ds_client *client = ds_client_of_file(call->known, handle);

	if (client)
		ds_client_remove(client);
	client = ds_client_add(call->known, handle, false);
	if (IS_ERR(client)) {
		ds_rm_free(handle, handle);
		ds_call_refuse(call, PTR_ERR(client) == -EDQUOT ? NV_ERR_INSUFFICIENT_RESOURCES : NV_ERR_NO_MEMORY);
	}
}

static u64 answered_bytes(struct ds_call *call, const struct ds_plan *plan)
{
	struct ds_shadow *shadow = call->shadow;
	struct rm_alloc answer;

	if (!shadow->answered || rm_decode_alloc(call->abi, plan->alloc.class, shadow->params,
						shadow->params_size, &answer))
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
static void follow(struct ds_call *call, const struct ds_plan *plan)
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

static void allocate_device(struct ds_call *call, struct ds_plan *plan)
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
	if (!ds_plan_allocate(call, plan, NULL)) {
		ds_vctx_unused(vctx);
		return;
	}
	mutex_lock(&client->tree);
	vctx->device = vctx->gpu != RM_GPU_NONE;
	mutex_unlock(&client->tree);
}

static void allocate_group(struct ds_call *call, struct ds_plan *plan)
{
	struct ds_context context;
	struct ds_vctx *vctx;
	bool made;

	if (!ds_context_begin(&context, call->client->process, plan->gpu)) {
		mutex_lock(&call->client->tree);
		vctx = ds_vctx_find(call->client, plan->gpu);
		mutex_unlock(&call->client->tree);
		if (vctx)
			atomic64_inc(&vctx->refused);
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	made = ds_plan_allocate(call, plan, answered_bytes);
	ds_context_end(&context);
	if (made)
		follow(call, plan);
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
	struct ds_plan plan = { .parent = call->asked.parent };
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
	if (size && call->asked.params && ds_shadow_read_params(call->shadow, call->asked.params, size)) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	rm_decode_alloc(call->abi, class, call->shadow->params, call->shadow->params_size, &plan.alloc);
	plan.alloc.class = class;
	if (filtered(call, &plan.alloc))
		return;
	if (plan.alloc.kind == RM_KIND_DEVICE) {
		allocate_device(call, &plan);
		return;
	}
	mutex_lock(&call->client->tree);
	plan.gpu = ds_gpu_below(call->client, plan.parent);
	mutex_unlock(&call->client->tree);
	if (plan.alloc.kind == RM_KIND_TSG)
		allocate_group(call, &plan);
	else if (ds_plan_allocate(call, &plan, answered_bytes))
		follow(call, &plan);
}

/*
 * The driver frees an object, the client itself perhaps. What is gone must not be taken for living because the caller's memory makes the answer
 * wait.
 */
static void let_go(struct ds_call *call, u32 handle)
{
	struct ds_client *client = call->client;
	struct rm_object *object;
	bool space, unseen;

	if (!ds_call_deferred(call) || !client)
		return;
	if (handle == client->rm.handle) {
		ds_client_remove(client);
		return;
	}
	mutex_lock(&client->tree);
	object = rm_tree_find(&client->rm, handle);
	space = object && object->kind == RM_KIND_VASPACE;
	unseen = !object || object->flags & RM_OBJECT_GHOST;
	rm_tree_free(&client->rm, handle);
	mutex_unlock(&client->tree);
	if (space || unseen)
		ds_lost_drop(client, space);
}

void ds_alloc_free(struct ds_call *call)
{
	let_go(call, call->asked.object);
}

/* ---- the legacy ways ------------------------------------------------------ */

static u64 vid_heap_bytes(struct ds_call *call, const struct ds_plan *plan)
{
	struct rm_alloc answer;
	u32 handle;

	if (rm_decode_vid_heap(call->abi, call->shadow->block, call->shadow->size, &answer, &handle))
		return plan->charged;
	return rm_answer_bytes(&plan->alloc, &answer);
}

/* Atomic context: totals and free bytes as the limits allow. */
static void show_view(struct ds_shadow *shadow, void *block)
{
	rm_answer_vid_heap(ds_abi_outer(), shadow->edit_data, block, shadow->size);
}

static void see_view(struct ds_call *call, struct rm_view *view)
{
	struct ds_client *client = call->client;
	struct ds_vctx *vctx;
	u32 gpu;

	mutex_lock(&client->tree);
	gpu = ds_gpu_below(client, call->asked.parent);
	vctx = ds_vctx_find(client, gpu == RM_GPU_NONE ? ds_client_first_gpu(client) : gpu);
	if (vctx) {
		rm_payer_view(ds_vctx_payer(vctx), view);
		call->shadow->edit = show_view;
		call->shadow->edit_data = view;
	}
	mutex_unlock(&client->tree);
}

void ds_alloc_vid_heap(struct ds_call *call)
{
	struct ds_plan plan = { .parent = call->asked.parent };
	struct ds_client *client = call->client;
	struct rm_view view;
	u32 handle;

	if (!client) {
		ds_call_driver(call);
		return;
	}
	see_view(call, &view);
	if (!rm_decode_vid_heap(call->abi, call->shadow->block, call->shadow->size, &plan.alloc, &handle)) {
		mutex_lock(&client->tree);
		plan.gpu = ds_gpu_below(client, plan.parent);
		mutex_unlock(&client->tree);
		ds_plan_allocate(call, &plan, vid_heap_bytes);
		return;
	}
	if (rm_decode_vid_heap_free(call->abi, call->shadow->block, call->shadow->size, &handle))
		ds_call_driver(call);
	else
		let_go(call, handle);
}

static u64 memory_bytes(struct ds_call *call, const struct ds_plan *plan)
{
	struct rm_alloc answer;

	if (rm_decode_alloc_memory(call->abi, call->shadow->block, call->shadow->size, &answer))
		return plan->charged;
	return rm_answer_bytes(&plan->alloc, &answer);
}

void ds_alloc_memory(struct ds_call *call)
{
	struct ds_plan plan = { .parent = call->asked.parent };

	if (!call->client) {
		ds_call_driver(call);
		return;
	}
	rm_decode_alloc_memory(call->abi, call->shadow->block, call->shadow->size, &plan.alloc);
	if (filtered(call, &plan.alloc))
		return;
	mutex_lock(&call->client->tree);
	plan.gpu = ds_gpu_below(call->client, plan.parent);
	mutex_unlock(&call->client->tree);
	ds_plan_allocate(call, &plan, memory_bytes);
}

void ds_alloc_object(struct ds_call *call)
{
	struct ds_plan plan = { .parent = call->asked.parent };

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
	if (plan.alloc.kind == RM_KIND_DEVICE) {
		allocate_device(call, &plan);
		return;
	}
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
	plan.gpu = ds_gpu_below(call->client, plan.parent);
	mutex_unlock(&call->client->tree);
	if (ds_plan_allocate(call, &plan, NULL))
		follow(call, &plan);
}
