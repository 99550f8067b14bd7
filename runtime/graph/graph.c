/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs of the program: born, launched, updated, ended. See graph_variant.h for what variants are. */

#include <stdlib.h>
#include <string.h>

#include "begin.h"
#include "context.h"
#include "gate.h"
#include "graph_table.h"
#include "graph_template.h"
#include "graph_variant.h"
#include "home.h"
#include "lifecycle.h"
#include "primary.h"
#include "room.h"

/* ---- birth ---- */

static void born(CUgraphExec app, CUgraph graph, unsigned long long flags)
{
	const unsigned long long shared =
		CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	struct ds_device *device;
	struct ds_exec *exec;

	if (!atomic_load_explicit(&ds_process.managed, memory_order_relaxed) || ds_thread.locked)
		return;
	device = ds_device_current();
	if (!device)
		return;
	exec = ds_exec_add(app, device);
	if (!exec)
		return;
	exec->flags = flags & shared;
	/* One that the device launches, too, is known to device code by its own handle. */
	if (!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))
		exec->template = ds_template_make(device, graph);
	if (exec->template)
		ds_variant_wish(exec);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size)
{
	CUresult result;

	ds_home_enter();
	result = real->cuGraphInstantiate(exec, graph, error_node, log, size);
	if (result == CUDA_SUCCESS)
		born(*exec, graph, 0);
	ds_home_leave();
	return ds_room_own(ds_device_current(), result, cuGraphInstantiate(exec, graph, error_node, log, size));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size)
{
	CUresult result;

	ds_home_enter();
	result = real->cuGraphInstantiate_v2(exec, graph, error_node, log, size);
	if (result == CUDA_SUCCESS)
		born(*exec, graph, 0);
	ds_home_leave();
	return ds_room_own(ds_device_current(), result, cuGraphInstantiate_v2(exec, graph, error_node, log, size));
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	CUresult result;

	ds_home_enter();
	result = real->cuGraphInstantiateWithFlags(exec, graph, flags);
	if (result == CUDA_SUCCESS)
		born(*exec, graph, flags);
	ds_home_leave();
	return ds_room_own(ds_device_current(), result, cuGraphInstantiateWithFlags(exec, graph, flags));
}

static CUresult with_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread,
			    CUresult (*instantiate)(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))
{
	bool uploads = params && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
	CUstream given = params ? params->hUploadStream : NULL;
	struct ds_stream *stream = uploads ? ds_stream_of(given, per_thread) : NULL;
	CUresult result;

	if (stream)
		params->hUploadStream = ds_stream_cur(stream);
	result = instantiate(exec, graph, params);
	if (stream) {
		params->hUploadStream = given;
		ds_stream_done(stream);
	}
	if (result == CUDA_SUCCESS)
		born(*exec, graph, params->flags);
	return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return ds_room_own(ds_device_current(),
			   ds_home_call(with_params(exec, graph, params, false, real->cuGraphInstantiateWithParams)),
			   cuGraphInstantiateWithParams(exec, graph, params));
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return ds_room_own(ds_device_current(),
			   ds_home_call(with_params(exec, graph, params, true, real->cuGraphInstantiateWithParams_ptsz)),
			   cuGraphInstantiateWithParams_ptsz(exec, graph, params));
}

/* ---- launch ---- */

/* What another launch of the same executable in another stream needs to wait for; the driver does it per executable. */
static struct ds_stream *other_stream(struct ds_exec *exec, struct ds_stream *stream)
{
	struct ds_stream *other = NULL;
	unsigned int index;

	/* Launches of one executable never overlap: only a stream's end changes this meanwhile, and then not to `stream`. */
	if (ds_likely(__atomic_load_n(&exec->last_stream, __ATOMIC_RELAXED) == stream))
		return NULL;
	pthread_mutex_lock(&exec->lock);
	if (exec->last_stream && exec->last_stream != stream)
		for (index = 0; index < DS_VARIANTS && !other; index++)
			if (exec->variants[index].exec)
				other = exec->last_stream;
	pthread_mutex_unlock(&exec->lock);
	return other;
}

/*
 * Programs that change parameters before each launch would never see a variant that is made in the background. And who was given a share of the
 * SMs, whatever others do, gets no more even for the first launches; a tier that is only for the time of others' work is not worth a wait.
 */
static void prepare(struct ds_exec *exec)
{
	const unsigned int often = 2;
	unsigned int tier = ds_board_tier(exec->device);

	if (!tier || !ds_pool_ready(exec->device, tier))
		return;
	if (ds_unlikely(exec->overtaken >= often))
		ds_variant_build(exec, tier);
	else if (ds_board_stands(exec->device, tier))
		ds_variant_await(exec, tier);
}

