// SPDX-License-Identifier: Apache-2.0
#include "check.h"

static CUdeviceptr p, sm;
static CUgraph graph;
static CUgraphExec exec;

static CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction f, unsigned int blocks, void **params)
{
	CUDA_KERNEL_NODE_PARAMS all;

	memset(&all, 0, sizeof(all));
	all.func = f;
	all.gridDimX = blocks;
	all.gridDimY = all.gridDimZ = all.blockDimY = all.blockDimZ = 1;
	all.blockDimX = 32;
	all.kernelParams = params;
	return all;
}

static CUgraphNode add_mix(CUgraphNode before, unsigned int a, unsigned int b)
{
	unsigned int n = 4;
	void *params[] = { &p, &n, &a, &b };
	CUDA_KERNEL_NODE_PARAMS all = kernel_params(function("mix"), 1, params);
	CUgraphNode node;

	OK(cuGraphAddKernelNode_v2(&node, graph, &before, before ? 1 : 0, &all));
	return node;
}

static void begin(void)
{
	start();
	p = words(16);
	sm = words(132);
	OK(cuGraphCreate(&graph, 0));
}

static void launch(CUstream stream)
{
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
}

static void instantiate(void)
{
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

TEST(nodes_run_in_the_order_of_their_edges)
{
	CUgraphNode a;

	begin();
	a = add_mix(NULL, 3, 1);
	a = add_mix(a, 5, 0);
	add_mix(a, 2, 7);
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(word_at(p) == 47);
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(word_at(p) == (47 * 3 + 1) * 10 + 7);
	CLEAN();
}

TEST(nodes_without_a_path_are_a_race)
{
	begin();
	add_mix(NULL, 3, 1);
	add_mix(NULL, 5, 0);
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	VIOLATED(1, "race: mix");
}

TEST(launches_are_ordered_with_the_stream)
{
	CUstream s, other;

	begin();
	add_mix(NULL, 3, 1);
	instantiate();
	s = stream_new(CU_STREAM_NON_BLOCKING);
	other = stream_new(CU_STREAM_NON_BLOCKING);
	OK(mix(s, p, 7, 0));
	OK(cuGraphLaunch(exec, s));
	OK(mix(s, p, 5, 0));
	OK(cuStreamSynchronize(s));
	CHECK(word_at(p) == 110);
	CLEAN();
	OK(cuGraphLaunch(exec, s));
	OK(mix(other, p, 5, 0));
	OK(cuCtxSynchronize());
	VIOLATED(1, "race: mix");
}

TEST(a_cycle_is_refused)
{
	CUgraphNode a, b;

	begin();
	a = add_mix(NULL, 3, 1);
	b = add_mix(a, 5, 0);
	IS(cuGraphAddDependencies(graph, &b, &a, 1), CUDA_ERROR_INVALID_VALUE);
	IS(cuGraphAddDependencies(graph, &a, &b, 1), CUDA_ERROR_INVALID_VALUE);
}

static unsigned int counted(void)
{
	unsigned int ids[132], n = 0;
	char seen[256] = { 0 };

	OK(cuMemcpyDtoH_v2(ids, sm, sizeof(ids)));
	for (int i = 0; i < 132; i++) {
		n += !seen[ids[i]];
		seen[ids[i]] = 1;
	}
	return n;
}

static CUgraphNode add_census(CUfunction f)
{
	static CUdeviceptr none;
	void *params[] = { &sm, &none };
	CUDA_KERNEL_NODE_PARAMS all = kernel_params(f, 132, params);
	CUgraphNode node;

	OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &all));
	return node;
}

TEST(a_launch_into_a_green_stream_moves_nothing)
{
	begin();
	add_census(function("census"));
	instantiate();
	launch(green_stream(32));
	CHECK(counted() == 132);
}

/* Measured: a clone whose nodes get func = NULL, kern as read and the green context runs there. */
TEST(a_clone_is_retargeted_by_its_kernel)
{
	CUDA_KERNEL_NODE_PARAMS all;
	CUgraphNode node, copy;
	CUcontext green;
	CUlibrary library;
	CUfunction f;
	CUkernel kernel;
	CUgraph clone;

	begin();
	OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "census"));
	OK(cuKernelGetFunction(&f, kernel));
	node = add_census(f);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphNodeFindInClone(&copy, node, clone));
	CHECK(copy != node);
	OK(cuCtxFromGreenCtx(&green, green_new(32, NULL)));
	OK(cuGraphKernelNodeGetParams_v2(copy, &all));
	CHECK(all.kern == kernel);
	all.func = NULL;
	all.ctx = green;
	OK(cuGraphKernelNodeSetParams_v2(copy, &all));
	OK(cuGraphInstantiateWithFlags(&exec, clone, 0));
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(counted() == 32);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(counted() == 132);
	CLEAN();
}

