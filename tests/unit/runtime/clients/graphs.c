/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs under a policy that changes: `graphs CASE`. The policy is in force from the start, as for a background tenant. */
#include "graph_api.h"

#define BLOCKS 264

static CUstream stream;
static CUdeviceptr where, value;
static CUkernel mix_kernel, census_kernel;

static void load_library(void)
{
	static const char image[] = "fakecuda 1\n"
				    "kernel census params=8,8 duration_us=5\n"
				    "kernel mix params=8,4,4,4 duration_us=5\n";
	CUlibrary library;

	CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuLibraryGetKernel(&mix_kernel, library, "mix"));
	CHECK(cuLibraryGetKernel(&census_kernel, library, "census"));
}

static CUresult launch_census(CUfunction function, unsigned int blocks)
{
	CUdeviceptr none = 0;

	return cuLaunchKernel(function, blocks, 1, 1, 64, 1, 1, 0, stream, (void *[]){&where, &none}, NULL);
}

static CUresult launch_mix(CUfunction function, unsigned int a, unsigned int b)
{
	unsigned int count = 1;

	return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&value, &count, &a, &b}, NULL);
}

static void begin(void)
{
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static CUgraph end(void)
{
	CUgraph graph;

	CHECK(cuStreamEndCapture(stream, &graph));
	return graph;
}

static CUgraphExec executable(CUgraph graph)
{
	CUgraphExec exec;

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static unsigned int sms_in(CUgraphExec exec, CUstream in)
{
	uint32_t ids[BLOCKS];
	unsigned char seen[1024] = {0};
	unsigned int index, count = 0;

	CHECK(cuMemsetD32Async(where, 0xffffffff, sizeof(ids) / 4, in));
	CHECK(cuGraphLaunch(exec, in));
	CHECK(cuMemcpyDtoHAsync_v2(ids, where, sizeof(ids), in));
	CHECK(cuStreamSynchronize(in));
	for (index = 0; index < BLOCKS; index++)
		if (ids[index] < sizeof(seen) && !seen[ids[index]]++)
			count++;
	return count;
}

static unsigned int sms(CUgraphExec exec)
{
	return sms_in(exec, stream);
}

/* Launches until the helper thread has made the executable of the tier. */
static bool reaches(CUgraphExec exec, unsigned int wanted)
{
	unsigned int tries;

	for (tries = 0; tries < 2000; tries++) {
		if (sms(exec) == wanted)
			return true;
		usleep(1000);
	}
	fprintf(stderr, "%u SMs where %u were wanted\n", sms(exec), wanted);
	return false;
}

static unsigned int read_value(void)
{
	unsigned int now;

	CHECK(cuMemcpyDtoHAsync_v2(&now, value, sizeof(now), stream));
	CHECK(cuStreamSynchronize(stream));
	return now;
}

static uint64_t full(unsigned int reason)
{
	return daemon_counters()->full_runs[reason];
}

static CUgraphNode node(CUgraph graph, size_t index)
{
	CUgraphNode nodes[64];
	size_t count = 64;

	CHECK(cuGraphGetNodes(graph, nodes, &count));
	EXPECT(index < count);
	return nodes[index];
}

/* ---- where the nodes run ---- */

static void follows(CUfunction function)
{
	CUgraphExec exec;
	CUgraph graph;
	uint64_t before;

	begin();
	CHECK(launch_census(function, BLOCKS));
	graph = end();
	exec = executable(graph);
	/* The program may forget its graph at once. */
	CHECK(cuGraphDestroy(graph));
	EXPECT(reaches(exec, 32));
	before = full(DS_FULL_GRAPH);
	EXPECT(sms(exec) == 32);
	EXPECT(sms(exec) == 32);
	EXPECT(full(DS_FULL_GRAPH) == before);
	daemon_tier(3);
	EXPECT(reaches(exec, 64));
	daemon_tier(0);
	EXPECT(sms(exec) == 132);
	daemon_tier(1);
	EXPECT(sms(exec) == 32);
	daemon_tier(2);
	EXPECT(reaches(exec, 100));
	CHECK(cuGraphExecDestroy(exec));
}

static void case_kernel(void)
{
	follows((CUfunction)census_kernel);
}

static void case_module(void)
{
	follows(census);
}

static void case_child(void)
{
	CUgraph inner, middle, outer;
	CUgraphNode child;
	CUgraphExec exec;

	begin();
	CHECK(launch_census(census, BLOCKS));
	inner = end();
	CHECK(cuGraphCreate(&middle, 0));
	CHECK(cuGraphAddChildGraphNode(&child, middle, NULL, 0, inner));
	CHECK(cuGraphCreate(&outer, 0));
	CHECK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, middle));
	exec = executable(outer);
	EXPECT(reaches(exec, 32));
	daemon_tier(3);
	EXPECT(reaches(exec, 64));
}

