// SPDX-License-Identifier: Apache-2.0
/* Changes of an executable graph: single nodes, whole updates, enabled nodes. Kernels keep their context. */
#include "api.h"

static CUresult find(CUgraphExec handle, CUgraphNode of, struct node **node)
{
	struct exec *exec;

	TRY(exec_of(handle, &exec));
	TRY(node_of(of, node));
	*node = graph_find(exec->graph, *node);
	return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult find_as(CUgraphExec handle, CUgraphNode of, enum work_type type, struct node **node)
{
	TRY(find(handle, of, node));
	return (*node)->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether the second may take the first's place in an executable graph. Only kernels are bound to their context. */
static CUresult may_replace(const struct work *old, const struct work *new)
{
	if (old->type != new->type || (old->type == WORK_KERNEL && old->kernel.context != new->kernel.context))
		return CUDA_ERROR_INVALID_VALUE;
	if (old->type == WORK_KERNEL && old->kernel.cooperative != new->kernel.cooperative)
		return CUDA_ERROR_INVALID_VALUE;
	if (old->type == WORK_COPY && (old->copy.how.srcMemoryType != new->copy.how.srcMemoryType ||
				       old->copy.how.dstMemoryType != new->copy.how.dstMemoryType))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult set(struct node *node, const CUgraphNodeParams *params)
{
	struct work saved = node->work, probe;
	CUgraphNodeParams copy = *params;
	CUresult result;

	TRY(node_work(&copy, &probe));
	if (probe.type == WORK_KERNEL)
		probe.kernel.cooperative = saved.kernel.cooperative;
	result = may_replace(&saved, &probe);
	work_drop(&probe);
	return result ? result : node_set(node, params);
}

API(cuGraphExecNodeSetParams, CUgraphExec, exec, CUgraphNode, handle, CUgraphNodeParams *, params)
{
	struct node *node;

	TRY(find(exec, handle, &node));
	return params ? set(node, params) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_kernel(CUgraphExec exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params,
			   bool with_context)
{
	struct node *node;
	struct work work;
	CUresult result;

	TRY(find_as(exec, handle, WORK_KERNEL, &node));
	TRY(kernel_node_work(params, with_context, &work));
	work.kernel.cooperative = node->work.kernel.cooperative;
	result = may_replace(&node->work, &work);
	if (result) {
		work_drop(&work);
		return result;
	}
	memcpy(work.kernel.cluster, node->work.kernel.cluster, sizeof(work.kernel.cluster));
	memcpy(work.kernel.attributes, node->work.kernel.attributes, sizeof(work.kernel.attributes));
	work.kernel.attribute_mask = node->work.kernel.attribute_mask;
	work_drop(&node->work);
	node->work = work;
	return CUDA_SUCCESS;
}

API(cuGraphExecKernelNodeSetParams_v2, CUgraphExec, exec, CUgraphNode, node, const CUDA_KERNEL_NODE_PARAMS *, params)
{
	return params ? set_kernel(exec, node, params, true) : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphExecKernelNodeSetParams, CUgraphExec, exec, CUgraphNode, node, const CUDA_KERNEL_NODE_PARAMS_v1 *, params)
{
	CUDA_KERNEL_NODE_PARAMS wide;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&wide, 0, sizeof(wide));
	memcpy(&wide, params, sizeof(*params));
	return set_kernel(exec, node, &wide, false);
}

API(cuGraphExecMemcpyNodeSetParams, CUgraphExec, exec, CUgraphNode, handle, const CUDA_MEMCPY3D *, params, CUcontext,
    context)
{
	CUgraphNodeParams all;
	struct node *node;

	TRY(find_as(exec, handle, WORK_COPY, &node));
	memset(&all, 0, sizeof(all));
	all.type = CU_GRAPH_NODE_TYPE_MEMCPY;
	all.memcpy.copyParams = *params;
	all.memcpy.copyCtx = context;
	return set(node, &all);
}

API(cuGraphExecMemsetNodeSetParams, CUgraphExec, exec, CUgraphNode, handle, const CUDA_MEMSET_NODE_PARAMS *, params,
    CUcontext, context)
{
	CUgraphNodeParams all;
	struct node *node;

	TRY(find_as(exec, handle, WORK_SET, &node));
	memset(&all, 0, sizeof(all));
	all.type = CU_GRAPH_NODE_TYPE_MEMSET;
	memcpy(&all.memset, params, sizeof(*params));
	all.memset.ctx = context;
	return set(node, &all);
}

API(cuGraphExecHostNodeSetParams, CUgraphExec, exec, CUgraphNode, handle, const CUDA_HOST_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(find_as(exec, handle, WORK_HOST, &node));
	node->work.host.fn = params->fn;
	node->work.host.data = params->userData;
	return CUDA_SUCCESS;
}

static CUresult event(CUgraphExec exec, CUgraphNode handle, enum work_type type, CUevent what)
{
	struct node *node;

	TRY(find_as(exec, handle, type, &node));
	return event_of(what, &node->work.event.event);
}

API(cuGraphExecEventRecordNodeSetEvent, CUgraphExec, exec, CUgraphNode, node, CUevent, what)
{
	return event(exec, node, WORK_EVENT_RECORD, what);
}

API(cuGraphExecEventWaitNodeSetEvent, CUgraphExec, exec, CUgraphNode, node, CUevent, what)
{
	return event(exec, node, WORK_EVENT_WAIT, what);
}

API(cuGraphExecBatchMemOpNodeSetParams, CUgraphExec, exec, CUgraphNode, handle, const CUDA_BATCH_MEM_OP_NODE_PARAMS *,
    params)
{
	CUgraphNodeParams all;
	struct node *node;

	TRY(find_as(exec, handle, WORK_MEM_OPS, &node));
	memset(&all, 0, sizeof(all));
	all.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	memcpy(&all.memOp, params, sizeof(*params));
	return set(node, &all);
}

API(cuGraphNodeSetEnabled, CUgraphExec, exec, CUgraphNode, handle, unsigned int, enabled)
{
	struct node *node;

	TRY(find(exec, handle, &node));
	if (node->work.type != WORK_KERNEL && node->work.type != WORK_COPY && node->work.type != WORK_SET)
		return CUDA_ERROR_INVALID_VALUE;
	node->disabled = !enabled;
	return CUDA_SUCCESS;
}

API(cuGraphNodeGetEnabled, CUgraphExec, exec, CUgraphNode, handle, unsigned int *, enabled)
{
	struct node *node;

	TRY(find(exec, handle, &node));
	*enabled = !node->disabled;
	return CUDA_SUCCESS;
}

static bool same_edges(const struct graph *a, const struct graph *b)
{
	if (a->edge_count != b->edge_count)
		return false;
	for (size_t i = 0; i < a->edge_count; i++) {
		bool found = false;

		for (size_t k = 0; k < b->edge_count && !found; k++)
			found = a->edges[i].from->index == b->edges[k].from->index &&
				a->edges[i].to->index == b->edges[k].to->index;
		if (!found)
			return false;
	}
	return true;
}

static void number(struct graph *graph)
{
	unsigned int n = 0;

	for (struct node *node = graph->nodes; node; node = node->next)
		node->index = n++;
}

static CUgraphExecUpdateResult compare(struct graph *old, struct graph *new, struct node **at)
{
	struct node *a, *b;

	number(old);
	number(new);
	*at = NULL;
	if (old->count != new->count || !same_edges(old, new))
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (a = old->nodes, b = new->nodes; a; a = a->next, b = b->next) {
		CUgraphExecUpdateResult inner = CU_GRAPH_EXEC_UPDATE_SUCCESS;

		*at = b;
		if (a->work.type != b->work.type)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (a->work.type == WORK_KERNEL && a->work.kernel.context != b->work.kernel.context)
			return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
		if (may_replace(&a->work, &b->work))
			return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		if (a->work.type == WORK_ALLOC || a->work.type == WORK_FREE)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
		if (a->work.type == WORK_CHILD)
			inner = compare(a->work.child.graph, b->work.child.graph, at);
		if (inner)
			return inner;
	}
	*at = NULL;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static void adopt(struct graph *old, struct graph *new)
{
	struct node *a = old->nodes, *b = new->nodes;

	for (; a; a = a->next, b = b->next) {
		if (a->work.type == WORK_CHILD) {
			adopt(a->work.child.graph, b->work.child.graph);
			continue;
		}
		work_drop(&a->work);
		work_copy(&a->work, &b->work);
	}
}

static CUresult update(CUgraphExec handle, CUgraph from, CUgraphExecUpdateResult *why, CUgraphNode *where)
{
	struct graph *graph;
	struct node *at;
	struct exec *exec;

	TRY(exec_of(handle, &exec));
	TRY(graph_of(from, &graph));
	*why = compare(exec->graph, graph, &at);
	*where = (CUgraphNode)at;
	if (*why)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	adopt(exec->graph, graph);
	users_drop(exec->graph);
	users_copy(exec->graph, graph);
	return CUDA_SUCCESS;
}

API(cuGraphExecUpdate_v2, CUgraphExec, exec, CUgraph, graph, CUgraphExecUpdateResultInfo *, info)
{
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	memset(info, 0, sizeof(*info));
	return update(exec, graph, &info->result, &info->errorNode);
}

API(cuGraphExecUpdate, CUgraphExec, exec, CUgraph, graph, CUgraphNode *, where, CUgraphExecUpdateResult *, why)
{
	if (!where || !why)
		return CUDA_ERROR_INVALID_VALUE;
	return update(exec, graph, why, where);
}

API(cuGraphExecChildGraphNodeSetParams, CUgraphExec, exec, CUgraphNode, handle, CUgraph, child)
{
	struct node *node, *at;
	struct graph *graph;

	TRY(find_as(exec, handle, WORK_CHILD, &node));
	TRY(graph_of(child, &graph));
	if (compare(node->work.child.graph, graph, &at))
		return CUDA_ERROR_INVALID_VALUE;
	adopt(node->work.child.graph, graph);
	return CUDA_SUCCESS;
}