TEST(a_function_of_a_module_ignores_the_context)
{
	CUDA_KERNEL_NODE_PARAMS all;
	CUgraphNode node;
	CUcontext green;

	begin();
	node = add_census(function("census"));
	OK(cuCtxFromGreenCtx(&green, green_new(32, NULL)));
	OK(cuGraphKernelNodeGetParams_v2(node, &all));
	CHECK(!all.kern && all.func == function("census"));
	all.ctx = green;
	OK(cuGraphKernelNodeSetParams_v2(node, &all));
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(counted() == 132);
	all.func = NULL;
	IS(cuGraphKernelNodeSetParams_v2(node, &all), CUDA_ERROR_INVALID_HANDLE);
	OK(cuGraphKernelNodeGetParams_v2(node, &all));
	OK(cuCtxPushCurrent_v2(green));
	OK(cuGraphKernelNodeSetParams_v2(node, &all));
	OK(cuCtxPopCurrent_v2(NULL));
	OK(cuGraphKernelNodeGetParams_v2(node, &all));
	CHECK(all.ctx == green);
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(counted() == 32);
	IS(cuGraphExecKernelNodeSetParams_v2(exec, node, &all), CUDA_ERROR_INVALID_VALUE);
	OK(cuCtxPushCurrent_v2(green));
	OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &all));
}

TEST(a_cooperative_node_too_large_for_its_sms_hangs_the_device)
{
	CUDA_KERNEL_NODE_PARAMS all;
	CUkernelNodeAttrValue value;
	CUgraphNode node;
	CUcontext green;

	begin();
	OK(cuCtxFromGreenCtx(&green, green_new(32, NULL)));
	OK(cuCtxPushCurrent_v2(green));
	all = kernel_params(function("half"), 2000, NULL);
	OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &all));
	memset(&value, 0, sizeof(value));
	value.cooperative = 1;
	OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	VIOLATED(1, "the device hangs");
}

static int destroyed;

static void destroy(void *which)
{
	destroyed = destroyed * 10 + (which ? 2 : 1);
}