/* Graphs with allocations cannot be cloned: they run on the whole GPU, and that is counted. */
static void case_allocation(void)
{
	CUgraphExec exec;
	CUdeviceptr address;
	uint64_t before = full(DS_FULL_GRAPH);

	begin();
	CHECK(cuMemAllocAsync(&address, 4096, stream));
	CHECK(launch_census(census, BLOCKS));
	CHECK(cuMemFreeAsync(address, stream));
	exec = executable(end());
	EXPECT(sms(exec) == 132);
	EXPECT(sms(exec) == 132);
	EXPECT(full(DS_FULL_GRAPH) == before + 2);
	EXPECT(daemon_counters()->memory_used < 4096 * 64);
}

/* A cooperative grid that 32 SMs cannot hold would hang there: its node stays behind, the others move. */
static void case_cooperative(void)
{
	CUkernelNodeAttrValue yes = {.cooperative = 1};
	CUdeviceptr none = 0;
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = census, .gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1024, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = (void *[]){&where, &none},
	};
	CUgraph graph;
	CUgraphNode added;
	CUgraphExec exec;
	uint64_t before;
	unsigned int tries;

	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphAddKernelNode_v2(&added, graph, NULL, 0, &params));
	CHECK(cuGraphKernelNodeSetAttribute(added, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &yes));
	exec = executable(graph);
	before = full(DS_FULL_COOPERATIVE);
	for (tries = 0; tries < 2000 && full(DS_FULL_COOPERATIVE) == before; tries++) {
		EXPECT(sms(exec) == 132);
		usleep(1000);
	}
	EXPECT(full(DS_FULL_COOPERATIVE) > before);
	EXPECT(sms(exec) == 132);
}

/* ---- order ---- */

static void case_order(void)
{
	unsigned int index, host = 1;
	CUgraphExec exec;

	CHECK(cuMemsetD32Async(value, 1, 1, stream));
	begin();
	CHECK(launch_mix(mix, 3, 1));
	CHECK(launch_mix((CUfunction)mix_kernel, 5, 2));
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	for (index = 0; index < 3; index++) {
		daemon_tier(index ? 2 * index - 1 : 0);
		EXPECT(reaches(exec, index == 0 ? 132 : index == 1 ? 32 : 64));
	}
	CHECK(cuMemsetD32Async(value, 1, 1, stream));
	for (index = 0; index < 300; index++) {
		daemon_tier(index % 3 ? 2 * (index % 3) - 1 : 0);
		CHECK(cuGraphLaunch(exec, stream));
		CHECK(launch_mix(mix, 7, 3));
		host = ((host * 3 + 1) * 5 + 2) * 7 + 3;
	}
	EXPECT(read_value() == host);
}

/* The driver orders launches of one executable in different streams; with us these are different executables. */
static void case_streams(void)
{
	unsigned int index, host = 1;
	CUstream streams[3];
	CUgraphExec exec;

	begin();
	CHECK(launch_mix(mix, 3, 1));
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	EXPECT(reaches(exec, 32));
	daemon_tier(3);
	EXPECT(reaches(exec, 64));
	CHECK(cuMemsetD32Async(value, 1, 1, stream));
	CHECK(cuStreamSynchronize(stream));
	for (index = 0; index < 3; index++)
		CHECK(cuStreamCreate(&streams[index], CU_STREAM_NON_BLOCKING));
	for (index = 0; index < 200; index++) {
		daemon_tier((unsigned int[]){0, 1, 3, 1}[index % 4]);
		CHECK(cuGraphLaunch(exec, streams[index % 3]));
		host = host * 3 + 1;
		/* one that is gone has still to be waited for */
		if (index % 10 == 9) {
			CHECK(cuStreamDestroy_v2(streams[index % 3]));
			CHECK(cuStreamCreate(&streams[index % 3], CU_STREAM_NON_BLOCKING));
		}
	}
	CHECK(cuCtxSynchronize());
	EXPECT(read_value() == host);
}