/* A variant that is chosen stays until exec->launching is taken back. */
static CUgraphExec choose(struct ds_exec *exec, struct ds_launch *launch, bool chained, CUevent *left)
{
	CUgraphExec handle = NULL, app = atomic_load_explicit(&exec->app, memory_order_relaxed);
	unsigned int reason = DS_FULL_REASONS;

	if (ds_likely(!launch->tier && __atomic_load_n(&exec->last, __ATOMIC_RELAXED) == app &&
		      __atomic_load_n(&exec->last_stream, __ATOMIC_RELAXED) == launch->stream))
		return app;
	pthread_mutex_lock(&exec->lock);
	if (launch->tier)
		handle = ds_variant_for(exec, launch->tier, &reason);
	/* one that was made since other_stream() looked: nothing orders it behind the last launch */
	if (handle && handle != exec->last && !chained && exec->last_stream && exec->last_stream != launch->stream) {
		handle = NULL;
		reason = DS_FULL_GRAPH;
	}
	if (handle)
		atomic_fetch_add_explicit(&exec->launching, 1, memory_order_relaxed);
	else
		handle = app;
	if (ds_unlikely(exec->left_set)) {
		*left = exec->last != handle ? exec->left : NULL;
		exec->left_set = false;
	}
	__atomic_store_n(&exec->last_stream, launch->stream, __ATOMIC_RELAXED);
	__atomic_store_n(&exec->last, handle, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&exec->lock);
	if (ds_unlikely(reason != DS_FULL_REASONS))
		ds_pages_full_run(exec->device->pages, reason);
	return handle;
}

static CUresult launch_graph(CUgraphExec app, CUstream stream, bool per_thread,
			     CUresult (*native)(CUgraphExec, CUstream))
{
	struct ds_launch launch = {.stream = ds_stream_of(stream, per_thread), .function = app, .kind = DS_LAUNCH_GRAPH};
	CUgraphExec handle = app;
	struct ds_stream *other = NULL;
	struct ds_exec *exec;
	CUevent left = NULL;
	CUresult result;

	if (!launch.stream)
		return native(app, stream);
	exec = ds_exec_find(app);
	if (ds_unlikely(atomic_load_explicit(&launch.stream->capturing, memory_order_acquire)) ||
	    (exec && exec->device != launch.stream->device))
		exec = NULL;
	if (exec) {
		prepare(exec);
		other = other_stream(exec, launch.stream);
		if (ds_unlikely(other))
			ds_stream_after(launch.stream, other);
	}
	ds_launch_begin(&launch);
	if (exec)
		handle = choose(exec, &launch, other != NULL, &left);
	else if (launch.tier)
		ds_pages_full_run(launch.stream->device->pages, DS_FULL_GRAPH);
	if (ds_unlikely(left))
		real->cuStreamWaitEvent(launch.actual, left, 0);
	result = real->cuGraphLaunch(handle, launch.actual);
	ds_launch_end(&launch, result);
	if (exec && handle != app)
		atomic_fetch_sub_explicit(&exec->launching, 1, memory_order_release);
	return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return ds_room_own(ds_device_current(), launch_graph(exec, stream, false, real->cuGraphLaunch),
			   cuGraphLaunch(exec, stream));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return ds_room_own(ds_device_current(), launch_graph(exec, stream, true, real->cuGraphLaunch_ptsz),
			   cuGraphLaunch_ptsz(exec, stream));
}

