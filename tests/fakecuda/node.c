// SPDX-License-Identifier: Apache-2.0
/* Nodes from parameters and back. A kernel node by `func` runs in the context that is current; by `kern`, in `ctx`. */
#include "api.h"

static CUresult kernel_work_of(const CUDA_KERNEL_NODE_PARAMS *params, bool with_context, struct work *work)
{
	struct kernel_work *kernel = &work->kernel;
	const void *handle = params->func ? (const void *)params->func : with_context ? (const void *)params->kern : NULL;
	struct context *context, *home;
	bool is_kernel;

	memset(work, 0, sizeof(*work));
	work->type = WORK_KERNEL;
	if (!handle)
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(function_of(handle, &kernel->kernel, &home, &is_kernel));
	TRY(context_of(params->func ? NULL : params->ctx, &context));
	if (home && home->group != context->group)
		context = home;
	kernel->context = context;
	kernel->given = (CUcontext)context;
	kernel->kern = kernel->kernel->library ? (CUkernel)kernel->kernel : NULL;
	kernel->func = is_kernel ? (CUfunction)library_function(kernel->kernel, context) : (CUfunction)handle;
	memcpy(kernel->grid, &params->gridDimX, sizeof(kernel->grid));
	memcpy(kernel->block, &params->blockDimX, sizeof(kernel->block));
	kernel->shared = params->sharedMemBytes;
	kernel->cluster[0] = kernel->kernel->cluster ? kernel->kernel->cluster : 1;
	kernel->cluster[1] = kernel->cluster[2] = 1;
	TRY(launch_check(kernel));
	return kernel_args(kernel, params->kernelParams, params->extra);
}

CUresult kernel_node_work(const CUDA_KERNEL_NODE_PARAMS *params, bool with_context, struct work *work)
{
	CUresult result = kernel_work_of(params, with_context, work);

	if (result)
		work_drop(work);
	return result;
}

static CUresult set_work_of(const CUDA_MEMSET_NODE_PARAMS_v2 *params, struct work *work)
{
	struct context *context;

	TRY(context_of(params->ctx, &context));
	if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_find(params->dst))
		return CUDA_ERROR_INVALID_VALUE;
	*work = (struct work){ .type = WORK_SET, .set = { .dst = params->dst, .pitch = params->pitch,
		.width = params->width, .height = params->height, .value = params->value,
		.element = params->elementSize, .context = context } };
	return CUDA_SUCCESS;
}

static CUresult copy_work_of(const CUDA_MEMCPY3D *params, CUcontext handle, struct work *work)
{
	struct context *context;

	TRY(context_of(handle, &context));
	TRY(copy_node_check(params));
	*work = (struct work){ .type = WORK_COPY, .copy = { .how = *params, .context = context } };
	return CUDA_SUCCESS;
}

static CUresult mem_work_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct work *work)
{
	struct context *context;

	TRY(context_of(params->ctx, &context));
	if (!params->count || !params->paramArray || params->flags)
		return CUDA_ERROR_INVALID_VALUE;
	*work = (struct work){ .type = WORK_MEM_OPS, .mem = { .context = context, .count = params->count } };
	work->mem.ops = xalloc(params->count * sizeof(*params->paramArray));
	memcpy(work->mem.ops, params->paramArray, params->count * sizeof(*params->paramArray));
	return CUDA_SUCCESS;
}

static CUresult alloc_work_of(CUDA_MEM_ALLOC_NODE_PARAMS *params, struct work *work)
{
	struct context *context;
	struct memory *memory;

	TRY(context_current(&context));
	TRY(pool_take(context->device->default_pool, context, params->bytesize, &memory));
	memory->kind = MEMORY_GRAPH;
	memory->freed = true;
	params->dptr = memory->base;
	*work = (struct work){ .type = WORK_ALLOC, .alloc = { .params = *params } };
	return CUDA_SUCCESS;
}

static CUresult event_work_of(CUevent handle, enum work_type type, struct work *work)
{
	*work = (struct work){ .type = type };
	return event_of(handle, &work->event.event);
}

