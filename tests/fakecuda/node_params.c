// SPDX-License-Identifier: Apache-2.0
/* Parameters of nodes: read, and changed before instantiation. What they point to belongs to the node. */
#include "api.h"

static CUresult node_as(CUgraphNode handle, enum work_type type, struct node **node)
{
	TRY(node_of(handle, node));
	return (*node)->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Attributes belong to the node, not to the parameters: they stay. */
static void keep_attributes(struct work *to, const struct work *from)
{
	if (to->type != WORK_KERNEL || from->type != WORK_KERNEL)
		return;
	to->kernel.attribute_mask = from->kernel.attribute_mask;
	memcpy(to->kernel.attributes, from->kernel.attributes, sizeof(to->kernel.attributes));
	memcpy(to->kernel.cluster, from->kernel.cluster, sizeof(to->kernel.cluster));
	to->kernel.cooperative = from->kernel.cooperative;
	to->kernel.has_priority = from->kernel.has_priority;
	to->kernel.priority = from->kernel.priority;
	to->kernel.serialization = from->kernel.serialization;
}

static void replace(struct node *node, struct work *work)
{
	keep_attributes(work, &node->work);
	work_drop(&node->work);
	node->work = *work;
}

CUresult node_set(struct node *node, const CUgraphNodeParams *params)
{
	CUgraphNodeParams copy = *params;
	struct work work;

	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
	    params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || params->type == CU_GRAPH_NODE_TYPE_EMPTY)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(node_work(&copy, &work));
	if (work.type != node->work.type && !(work.type == WORK_HOST && node->work.type == WORK_CALLBACK)) {
		work_drop(&work);
		return CUDA_ERROR_INVALID_VALUE;
	}
	replace(node, &work);
	return CUDA_SUCCESS;
}

API(cuGraphNodeSetParams, CUgraphNode, handle, CUgraphNodeParams *, params)
{
	struct node *node;

	TRY(node_of(handle, &node));
	return params ? node_set(node, params) : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphKernelNodeGetParams_v2, CUgraphNode, handle, CUDA_KERNEL_NODE_PARAMS *, params)
{
	const struct kernel_work *work;
	struct node *node;

	TRY(node_as(handle, WORK_KERNEL, &node));
	work = &node->work.kernel;
	memset(params, 0, sizeof(*params));
	params->func = work->func;
	params->kern = work->kern;
	params->ctx = work->given;
	memcpy(&params->gridDimX, work->grid, sizeof(work->grid));
	memcpy(&params->blockDimX, work->block, sizeof(work->block));
	params->sharedMemBytes = work->shared;
	params->kernelParams = work->args;
	return CUDA_SUCCESS;
}

API(cuGraphKernelNodeGetParams, CUgraphNode, handle, CUDA_KERNEL_NODE_PARAMS_v1 *, params)
{
	CUDA_KERNEL_NODE_PARAMS wide;

	TRY(do_cuGraphKernelNodeGetParams_v2(handle, &wide));
	if (!wide.func)
		wide.func = (CUfunction)wide.kern;
	memcpy(params, &wide, sizeof(*params));
	return CUDA_SUCCESS;
}

static CUresult set_kernel(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params, bool with_context)
{
	struct node *node;
	struct work work;

	TRY(node_as(handle, WORK_KERNEL, &node));
	TRY(kernel_node_work(params, with_context, &work));
	replace(node, &work);
	return CUDA_SUCCESS;
}

API(cuGraphKernelNodeSetParams_v2, CUgraphNode, handle, const CUDA_KERNEL_NODE_PARAMS *, params)
{
	return params ? set_kernel(handle, params, true) : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphKernelNodeSetParams, CUgraphNode, handle, const CUDA_KERNEL_NODE_PARAMS_v1 *, params)
{
	CUDA_KERNEL_NODE_PARAMS wide;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&wide, 0, sizeof(wide));
	memcpy(&wide, params, sizeof(*params));
	return set_kernel(handle, &wide, false);
}

API(cuGraphMemcpyNodeGetParams, CUgraphNode, handle, CUDA_MEMCPY3D *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_COPY, &node));
	*params = node->work.copy.how;
	return CUDA_SUCCESS;
}

API(cuGraphMemcpyNodeSetParams, CUgraphNode, handle, const CUDA_MEMCPY3D *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_COPY, &node));
	TRY(copy_node_check(params));
	node->work.copy.how = *params;
	return CUDA_SUCCESS;
}

API(cuGraphMemsetNodeGetParams, CUgraphNode, handle, CUDA_MEMSET_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_SET, &node));
	*params = (CUDA_MEMSET_NODE_PARAMS){ .dst = node->work.set.dst, .pitch = node->work.set.pitch,
		.value = node->work.set.value, .elementSize = node->work.set.element, .width = node->work.set.width,
		.height = node->work.set.height };
	return CUDA_SUCCESS;
}

API(cuGraphMemsetNodeSetParams, CUgraphNode, handle, const CUDA_MEMSET_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_SET, &node));
	if (!memory_find(params->dst))
		return CUDA_ERROR_INVALID_VALUE;
	node->work.set = (struct set_work){ .dst = params->dst, .pitch = params->pitch, .value = params->value,
		.element = params->elementSize, .width = params->width, .height = params->height,
		.context = node->work.set.context };
	return CUDA_SUCCESS;
}