/* ---- changes ---- */

static unsigned int result_of(CUgraphExec exec)
{
	CHECK(cuMemsetD32Async(value, 1, 1, stream));
	CHECK(cuGraphLaunch(exec, stream));
	return read_value();
}

static void case_update(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUgraph graph;
	unsigned int index;

	for (index = 0; index < 8; index++) {
		begin();
		CHECK(launch_mix(index & 1 ? mix : (CUfunction)mix_kernel, 3, 1));
		CHECK(launch_census(census, BLOCKS));
		exec = executable(end());
		if (index & 2)
			EXPECT(reaches(exec, 32));
		begin();
		CHECK(launch_mix(index & 1 ? mix : (CUfunction)mix_kernel, 100 + index, 7));
		CHECK(launch_census(census, BLOCKS));
		graph = end();
		CHECK(cuGraphExecUpdate_v2(exec, graph, &info));
		CHECK(cuGraphDestroy(graph));
		EXPECT(result_of(exec) == 100 + index + 7);
		/* The variant that ran last follows at once. */
		if (index & 2)
			EXPECT(sms(exec) == 32);
		EXPECT(reaches(exec, 32));
		EXPECT(result_of(exec) == 100 + index + 7);
		daemon_tier(3);
		EXPECT(reaches(exec, 64));
		EXPECT(result_of(exec) == 100 + index + 7);
		daemon_tier(1);
		CHECK(cuGraphExecDestroy(exec));
	}
}

/* A program that changes its graph before each launch: the variant comes in time all the same. */
static void case_update_always(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUgraph graph;
	unsigned int index;

	begin();
	CHECK(launch_mix(mix, 3, 1));
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	for (index = 0; index < 50; index++) {
		begin();
		CHECK(launch_mix(mix, index, 7));
		CHECK(launch_census(census, BLOCKS));
		graph = end();
		CHECK(cuGraphExecUpdate_v2(exec, graph, &info));
		CHECK(cuGraphDestroy(graph));
		CHECK(cuMemsetD32Async(value, 1, 1, stream));
		if (index > 3)
			EXPECT(sms(exec) == 32);
		else
			sms(exec);
		EXPECT(read_value() == index + 7);
	}
}

static void set_mix(CUgraphExec exec, CUgraphNode at, unsigned int how, unsigned int a)
{
	unsigned int count = 1, b = 7;
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = mix, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = (void *[]){&value, &count, &a, &b},
	};
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

	switch (how) {
	case 0:
		CHECK(cuGraphExecKernelNodeSetParams(exec, at, (const CUDA_KERNEL_NODE_PARAMS_v1 *)&params));
		break;
	case 1:
		CHECK(cuGraphExecKernelNodeSetParams_v2(exec, at, &params));
		break;
	case 2:
		params.func = NULL;
		params.kern = mix_kernel;
		params.ctx = context;
		CHECK(cuGraphExecKernelNodeSetParams_v2(exec, at, &params));
		break;
	default:
		any.kernel = params;
		CHECK(cuGraphExecNodeSetParams(exec, at, &any));
		break;
	}
}

static void case_parameters(void)
{
	unsigned int how;

	for (how = 0; how < 4; how++) {
		CUgraphExec exec;
		CUgraph graph;
		unsigned int round;

		daemon_tier(1);
		begin();
		CHECK(launch_mix(how == 2 ? (CUfunction)mix_kernel : mix, 3, 1));
		CHECK(launch_census(census, BLOCKS));
		graph = end();
		exec = executable(graph);
		EXPECT(reaches(exec, 32));
		for (round = 0; round < 3; round++) {
			set_mix(exec, node(graph, 0), how, 100 * how + round);
			EXPECT(result_of(exec) == 100 * how + round + 7);
			EXPECT(sms(exec) == 32);
		}
		/* made after the change */
		daemon_tier(3);
		EXPECT(reaches(exec, 64));
		EXPECT(result_of(exec) == 100 * how + 2 + 7);
		daemon_tier(0);
		EXPECT(result_of(exec) == 100 * how + 2 + 7);
		/* changed while another tier runs */
		set_mix(exec, node(graph, 0), how, 5);
		daemon_tier(1);
		EXPECT(sms(exec) == 32);
		EXPECT(result_of(exec) == 12);
	}
}

