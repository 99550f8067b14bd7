/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single nodes of an executable graph get new parameters: the same is done to the template, from which later variants
 * are made, and to each variant there is. What cannot be done there ends the variant, or, for the template, the making
 * of variants until the next cuGraphExecUpdate.
 */

#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "graph_table.h"
#include "graph_template.h"
#include "graph_variant.h"
#include "home.h"
#include "log.h"
#include "pool.h"
#include "primary.h"

enum change_kind { CHANGE_KERNEL, CHANGE_MEMCPY, CHANGE_MEMSET, CHANGE_HOST, CHANGE_CHILD, CHANGE_RECORD, CHANGE_WAIT,
	CHANGE_SIGNAL, CHANGE_AWAIT, CHANGE_MEM_OPS, CHANGE_ANY, CHANGE_ENABLED };

struct change {
	enum change_kind kind;
	CUgraphNode node;
	const void *params;
	CUcontext context;	/* of copies and memsets, as given */
	CUevent event;
	unsigned int enabled;
};

/* whether parameters of a kernel node name a context between which we do not move */
static bool foreign(struct ds_device *device, CUcontext context)
{
	return context ? context != device->primary : ds_device_current() != device;
}

/* An exec's kernel node takes the context that is current for a function of a module, and the field for a kernel. */
static CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given, CUcontext context)
{
	CUDA_KERNEL_NODE_PARAMS params = *given;
	CUresult result = real->cuCtxPushCurrent_v2(context);

	if (result != CUDA_SUCCESS)
		return result;
	params.ctx = context;
	if (params.kern)
		params.func = NULL;
	if (exec && params.kern)
		result = real->cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
	else if (exec)
		result = real->cuGraphExecKernelNodeSetParams(exec, node, (const CUDA_KERNEL_NODE_PARAMS_v1 *)&params);
	else
		result = real->cuGraphKernelNodeSetParams_v2(node, &params);
	real->cuCtxPopCurrent_v2(&(CUcontext){NULL});
	return result;
}

/* whether the tier's variant can take the kernel with these parameters as a node of its tier */
static bool kernel_fits(struct ds_device *device, const struct ds_variant *variant, CUgraphNode node,
			const CUDA_KERNEL_NODE_PARAMS *params)
{
	return variant->full < 0 && ds_pool_ready(device, variant->tier) &&
	       ds_template_stays(device, variant->tier, node, params) < 0;
}

static CUresult change_any(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *given, CUcontext context)
{
	CUgraphNodeParams params = *given;

	if (params.type == CU_GRAPH_NODE_TYPE_GRAPH)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params.type == CU_GRAPH_NODE_TYPE_MEMSET)
		params.memset.ctx = context;
	return exec ? real->cuGraphExecNodeSetParams(exec, node, &params) : real->cuGraphNodeSetParams(node, &params);
}