API(cuGraphHostNodeGetParams, CUgraphNode, handle, CUDA_HOST_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_HOST, &node));
	params->fn = node->work.host.fn;
	params->userData = node->work.host.data;
	return CUDA_SUCCESS;
}

API(cuGraphHostNodeSetParams, CUgraphNode, handle, const CUDA_HOST_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_HOST, &node));
	node->work.host.fn = params->fn;
	node->work.host.data = params->userData;
	return CUDA_SUCCESS;
}

API(cuGraphChildGraphNodeGetGraph, CUgraphNode, handle, CUgraph *, graph)
{
	struct node *node;

	TRY(node_as(handle, WORK_CHILD, &node));
	*graph = (CUgraph)node->work.child.graph;
	return CUDA_SUCCESS;
}

static CUresult get_event(CUgraphNode handle, enum work_type type, CUevent *event)
{
	struct node *node;

	TRY(node_as(handle, type, &node));
	*event = (CUevent)node->work.event.event;
	return CUDA_SUCCESS;
}

static CUresult set_event(CUgraphNode handle, enum work_type type, CUevent event)
{
	struct node *node;

	TRY(node_as(handle, type, &node));
	return event_of(event, &node->work.event.event);
}

API(cuGraphEventRecordNodeGetEvent, CUgraphNode, node, CUevent *, event)
{
	return get_event(node, WORK_EVENT_RECORD, event);
}

API(cuGraphEventRecordNodeSetEvent, CUgraphNode, node, CUevent, event)
{
	return set_event(node, WORK_EVENT_RECORD, event);
}

API(cuGraphEventWaitNodeGetEvent, CUgraphNode, node, CUevent *, event)
{
	return get_event(node, WORK_EVENT_WAIT, event);
}

API(cuGraphEventWaitNodeSetEvent, CUgraphNode, node, CUevent, event)
{
	return set_event(node, WORK_EVENT_WAIT, event);
}

API(cuGraphBatchMemOpNodeGetParams, CUgraphNode, handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_MEM_OPS, &node));
	memset(params, 0, sizeof(*params));
	params->ctx = (CUcontext)node->work.mem.context;
	params->count = node->work.mem.count;
	params->paramArray = node->work.mem.ops;
	return CUDA_SUCCESS;
}

API(cuGraphBatchMemOpNodeSetParams, CUgraphNode, handle, const CUDA_BATCH_MEM_OP_NODE_PARAMS *, params)
{
	CUgraphNodeParams all;
	struct node *node;

	TRY(node_as(handle, WORK_MEM_OPS, &node));
	memset(&all, 0, sizeof(all));
	all.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	memcpy(&all.memOp, params, sizeof(*params));
	return node_set(node, &all);
}

API(cuGraphMemAllocNodeGetParams, CUgraphNode, handle, CUDA_MEM_ALLOC_NODE_PARAMS *, params)
{
	struct node *node;

	TRY(node_as(handle, WORK_ALLOC, &node));
	*params = node->work.alloc.params;
	return CUDA_SUCCESS;
}

API(cuGraphMemFreeNodeGetParams, CUgraphNode, handle, CUdeviceptr *, address)
{
	struct node *node;

	TRY(node_as(handle, WORK_FREE, &node));
	*address = node->work.free.address;
	return CUDA_SUCCESS;
}

API(cuGraphKernelNodeGetAttribute, CUgraphNode, handle, CUkernelNodeAttrID, id, CUkernelNodeAttrValue *, value)
{
	const struct kernel_work *work;
	struct node *node;

	TRY(node_as(handle, WORK_KERNEL, &node));
	work = &node->work.kernel;
	if (!value || (unsigned int)id >= ARRAY_LENGTH(work->attributes))
		return CUDA_ERROR_INVALID_VALUE;
	*value = work->attributes[id];
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		value->cooperative = work->cooperative;
	if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && work->cluster[0] * work->cluster[1] * work->cluster[2] > 1) {
		value->clusterDim.x = work->cluster[0];
		value->clusterDim.y = work->cluster[1];
		value->clusterDim.z = work->cluster[2];
	}
	return CUDA_SUCCESS;
}

API(cuGraphKernelNodeSetAttribute, CUgraphNode, handle, CUkernelNodeAttrID, id, const CUkernelNodeAttrValue *, value)
{
	CUlaunchAttribute attribute;
	struct node *node;

	TRY(node_as(handle, WORK_KERNEL, &node));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&attribute, 0, sizeof(attribute));
	attribute.id = id;
	attribute.value = *value;
	return kernel_attributes(&node->work.kernel, &attribute, 1);
}

API(cuGraphKernelNodeCopyAttributes, CUgraphNode, to, CUgraphNode, from)
{
	struct node *target, *source;

	TRY(node_as(to, WORK_KERNEL, &target));
	TRY(node_as(from, WORK_KERNEL, &source));
	keep_attributes(&target->work, &source->work);
	return CUDA_SUCCESS;
}