static void case_memset(void)
{
	CUDA_MEMSET_NODE_PARAMS params = {.value = 41, .elementSize = 4, .width = 1, .height = 1};
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	CUgraphNode set, last;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr none = 0;
	CUDA_KERNEL_NODE_PARAMS counted = {
		.func = census, .gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1,
		.blockDimZ = 1, .kernelParams = (void *[]){&where, &none},
	};

	params.dst = value;
	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &params, context));
	CHECK(cuGraphAddKernelNode_v2(&last, graph, &set, 1, &counted));
	exec = executable(graph);
	EXPECT(reaches(exec, 32));
	EXPECT(read_value() == 41);
	params.value = 42;
	CHECK(cuGraphExecMemsetNodeSetParams(exec, set, &params, context));
	EXPECT(sms(exec) == 32);
	EXPECT(read_value() == 42);
	params.value = 43;
	any.memset.memset = params;
	any.memset.ctx = context;
	CHECK(cuGraphExecNodeSetParams(exec, set, &any));
	EXPECT(sms(exec) == 32);
	EXPECT(read_value() == 43);
	daemon_tier(3);
	EXPECT(reaches(exec, 64));
	EXPECT(read_value() == 43);
}

static void case_enabled(void)
{
	CUgraphExec exec;
	CUgraph graph;

	begin();
	CHECK(launch_mix(mix, 3, 1));
	CHECK(launch_mix(mix, 10, 0));
	CHECK(launch_census(census, BLOCKS));
	graph = end();
	exec = executable(graph);
	EXPECT(reaches(exec, 32));
	EXPECT(result_of(exec) == 40);
	CHECK(cuGraphNodeSetEnabled(exec, node(graph, 1), 0));
	EXPECT(result_of(exec) == 4);
	daemon_tier(3);
	EXPECT(reaches(exec, 64));
	EXPECT(result_of(exec) == 4);
	CHECK(cuGraphNodeSetEnabled(exec, node(graph, 1), 1));
	EXPECT(result_of(exec) == 40);
	daemon_tier(1);
	EXPECT(result_of(exec) == 40);
	EXPECT(sms(exec) == 32);
}

/* ---- lives ---- */

static void destroyed(void *count)
{
	__atomic_fetch_add((int *)count, 1, __ATOMIC_SEQ_CST);
}

static bool settles(int *count, int wanted)
{
	unsigned int tries;

	for (tries = 0; tries < 1000 && __atomic_load_n(count, __ATOMIC_SEQ_CST) != wanted; tries++)
		usleep(1000);
	return __atomic_load_n(count, __ATOMIC_SEQ_CST) == wanted;
}

static void case_user_objects(void)
{
	static int first, second;
	CUgraphExecUpdateResultInfo info;
	CUuserObject object;
	CUgraphExec exec;
	CUgraph graph;

	begin();
	CHECK(launch_census(census, BLOCKS));
	graph = end();
	CHECK(cuUserObjectCreate(&object, &first, destroyed, 1, 1));
	CHECK(cuGraphRetainUserObject(graph, object, 1, 1));
	exec = executable(graph);
	EXPECT(reaches(exec, 32));
	CHECK(cuGraphDestroy(graph));
	EXPECT(first == 0);
	begin();
	CHECK(launch_census(census, BLOCKS));
	graph = end();
	CHECK(cuUserObjectCreate(&object, &second, destroyed, 1, 1));
	CHECK(cuGraphRetainUserObject(graph, object, 1, 1));
	CHECK(cuGraphExecUpdate_v2(exec, graph, &info));
	CHECK(cuGraphDestroy(graph));
	/* as without us: an update gives up what the executable held before */
	EXPECT(settles(&first, 1));
	EXPECT(sms(exec) == 32);
	EXPECT(second == 0);
	CHECK(cuGraphExecDestroy(exec));
	EXPECT(settles(&second, 1));
}