static CUresult child_work_of(CUgraph handle, struct work *work)
{
	struct graph *graph;

	TRY(graph_of(handle, &graph));
	if (graph->memory_nodes || graph->conditions)
		return CUDA_ERROR_NOT_SUPPORTED;
	*work = (struct work){ .type = WORK_CHILD, .child = { graph_clone(graph) } };
	return CUDA_SUCCESS;
}

static CUresult conditional_work_of(CUDA_CONDITIONAL_NODE_PARAMS *params, struct work *work)
{
	unsigned int bodies = params->type == CU_GRAPH_COND_TYPE_IF ? 2 : 1;

	if (!params->size || params->size > bodies || params->type > CU_GRAPH_COND_TYPE_WHILE)
		return CUDA_ERROR_INVALID_VALUE;
	*work = (struct work){ .type = WORK_CONDITIONAL, .conditional = { .params = *params } };
	for (unsigned int i = 0; i < params->size; i++) {
		work->conditional.body[i] = graph_new();
		work->conditional.body[i]->owner = work->conditional.body[i];
	}
	params->phGraph_out = xalloc(2 * sizeof(CUgraph));
	for (unsigned int i = 0; i < params->size; i++)
		params->phGraph_out[i] = (CUgraph)work->conditional.body[i];
	return CUDA_SUCCESS;
}

CUresult node_work(CUgraphNodeParams *params, struct work *work)
{
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_node_work((const void *)&params->kernel, true, work);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return copy_work_of(&params->memcpy.copyParams, params->memcpy.copyCtx, work);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return set_work_of(&params->memset, work);
	case CU_GRAPH_NODE_TYPE_HOST:
		*work = (struct work){ .type = WORK_HOST, .host = { params->host.fn, params->host.userData } };
		return params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return child_work_of(params->graph.graph, work);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		*work = (struct work){ .type = WORK_EMPTY };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return event_work_of(params->eventWait.event, WORK_EVENT_WAIT, work);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_work_of(params->eventRecord.event, WORK_EVENT_RECORD, work);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return alloc_work_of((void *)&params->alloc, work);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		*work = (struct work){ .type = WORK_FREE, .free = { .address = params->free.dptr } };
		return memory_find(params->free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return mem_work_of((const void *)&params->memOp, work);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return conditional_work_of(&params->conditional, work);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult add(CUgraphNode *handle, CUgraph in, const CUgraphNode *before, const CUgraphEdgeData *data,
		    size_t count, CUgraphNodeParams *params)
{
	struct node *node, *from;
	struct graph *graph;
	struct work work;

	TRY(graph_of(in, &graph));
	if (!handle || !params || (count && !before))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		TRY(node_of(before[i], &from));
		if (from->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	}
	TRY(node_work(params, &work));
	node = graph_add(graph, &work);
	for (size_t i = 0; i < count; i++)
		graph_edge(graph, (struct node *)before[i], node, data ? &data[i] : NULL);
	*handle = (CUgraphNode)node;
	return CUDA_SUCCESS;
}

API(cuGraphAddNode, CUgraphNode *, handle, CUgraph, graph, const CUgraphNode *, before, size_t, count,
    CUgraphNodeParams *, params)
{
	return add(handle, graph, before, NULL, count, params);
}

API(cuGraphAddNode_v2, CUgraphNode *, handle, CUgraph, graph, const CUgraphNode *, before,
    const CUgraphEdgeData *, data, size_t, count, CUgraphNodeParams *, params)
{
	return add(handle, graph, before, data, count, params);
}

static CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
	CUDA_KERNEL_NODE_PARAMS params;

	memset(&params, 0, sizeof(params));
	memcpy(&params, old, sizeof(*old));
	return params;
}

#define ADD(name, node_type, ...) \
	API(name, CUgraphNode *, handle, CUgraph, graph, const CUgraphNode *, before, size_t, count, __VA_ARGS__)
#define TYPED(node_type) CUgraphNodeParams all; memset(&all, 0, sizeof(all)); all.type = node_type

ADD(cuGraphAddKernelNode_v2, kernel, const CUDA_KERNEL_NODE_PARAMS *, params)
{
	TYPED(CU_GRAPH_NODE_TYPE_KERNEL);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&all.kernel, params, sizeof(*params));
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddKernelNode, kernel, const CUDA_KERNEL_NODE_PARAMS_v1 *, params)
{
	TYPED(CU_GRAPH_NODE_TYPE_KERNEL);
	CUDA_KERNEL_NODE_PARAMS wide;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	wide = widen(params);
	memcpy(&all.kernel, &wide, sizeof(wide));
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddMemcpyNode, memcpy, const CUDA_MEMCPY3D *, params, CUcontext, context)
{
	TYPED(CU_GRAPH_NODE_TYPE_MEMCPY);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	all.memcpy.copyParams = *params;
	all.memcpy.copyCtx = context;
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddMemsetNode, memset, const CUDA_MEMSET_NODE_PARAMS *, params, CUcontext, context)
{
	TYPED(CU_GRAPH_NODE_TYPE_MEMSET);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&all.memset, params, sizeof(*params));
	all.memset.ctx = context;
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddHostNode, host, const CUDA_HOST_NODE_PARAMS *, params)
{
	TYPED(CU_GRAPH_NODE_TYPE_HOST);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	all.host.fn = params->fn;
	all.host.userData = params->userData;
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddChildGraphNode, graph, CUgraph, child)
{
	TYPED(CU_GRAPH_NODE_TYPE_GRAPH);
	all.graph.graph = child;
	return add(handle, graph, before, NULL, count, &all);
}

