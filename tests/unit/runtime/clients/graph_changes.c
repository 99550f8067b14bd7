/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of executable graphs, and what they keep alive, under a policy that changes: `graph_changes CASE`. */
#include "graph_kit.h"

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

static const struct graph_case cases[] = {
	{"update", case_update}, {"update_always", case_update_always}, {"parameters", case_parameters},
	{"enabled", case_enabled}, {"user_objects", case_user_objects}, {"destroy", case_destroy},
};

int main(int argc, char **argv)
{
	return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
