/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's context can be changed in the graph, never in an executable. A kernel node takes the context that is
 * current when its parameters are set (the field `ctx` alone moves no function of a module); memsets and copies between
 * device memory take the one in their parameters.
 */

#include <stdlib.h>
#include <string.h>

#include "graph_template.h"
#include "log.h"
#include "pool.h"
#include "resident.h"

#define DEPTH 16 /* of children within children */

struct ds_template *ds_template_make(struct ds_device *device, CUgraph graph)
{
	struct ds_template *template = calloc(1, sizeof(*template));

	if (!template)
		return NULL;
	if (!ds_has(cuGraphKernelNodeSetParams_v2) || real->cuGraphClone(&template->graph, graph) != CUDA_SUCCESS) {
		free(template);
		return NULL;
	}
	pthread_mutex_init(&template->lock, NULL);
	template->context = device->primary;
	atomic_init(&template->references, 1);
	return template;
}

void ds_template_get(struct ds_template *template)
{
	atomic_fetch_add_explicit(&template->references, 1, memory_order_relaxed);
}

void ds_template_put(struct ds_template *template)
{
	if (!template || atomic_fetch_sub_explicit(&template->references, 1, memory_order_acq_rel) != 1)
		return;
	if (template->graph)
		real->cuGraphDestroy(template->graph);
	pthread_mutex_destroy(&template->lock);
	free(template);
}

/* The graph's nodes, to be freed; NULL with *count 0 for an empty one, with *count 1 for no memory. */
static CUgraphNode *nodes_of(CUgraph graph, size_t *count)
{
	CUgraphNode *nodes;

	*count = 0;
	if (real->cuGraphGetNodes(graph, NULL, count) != CUDA_SUCCESS || !*count)
		return NULL;
	nodes = calloc(*count, sizeof(*nodes));
	if (nodes && real->cuGraphGetNodes(graph, nodes, count) == CUDA_SUCCESS)
		return nodes;
	free(nodes);
	*count = 1;
	return NULL;
}

struct target {
	struct ds_device *device;
	unsigned int tier;
	CUcontext context;
	int8_t full;
	size_t nodes;
};

/* whether the context is one between which we move nodes: other devices' and the program's own green ones stay */
static bool ours(struct ds_device *device, CUcontext context)
{
	unsigned int tier;

	if (context == device->primary)
		return true;
	for (tier = 1; tier < DS_TIERS; tier++)
		if (ds_pool_ready(device, tier) && ds_pool_ctx(device, tier) == context)
			return true;
	return false;
}

int ds_template_stays(struct ds_device *device, unsigned int tier, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUlaunchAttribute attributes[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION},
		{.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE},
	};
	CUlaunchConfig config = {
		params->gridDimX, params->gridDimY, params->gridDimZ, params->blockDimX, params->blockDimY, params->blockDimZ,
		params->sharedMemBytes, NULL, attributes, 2,
	};
	struct ds_launch launch = {
		.function = params->kern ? (void *)params->kern : (void *)params->func,
		.grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
		.block = {params->blockDimX, params->blockDimY, params->blockDimZ},
		.shared = params->sharedMemBytes,
		.kind = DS_LAUNCH_KERNEL,
		.config = &config,
	};
	unsigned int index;

	for (index = 0; index < 2; index++) {
		CUlaunchAttributeValue value = {.pad = {0}};

		if (real->cuGraphKernelNodeGetAttribute(node, attributes[index].id, &value) == CUDA_SUCCESS)
			attributes[index].value = value;
	}
	return ds_resident_check(device, tier, &launch);
}

/* the device code that updates such a node knows it by its address in one executable */
static bool device_updatable(CUgraphNode node)
{
	CUlaunchAttributeValue value = {.pad = {0}};
	CUresult result;

	result = real->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value);
	return result == CUDA_SUCCESS && *(const int *)value.pad;
}

static CUresult target_kernel(struct target *target, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS params = {.func = NULL};
	CUresult result = real->cuGraphKernelNodeGetParams_v2(node, &params);
	CUcontext wanted = target->context;
	int stays;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ours(target->device, params.ctx))
		return CUDA_SUCCESS;
	if (device_updatable(node))
		return CUDA_ERROR_NOT_SUPPORTED;
	stays = ds_template_stays(target->device, target->tier, node, &params);
	if (stays >= 0) {
		target->full = stays;
		wanted = target->device->primary;
	}
	if (params.ctx == wanted)
		return CUDA_SUCCESS;
	params.ctx = wanted;
	if (params.kern)
		params.func = NULL;
	result = real->cuCtxPushCurrent_v2(wanted);
	if (result != CUDA_SUCCESS)
		return result;
	result = real->cuGraphKernelNodeSetParams_v2(node, &params);
	real->cuCtxPopCurrent_v2(&(CUcontext){NULL});
	return result;
}