API(cuGraphAddEmptyNode, CUgraphNode *, handle, CUgraph, graph, const CUgraphNode *, before, size_t, count)
{
	TYPED(CU_GRAPH_NODE_TYPE_EMPTY);
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddEventRecordNode, event, CUevent, event)
{
	TYPED(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
	all.eventRecord.event = event;
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddEventWaitNode, event, CUevent, event)
{
	TYPED(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
	all.eventWait.event = event;
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddBatchMemOpNode, mem, const CUDA_BATCH_MEM_OP_NODE_PARAMS *, params)
{
	TYPED(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&all.memOp, params, sizeof(*params));
	return add(handle, graph, before, NULL, count, &all);
}

ADD(cuGraphAddMemAllocNode, alloc, CUDA_MEM_ALLOC_NODE_PARAMS *, params)
{
	TYPED(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&all.alloc, params, sizeof(*params));
	TRY(add(handle, graph, before, NULL, count, &all));
	params->dptr = all.alloc.dptr;
	return CUDA_SUCCESS;
}

ADD(cuGraphAddMemFreeNode, free, CUdeviceptr, address)
{
	TYPED(CU_GRAPH_NODE_TYPE_MEM_FREE);
	all.free.dptr = address;
	return add(handle, graph, before, NULL, count, &all);
}

API(cuGraphConditionalHandleCreate, CUgraphConditionalHandle *, handle, CUgraph, in, CUcontext, ctx, unsigned int,
    value, unsigned int, flags)
{
	struct context *context;
	struct graph *graph;

	TRY(graph_of(in, &graph));
	TRY(context_of(ctx, &context));
	if (!handle || flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = condition_new(value, flags);
	return CUDA_SUCCESS;
}

static const CUgraphNodeType node_types[] = {
	[WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL, [WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
	[WORK_SET] = CU_GRAPH_NODE_TYPE_MEMSET, [WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
	[WORK_CALLBACK] = CU_GRAPH_NODE_TYPE_HOST, [WORK_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
	[WORK_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY, [WORK_EVENT_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
	[WORK_EVENT_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD, [WORK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
	[WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE, [WORK_MEM_OPS] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
	[WORK_CONDITIONAL] = CU_GRAPH_NODE_TYPE_CONDITIONAL,
};

API(cuGraphNodeGetType, CUgraphNode, handle, CUgraphNodeType *, type)
{
	struct node *node;

	TRY(node_of(handle, &node));
	if (!type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node_types[node->work.type];
	return CUDA_SUCCESS;
}