static CUresult upload(CUgraphExec app, CUstream stream, bool per_thread, CUresult (*native)(CUgraphExec, CUstream))
{
	struct ds_stream *managed = ds_stream_of(stream, per_thread);
	struct ds_exec *exec;
	CUresult result;

	if (!managed)
		return native(app, stream);
	result = real->cuGraphUpload(app, ds_stream_cur(managed));
	ds_stream_done(managed);
	exec = ds_exec_find(app);
	if (exec)
		ds_variant_wish(exec);
	return result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	return ds_room_own(ds_device_current(), upload(exec, stream, false, real->cuGraphUpload),
			   cuGraphUpload(exec, stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	return ds_room_own(ds_device_current(), upload(exec, stream, true, real->cuGraphUpload_ptsz),
			   cuGraphUpload_ptsz(exec, stream));
}

/* ---- update ---- */

/* The last launch's variant follows at once, the others are made again when needed: a stale one, or the template it was
 * made from, would keep the old graph's user objects alive, which the program's own executable has just given up. */
static void refresh(struct ds_exec *exec, struct ds_template *template)
{
	unsigned int index;

	for (index = 0; index < DS_VARIANTS; index++) {
		struct ds_variant *variant = &exec->variants[index];
		CUgraphExecUpdateResultInfo info;
		CUresult result = CUDA_ERROR_UNKNOWN;
		int8_t full = -1;

		if (!variant->context)
			continue;
		if (template && variant->exec && variant->exec == exec->last && ds_pool_ready(exec->device, variant->tier) &&
		    ds_pool_ctx(exec->device, variant->tier) == variant->context)
			result = ds_template_target(template, exec->device, variant->tier, &full);
		if (result == CUDA_SUCCESS)
			result = real->cuGraphExecUpdate_v2(variant->exec, template->graph, &info);
		if (result != CUDA_SUCCESS) {
			ds_variant_clear(exec, variant);
			continue;
		}
		variant->full = full;
		ds_template_put(variant->from);
		variant->from = NULL;
	}
}

static void updated(CUgraphExec app, CUgraph graph)
{
	struct ds_exec *exec = ds_exec_find(app);
	struct ds_template *template, *before;
	struct ds_own own;

	if (!exec)
		return;
	ds_own_begin(&own, exec->device);
	template = ds_template_make(exec->device, graph);
	if (template)
		pthread_mutex_lock(&template->lock);
	pthread_mutex_lock(&exec->lock);
	exec->version++;
	exec->overtaken++;
	refresh(exec, template);
	before = exec->template;
	exec->template = template;
	if (exec->off_count) {
		/* What is switched off is named by nodes of the template before: no new variant can be like it. */
		exec->template = NULL;
		if (template)
			pthread_mutex_unlock(&template->lock);
		ds_template_put(template);
		template = NULL;
	}
	pthread_mutex_unlock(&exec->lock);
	if (template)
		pthread_mutex_unlock(&template->lock);
	ds_template_put(before);
	ds_own_end(&own);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *info)
{
	CUresult result;

	ds_home_enter();
	result = real->cuGraphExecUpdate(exec, graph, error_node, info);
	if (result == CUDA_SUCCESS)
		updated(exec, graph);
	ds_home_leave();
	return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CUresult result;

	ds_home_enter();
	result = real->cuGraphExecUpdate_v2(exec, graph, info);
	if (result == CUDA_SUCCESS)
		updated(exec, graph);
	ds_home_leave();
	return result;
}

/* ---- end ---- */

static void finish(struct ds_exec *exec)
{
	struct ds_template *template;
	CUevent left;

	ds_variant_wait(exec);
	pthread_mutex_lock(&exec->lock);
	ds_variant_clear_all(exec);
	template = exec->template;
	exec->template = NULL;
	free(exec->off);
	exec->off = NULL;
	exec->off_count = 0;
	left = exec->left;
	exec->left = NULL;
	exec->left_set = false;
	exec->version++;
	pthread_mutex_unlock(&exec->lock);
	ds_template_put(template);
	if (left)
		real->cuEventDestroy_v2(left);
	ds_exec_remove(exec);
}

CUresult cuGraphExecDestroy(CUgraphExec app)
{
	struct ds_exec *exec = ds_exec_find(app);
	CUresult result = real->cuGraphExecDestroy(app);
	struct ds_own own;

	if (!exec || result != CUDA_SUCCESS)
		return result;
	ds_own_begin(&own, exec->device);
	finish(exec);
	ds_own_end(&own);
	return result;
}

static void leave_stream(struct ds_exec *exec, void *data)
{
	struct ds_stream *stream = data;

	pthread_mutex_lock(&exec->lock);
	if (exec->last_stream != stream) {
		pthread_mutex_unlock(&exec->lock);
		return;
	}
	__atomic_store_n(&exec->last_stream, NULL, __ATOMIC_RELAXED);
	/* no matter whether there is a variant now: one may be in the making */
	if (exec->left || real->cuEventCreate(&exec->left, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
		exec->left_set = real->cuEventRecord(exec->left, stream->cur) == CUDA_SUCCESS;
	pthread_mutex_unlock(&exec->lock);
}

static void stream_gone(struct ds_stream *stream)
{
	ds_exec_each(stream->device, leave_stream, stream);
}

static void end(struct ds_exec *exec, void *data)
{
	(void)data;
	finish(exec);
}

static void context_gone(struct ds_device *device)
{
	struct ds_own own;

	ds_own_begin(&own, device);
	ds_exec_each(device, end, NULL);
	ds_own_end(&own);
}

static void child(void)
{
	ds_exec_reset();
	ds_variant_reset();
}

static const struct ds_lifecycle life = { .context_gone = context_gone, .stream_gone = stream_gone, .child = child };
DS_LIST_ADD(ds_lifecycles, life);