/* whether the memory is this device's: another one's is not to be touched from here */
static bool local(const struct target *target, CUdeviceptr address)
{
	const int device_ordinal = 9;
	int ordinal = -1;

	return real->cuPointerGetAttribute(&ordinal, device_ordinal, address) == CUDA_SUCCESS &&
	       ordinal == target->device->ordinal;
}

/* Memsets and copies that stay behind cost the other tenants some SMs for their time, not a wrong result. */
static void target_memset(struct target *target, CUgraphNode node)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

	if (!ds_has(cuGraphNodeSetParams) ||
	    real->cuGraphMemsetNodeGetParams(node, &params.memset.memset) != CUDA_SUCCESS ||
	    !local(target, params.memset.memset.dst))
		return;
	params.memset.ctx = target->context;
	if (real->cuGraphNodeSetParams(node, &params) != CUDA_SUCCESS)
		ds_debug("graph: a memset node stays on the whole GPU");
}

static void target_memcpy(struct target *target, CUgraphNode node)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
	CUDA_MEMCPY3D *copy = &params.memcpy.copyParams;

	if (!ds_has(cuGraphNodeSetParams) || real->cuGraphMemcpyNodeGetParams(node, copy) != CUDA_SUCCESS)
		return;
	/* the others are done by copy engines */
	if (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE || copy->dstMemoryType != CU_MEMORYTYPE_DEVICE ||
	    !local(target, copy->srcDevice) || !local(target, copy->dstDevice))
		return;
	params.memcpy.copyCtx = target->context;
	if (real->cuGraphNodeSetParams(node, &params) != CUDA_SUCCESS)
		ds_debug("graph: a copy node stays on the whole GPU");
}

static CUresult target_graph(struct target *target, CUgraph graph, unsigned int depth)
{
	CUresult result = CUDA_SUCCESS;
	size_t count, index;
	CUgraphNode *nodes = nodes_of(graph, &count);

	if (!nodes)
		return count ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	target->nodes += count;
	for (index = 0; index < count && result == CUDA_SUCCESS; index++) {
		CUgraphNodeType type;
		CUgraph child;

		result = real->cuGraphNodeGetType(nodes[index], &type);
		if (result != CUDA_SUCCESS)
			break;
		switch (type) {
		case CU_GRAPH_NODE_TYPE_KERNEL:
			result = target_kernel(target, nodes[index]);
			break;
		case CU_GRAPH_NODE_TYPE_MEMSET:
			target_memset(target, nodes[index]);
			break;
		case CU_GRAPH_NODE_TYPE_MEMCPY:
			target_memcpy(target, nodes[index]);
			break;
		case CU_GRAPH_NODE_TYPE_GRAPH:
			if (depth == DEPTH)
				result = CUDA_ERROR_NOT_SUPPORTED;
			else if ((result = real->cuGraphChildGraphNodeGetGraph(nodes[index], &child)) == CUDA_SUCCESS)
				result = target_graph(target, child, depth + 1);
			break;
		default:
			break;
		}
	}
	free(nodes);
	return result;
}

CUresult ds_template_target(struct ds_template *template, struct ds_device *device, unsigned int tier, int8_t *full)
{
	struct target target = {.device = device, .tier = tier, .context = ds_pool_ctx(device, tier), .full = -1};
	CUresult result;

	if (!target.context)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = target_graph(&target, template->graph, 0);
	template->nodes = target.nodes;
	template->context = target.context;
	*full = target.full;
	return result;
}

static CUgraphNode find_node(CUgraph graph, CUgraphNode node, unsigned int depth)
{
	CUgraphNode found = NULL, *nodes;
	size_t count, index;

	if (real->cuGraphNodeFindInClone(&found, node, graph) == CUDA_SUCCESS && found)
		return found;
	/* A node of a child graph is known to the clone of that child only. */
	nodes = depth < DEPTH ? nodes_of(graph, &count) : NULL;
	found = NULL;
	for (index = 0; nodes && index < count && !found; index++) {
		CUgraphNodeType type;
		CUgraph child;

		if (real->cuGraphNodeGetType(nodes[index], &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH &&
		    real->cuGraphChildGraphNodeGetGraph(nodes[index], &child) == CUDA_SUCCESS)
			found = find_node(child, node, depth + 1);
	}
	free(nodes);
	return found;
}

CUgraphNode ds_template_node(struct ds_template *template, CUgraphNode node)
{
	return find_node(template->graph, node, 0);
}