static CUresult change_variant(struct ds_device *device, const struct change *change, struct ds_variant *variant, CUgraphNode node)
{
	const CUgraphNodeParams *any = change->kind == CHANGE_ANY ? change->params : NULL;
	const CUDA_KERNEL_NODE_PARAMS *kernel = NULL;
	CUresult result;

	if (change->kind == CHANGE_KERNEL)
		kernel = change->params;
	else if (any && any->type == CU_GRAPH_NODE_TYPE_KERNEL)
		kernel = &any->kernel;
	if (kernel)
		return kernel_fits(device, variant, node, kernel) ? set_kernel(variant->exec, node, kernel, variant->context)
								  : CUDA_ERROR_NOT_SUPPORTED;
	switch (change->kind) {
	case CHANGE_MEMCPY:
		result = real->cuGraphExecMemcpyNodeSetParams(variant->exec, node, change->params, change->context);
		if (result == CUDA_SUCCESS)
			return result;
		return real->cuGraphExecMemcpyNodeSetParams(variant->exec, node, change->params, variant->context);
	case CHANGE_MEMSET:
		return real->cuGraphExecMemsetNodeSetParams(variant->exec, node, change->params, variant->context);
	case CHANGE_HOST:
		return real->cuGraphExecHostNodeSetParams(variant->exec, node, change->params);
	case CHANGE_RECORD:
		return real->cuGraphExecEventRecordNodeSetEvent(variant->exec, node, change->event);
	case CHANGE_WAIT:
		return real->cuGraphExecEventWaitNodeSetEvent(variant->exec, node, change->event);
	case CHANGE_SIGNAL:
		return real->cuGraphExecExternalSemaphoresSignalNodeSetParams(variant->exec, node, change->params);
	case CHANGE_AWAIT:
		return real->cuGraphExecExternalSemaphoresWaitNodeSetParams(variant->exec, node, change->params);
	case CHANGE_MEM_OPS:
		return real->cuGraphExecBatchMemOpNodeSetParams(variant->exec, node, change->params);
	case CHANGE_ANY:
		return change_any(variant->exec, node, any, variant->context);
	case CHANGE_ENABLED:
		return real->cuGraphNodeSetEnabled(variant->exec, node, change->enabled);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult note_enabled(struct ds_exec *exec, CUgraphNode node, bool enabled)
{
	CUgraphNode *wider;
	size_t index;

	for (index = 0; index < exec->off_count && exec->off[index] != node; index++)
		;
	if (index < exec->off_count && enabled)
		exec->off[index] = exec->off[--exec->off_count];
	if (index < exec->off_count || enabled)
		return CUDA_SUCCESS;
	wider = realloc(exec->off, (exec->off_count + 1) * sizeof(*wider));
	if (!wider)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->off = wider;
	exec->off[exec->off_count++] = node;
	return CUDA_SUCCESS;
}

static CUresult change_template(struct ds_exec *exec, struct ds_template *template, const struct change *change, CUgraphNode node)
{
	const CUgraphNodeParams *any = change->params;

	switch (change->kind) {
	case CHANGE_KERNEL:
		return set_kernel(NULL, node, change->params, template->context);
	case CHANGE_MEMCPY:
		return real->cuGraphMemcpyNodeSetParams(node, change->params);
	case CHANGE_MEMSET:
		return real->cuGraphMemsetNodeSetParams(node, change->params);
	case CHANGE_HOST:
		return real->cuGraphHostNodeSetParams(node, change->params);
	case CHANGE_RECORD:
		return real->cuGraphEventRecordNodeSetEvent(node, change->event);
	case CHANGE_WAIT:
		return real->cuGraphEventWaitNodeSetEvent(node, change->event);
	case CHANGE_SIGNAL:
		return real->cuGraphExternalSemaphoresSignalNodeSetParams(node, change->params);
	case CHANGE_AWAIT:
		return real->cuGraphExternalSemaphoresWaitNodeSetParams(node, change->params);
	case CHANGE_MEM_OPS:
		return real->cuGraphBatchMemOpNodeSetParams(node, change->params);
	case CHANGE_ANY:
		if (any->type == CU_GRAPH_NODE_TYPE_KERNEL)
			return set_kernel(NULL, node, &any->kernel, template->context);
		return change_any(NULL, node, any, template->context);
	case CHANGE_ENABLED:
		return note_enabled(exec, node, change->enabled);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static bool changes_foreign_kernel(struct ds_device *device, const struct change *change)
{
	const CUgraphNodeParams *any = change->params;

	if (change->kind == CHANGE_KERNEL)
		return foreign(device, ((const CUDA_KERNEL_NODE_PARAMS *)change->params)->ctx);
	return change->kind == CHANGE_ANY && any->type == CU_GRAPH_NODE_TYPE_KERNEL && foreign(device, any->kernel.ctx);
}

/* exec->lock held, and template->lock if there is one */
static void mirror(struct ds_exec *exec, struct ds_template *template, const struct change *change)
{
	bool is_foreign = changes_foreign_kernel(exec->device, change);
	CUgraphNode node = template && !is_foreign ? ds_template_node(template, change->node) : NULL;
	unsigned int index;

	exec->version++;
	for (index = 0; index < DS_VARIANTS; index++) {
		struct ds_variant *variant = &exec->variants[index];
		CUgraphNode its = node;

		if (!variant->context)
			continue;
		exec->overtaken += variant->queued;
		if (variant->exec && variant->from != template)
			its = is_foreign || !variant->from ? NULL : ds_template_node(variant->from, change->node);
		if (!variant->exec || !its || change_variant(exec->device, change, variant, its) != CUDA_SUCCESS)
			ds_variant_clear(exec, variant);
	}
	if (template && (!node || change_template(exec, template, change, node) != CUDA_SUCCESS)) {
		ds_debug("graph: a change of a node cannot be followed; the graph runs on the whole GPU from now on");
		exec->template = NULL;
		ds_template_put(template);
	}
}

static CUresult changed(CUgraphExec app, const struct change *change, CUresult result)
{
	struct ds_exec *exec = result == CUDA_SUCCESS ? ds_exec_find(app) : NULL;
	struct ds_template *template;
	struct ds_own own;

	if (!exec)
		return result;
	pthread_mutex_lock(&exec->lock);
	template = exec->template;
	if (template)
		ds_template_get(template);
	pthread_mutex_unlock(&exec->lock);

	ds_own_begin(&own, exec->device);
	if (template)
		pthread_mutex_lock(&template->lock);
	pthread_mutex_lock(&exec->lock);
	mirror(exec, exec->template == template ? template : NULL, change);
	pthread_mutex_unlock(&exec->lock);
	if (template)
		pthread_mutex_unlock(&template->lock);
	ds_template_put(template);
	ds_own_end(&own);
	return result;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUresult result = real->cuGraphExecKernelNodeSetParams(exec, node, params);
	CUDA_KERNEL_NODE_PARAMS wide = {.func = NULL};
	struct change change = {.kind = CHANGE_KERNEL, .node = node, .params = &wide};

	if (result == CUDA_SUCCESS)
		memcpy(&wide, params, sizeof(*params));
	return changed(exec, &change, result);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct change change = {.kind = CHANGE_KERNEL, .node = node, .params = params};

	return ds_home_call(changed(exec, &change, real->cuGraphExecKernelNodeSetParams_v2(exec, node, params)));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context)
{
	struct change change = {.kind = CHANGE_MEMCPY, .node = node, .params = params, .context = context};

	return ds_home_call(changed(exec, &change, real->cuGraphExecMemcpyNodeSetParams(exec, node, params, context)));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
					CUcontext context)
{
	struct change change = {.kind = CHANGE_MEMSET, .node = node, .params = params, .context = context};

	return ds_home_call(changed(exec, &change, real->cuGraphExecMemsetNodeSetParams(exec, node, params, context)));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	struct change change = {.kind = CHANGE_HOST, .node = node, .params = params};

	return ds_home_call(changed(exec, &change, real->cuGraphExecHostNodeSetParams(exec, node, params)));
}

/* A child's nodes would have to be re-targeted one by one in the template, whose child cannot be exchanged. */
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	struct change change = {.kind = CHANGE_CHILD, .node = node};

	return ds_home_call(changed(exec, &change, real->cuGraphExecChildGraphNodeSetParams(exec, node, child)));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	struct change change = {.kind = CHANGE_RECORD, .node = node, .event = event};

	return ds_home_call(changed(exec, &change, real->cuGraphExecEventRecordNodeSetEvent(exec, node, event)));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	struct change change = {.kind = CHANGE_WAIT, .node = node, .event = event};

	return ds_home_call(changed(exec, &change, real->cuGraphExecEventWaitNodeSetEvent(exec, node, event)));
}

CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec exec, CUgraphNode node,
							  const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
	struct change change = {.kind = CHANGE_SIGNAL, .node = node, .params = params};

	return ds_home_call(changed(exec, &change, real->cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, node, params)));
}

CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node,
							const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
	struct change change = {.kind = CHANGE_AWAIT, .node = node, .params = params};

	return ds_home_call(changed(exec, &change, real->cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, node, params)));
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct change change = {.kind = CHANGE_MEM_OPS, .node = node, .params = params};

	return ds_home_call(changed(exec, &change, real->cuGraphExecBatchMemOpNodeSetParams(exec, node, params)));
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	struct change change = {.kind = CHANGE_ANY, .node = node, .params = params};

	return ds_home_call(changed(exec, &change, real->cuGraphExecNodeSetParams(exec, node, params)));
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	struct change change = {.kind = CHANGE_ENABLED, .node = node, .enabled = enabled};

	return ds_home_call(changed(exec, &change, real->cuGraphNodeSetEnabled(exec, node, enabled)));
}