TEST(user_objects_live_as_long_as_graphs_clones_and_executables)
{
	CUgraphExecUpdateResultInfo info;
	CUuserObject one, two;
	CUgraph clone, next;

	begin();
	OK(cuUserObjectCreate(&one, NULL, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuUserObjectCreate(&two, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	add_mix(NULL, 3, 1);
	OK(cuGraphRetainUserObject(graph, one, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphInstantiateWithFlags(&exec, clone, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(clone));
	CHECK(destroyed == 0);
	OK(cuGraphCreate(&next, 0));
	graph = next;
	add_mix(NULL, 5, 0);
	OK(cuGraphRetainUserObject(next, two, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphExecUpdate_v2(exec, next, &info));
	CHECK(destroyed == 1);
	OK(cuGraphDestroy(next));
	CHECK(destroyed == 1);
	OK(cuGraphExecDestroy(exec));
	CHECK(destroyed == 12);
}

TEST(graphs_with_memory_or_conditions_are_one_of_a_kind)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	CUgraphNode node;
	CUgraph clone;

	begin();
	memset(&alloc, 0, sizeof(alloc));
	alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	alloc.bytesize = 64;
	OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	OK(cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
	IS(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
	instantiate();
	IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuGraphExecDestroy(exec));
	instantiate();
}

TEST(a_capture_on_a_green_stream_stays_there)
{
	CUdeviceptr none = 0;
	void *params[] = { &sm, &none };
	CUstream g;

	begin();
	g = green_stream(32);
	OK(cuStreamBeginCapture_v2(g, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuLaunchKernel(function("census"), 132, 1, 1, 32, 1, 1, 0, g, params, NULL));
	OK(cuStreamEndCapture(g, &graph));
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(counted() == 32);
}

TEST(an_executable_takes_new_parameters_but_no_new_context)
{
	unsigned int n = 4, a = 10, b = 0;
	void *params[] = { &p, &n, &a, &b };
	CUDA_KERNEL_NODE_PARAMS all;
	CUgraphNode node;
	CUcontext green;
	CUlibrary library;
	CUkernel kernel;

	begin();
	node = add_mix(NULL, 3, 1);
	instantiate();
	all = kernel_params(function("mix"), 1, params);
	OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &all));
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(word_at(p) == 10);
	OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "mix"));
	OK(cuCtxFromGreenCtx(&green, green_new(32, NULL)));
	all.func = NULL;
	all.kern = kernel;
	all.ctx = green;
	IS(cuGraphExecKernelNodeSetParams_v2(exec, node, &all), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_update_needs_the_same_shape)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode node;

	begin();
	node = add_mix(NULL, 3, 1);
	instantiate();
	OK(cuGraphCreate(&graph, 0));
	node = add_mix(NULL, 7, 0);
	OK(cuGraphExecUpdate_v2(exec, graph, &info));
	launch(stream_new(CU_STREAM_NON_BLOCKING));
	CHECK(word_at(p) == 7);
	add_mix(node, 7, 0);
	IS(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

static int called;

static void host(void *data)
{
	called += *(int *)data;
}

TEST(every_kind_of_node_runs)
{
	static int three = 3;
	CUDA_MEMSET_NODE_PARAMS set = { .dst = p, .value = 5, .elementSize = 4, .width = 4, .height = 1 };
	CUDA_HOST_NODE_PARAMS call = { .fn = host, .userData = &three };
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	CUgraphNode memset_node, node, child_node;
	CUDA_MEMCPY3D copy;
	CUgraphNodeType type;
	CUgraph child;
	CUevent e;
	size_t n;

	begin();
	set.dst = p;
	OK(cuGraphAddMemsetNode(&memset_node, graph, NULL, 0, &set, primary));
	OK(cuGraphAddHostNode(&node, graph, &memset_node, 1, &call));
	child = graph;
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddChildGraphNode(&child_node, graph, NULL, 0, child));
	e = event_new(CU_EVENT_DISABLE_TIMING);
	OK(cuGraphAddEventRecordNode(&node, graph, &child_node, 1, e));
	OK(cuGraphAddEmptyNode(&node, graph, &node, 1));
	memset(&alloc, 0, sizeof(alloc));
	alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	alloc.bytesize = 64;
	OK(cuGraphAddMemAllocNode(&node, graph, &node, 1, &alloc));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = p;
	copy.dstDevice = alloc.dptr;
	copy.WidthInBytes = 16;
	copy.Height = copy.Depth = 1;
	OK(cuGraphAddMemcpyNode(&node, graph, &node, 1, &copy, primary));
	copy.srcDevice = alloc.dptr;
	copy.dstDevice = p + 32;
	OK(cuGraphAddMemcpyNode(&node, graph, &node, 1, &copy, primary));
	OK(cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
	OK(cuGraphNodeGetType(node, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEM_FREE);
	OK(cuGraphGetNodes(graph, NULL, &n));
	CHECK(n == 7);
	OK(cuGraphGetRootNodes(graph, NULL, &n));
	CHECK(n == 1);
	OK(cuGraphGetEdges(graph, NULL, NULL, &n));
	CHECK(n == 6);
	instantiate();
	launch(NULL);
	OK(cuEventQuery(e));
	CHECK(word_at(p + 32) == 5 && called == 3);
	launch(NULL);
	CHECK(called == 6);
	CLEAN();
}

TEST(a_disabled_node_does_nothing)
{
	unsigned int enabled;
	CUgraphNode node;

	begin();
	node = add_mix(NULL, 3, 1);
	add_mix(node, 5, 0);
	instantiate();
	OK(cuGraphNodeSetEnabled(exec, node, 0));
	OK(cuGraphNodeGetEnabled(exec, node, &enabled));
	CHECK(!enabled);
	launch(NULL);
	CHECK(word_at(p) == 5);
}

static CUgraphNode add_setter(CUgraph to, CUgraphConditionalHandle handle, unsigned int value)
{
	void *params[] = { &handle, &value };
	CUDA_KERNEL_NODE_PARAMS all = kernel_params(function("condition"), 1, params);
	CUgraphNode node;

	OK(cuGraphAddKernelNode_v2(&node, to, NULL, 0, &all));
	return node;
}

static void with_condition(unsigned int value, CUgraphConditionalNodeType type)
{
	CUgraphConditionalHandle handle;
	CUgraphNodeParams params;
	CUgraphNode node, after;
	CUgraph body, outer;

	begin();
	OK(cuGraphConditionalHandleCreate(&handle, graph, primary, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
	memset(&params, 0, sizeof(params));
	params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = 1;
	params.conditional.ctx = primary;
	OK(cuGraphAddNode(&node, graph, NULL, 0, &params));
	body = params.conditional.phGraph_out[0];
	outer = graph;
	graph = body;
	add_mix(add_setter(body, handle, 0), 3, 1);
	graph = outer;
	after = add_mix(node, 10, 0);
	CHECK(after != node);
	instantiate();
	launch(stream_new(CU_STREAM_NON_BLOCKING));
}

TEST(a_condition_runs_its_body)
{
	with_condition(1, CU_GRAPH_COND_TYPE_IF);
	CHECK(word_at(p) == 40);
	CLEAN();
}

TEST(a_condition_skips_its_body)
{
	with_condition(0, CU_GRAPH_COND_TYPE_IF);
	CHECK(word_at(p) == 10);
	CLEAN();
}

TEST(a_loop_ends_when_its_body_says_so)
{
	with_condition(1, CU_GRAPH_COND_TYPE_WHILE);
	CHECK(word_at(p) == 40);
	launch(NULL);
	CHECK(word_at(p) == 1210);
	CLEAN();
}
