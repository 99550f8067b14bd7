/* SPDX-License-Identifier: Apache-2.0 */
/* Where and in which order graphs run under a policy that changes: `graphs CASE`. */
#include "graph_kit.h"

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

/* 0; 1: it ran on all SMs, for the machine gave the driver so little time that the launch had waited for as long as it may. */
static unsigned int late(CUgraphExec exec, CUstream where, unsigned int wanted)
{
	uint64_t began = client_ns();
	bool has = sms_in(exec, where) == wanted;

	EXPECT(has || client_ns() - began > 200000000);
	return !has;
}

/* A standing share holds for the first launches, too: after an instantiation, after a change, in another stream. */
static void case_first(void)
{
	static const unsigned int sizes[] = {132, 32, 100, 64, 8};
	unsigned int round, tier, missed = 0;
	CUgraphExec exec;
	CUstream other;

	CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (round = 0; round < 4; round++) {
		daemon_tier(1);
		begin();
		CHECK(launch_census(census, BLOCKS));
		exec = executable(end());
		missed += late(exec, stream, 32);
		for (tier = 4; tier; tier--) {
			daemon_tier(tier);
			missed += late(exec, tier & 1 ? other : stream, sizes[tier]);
		}
		CHECK(cuGraphExecDestroy(exec));
	}
	EXPECT(full(DS_FULL_GRAPH) == missed);
}

/* The driver takes its time: a launch waits for it once, and no longer than a quarter of a second. */
static void case_late(void)
{
	CUgraphExec exec;
	uint64_t began;

	daemon_tier(0);
	begin();
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	daemon_tier(3);
	began = client_ns();
	EXPECT(sms(exec) == 132);
	EXPECT(client_ns() - began > 200000000);
	EXPECT(full(DS_FULL_GRAPH) == 1);
	began = client_ns();
	EXPECT(sms(exec) == 132);
	EXPECT(client_ns() - began < 200000000);
	EXPECT(full(DS_FULL_GRAPH) == 2);
	EXPECT(reaches(exec, 64));
}

/* A tier for the time that a higher class is active: nobody waits, and what ran on all SMs is counted. */
static void case_passing(void)
{
	struct ds_slot *higher = &daemon_activity()->slots[5];
	struct ds_policy *policy = daemon_policy();
	unsigned int tries;
	CUgraphExec exec;

	daemon_tier(0);
	begin();
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	EXPECT(sms(exec) == 132);
	higher->class_ = DS_CLASS_HIGH;
	higher->beat = UINT64_MAX / 2;
	__atomic_store_n(&higher->active, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&higher->state, DS_SLOT_LIVE, __ATOMIC_SEQ_CST);
	for (tries = 0; tries < 2000 && !__atomic_load_n(&daemon_activity()->slots[0].word, __ATOMIC_SEQ_CST); tries++)
		usleep(1000);
	__atomic_store_n(&policy->plan, (policy->plan & ~0xff00ULL) | 3 << 8, __ATOMIC_SEQ_CST);
	EXPECT(sms(exec) == 132);
	EXPECT(full(DS_FULL_GRAPH) == 1);
	EXPECT(reaches(exec, 64));
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

static void *end_stream(void *gone)
{
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamDestroy_v2(gone));
	return NULL;
}

/* The stream of the last launch ends in another thread at the moment of the next. */
static void case_handover(void)
{
	unsigned int index, host = 1;
	CUgraphExec exec;

	begin();
	CHECK(launch_mix(mix, 3, 1));
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	EXPECT(sms(exec) == 32);
	daemon_tier(3);
	EXPECT(sms(exec) == 64);
	CHECK(cuMemsetD32Async(value, 1, 1, stream));
	CHECK(cuStreamSynchronize(stream));
	for (index = 0; index < 400; index++) {
		pthread_t thread;
		CUstream first;

		daemon_tier((unsigned int[]){0, 1, 3, 1}[index % 4]);
		CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
		CHECK(cuGraphLaunch(exec, first));
		pthread_create(&thread, NULL, end_stream, first);
		if (index & 1)
			usleep(index % 60);
		CHECK(cuGraphLaunch(exec, stream));
		pthread_join(thread, NULL);
		host = (host * 3 + 1) * 3 + 1;
	}
	EXPECT(read_value() == host);
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

static const struct graph_case cases[] = {
	{"kernel", case_kernel}, {"module", case_module}, {"child", case_child}, {"allocation", case_allocation},
	{"cooperative", case_cooperative}, {"order", case_order}, {"streams", case_streams}, {"memset", case_memset},
	{"handover", case_handover}, {"first", case_first}, {"late", case_late}, {"passing", case_passing},
	{"bound", case_bound}, {"capture", case_capture}, {"ways", case_ways},
};

int main(int argc, char **argv)
{
	return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