/* Ends while the helper is at it; the code goes right after. */
static void case_destroy(void)
{
	static const char image[] = "fakecuda 1\nkernel census params=8,8 duration_us=5\n";
	unsigned int index;

	for (index = 0; index < 60; index++) {
		CUgraphExec execs[4];
		CUfunction function;
		CUmodule module;
		CUgraph graph;
		unsigned int each;

		CHECK(cuModuleLoadData(&module, image));
		CHECK(cuModuleGetFunction(&function, module, "census"));
		begin();
		for (each = 0; each < 64; each++)
			CHECK(launch_census(function, BLOCKS));
		graph = end();
		daemon_tier(1 + index % 3);
		for (each = 0; each < 4; each++)
			execs[each] = executable(graph);
		CHECK(cuGraphLaunch(execs[index % 4], stream));
		CHECK(cuGraphDestroy(graph));
		if (index % 2)
			CHECK(cuStreamSynchronize(stream));
		for (each = 0; each < 4; each++)
			CHECK(cuGraphExecDestroy(execs[each]));
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuModuleUnload(module));
	}
}

/* Room for three variants of two nodes each, for eight graphs: the oldest go, and come back. */
static void case_bound(void)
{
	CUgraphExec execs[8];
	unsigned int index, round;

	setenv("DETSHARE_GRAPH_NODES", "6", 1);
	for (index = 0; index < 8; index++) {
		begin();
		CHECK(launch_mix(mix, index, 1));
		CHECK(launch_census(census, BLOCKS));
		execs[index] = executable(end());
	}
	for (round = 0; round < 3; round++)
		for (index = 0; index < 8; index++) {
			if (round)
				EXPECT(sms(execs[index]) == 132);
			EXPECT(reaches(execs[index], 32));
			EXPECT(result_of(execs[index]) == index + 1);
		}
}

static void case_capture(void)
{
	CUgraphExec inner, outer;
	CUgraph graph;
	size_t count = 0;

	begin();
	CHECK(launch_census(census, BLOCKS));
	inner = executable(end());
	EXPECT(reaches(inner, 32));
	begin();
	CHECK(cuGraphLaunch(inner, stream));
	graph = end();
	CHECK(cuGraphGetNodes(graph, NULL, &count));
	EXPECT(count == 1);
	outer = executable(graph);
	EXPECT(reaches(outer, 32));
	daemon_tier(0);
	EXPECT(sms(outer) == 132);
}

static void *other_thread(void *exec)
{
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuGraphLaunch_ptsz(exec, NULL));
	CHECK(cuStreamSynchronize_ptsz(NULL));
	return NULL;
}

/* default streams, uploads, and the old ways to instantiate */
static void case_ways(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
	CUgraphExec execs[3];
	pthread_t thread;
	CUgraph graph;
	unsigned int index;

	begin();
	CHECK(launch_census(census, BLOCKS));
	graph = end();
	CHECK(cuGraphInstantiate_v2(&execs[0], graph, NULL, NULL, 0));
	params.hUploadStream = stream;
	CHECK(cuGraphInstantiateWithParams(&execs[1], graph, &params));
	EXPECT(params.hUploadStream == stream);
	CHECK(cuGraphInstantiateWithFlags(&execs[2], graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
	CHECK(cuGraphUpload(execs[2], stream));
	for (index = 0; index < 3; index++) {
		EXPECT(reaches(execs[index], 32));
		EXPECT(sms_in(execs[index], NULL) == 32);
		CHECK(pthread_create(&thread, NULL, other_thread, execs[index]));
		pthread_join(thread, NULL);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"kernel", case_kernel}, {"module", case_module}, {"child", case_child}, {"allocation", case_allocation},
	{"cooperative", case_cooperative}, {"order", case_order}, {"streams", case_streams}, {"update", case_update},
	{"update_always", case_update_always}, {"parameters", case_parameters}, {"memset", case_memset},
	{"enabled", case_enabled}, {"user_objects", case_user_objects}, {"destroy", case_destroy}, {"bound", case_bound},
	{"capture", case_capture}, {"ways", case_ways},
};

int main(int argc, char **argv)
{
	unsigned int index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
		if (argc != 2 || strcmp(argv[1], cases[index].name))
			continue;
		client_start(1);
		client_pool();
		daemon_tier(1);
		load_library();
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(cuMemAlloc_v2(&where, BLOCKS * 4));
		CHECK(cuMemAlloc_v2(&value, 256));
		cases[index].run();
		return 0;
	}
	fprintf(stderr, "usage: graphs CASE\n");
	return 2;
}
