/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs.c and graph_changes.c share: one stream, two kernels, and questions about an executable graph. */
#ifndef GRAPH_KIT_H
#define GRAPH_KIT_H

#include "graph_api.h"

#define BLOCKS 264

static CUstream stream;
static CUdeviceptr where, value;
static CUkernel mix_kernel, census_kernel;

static inline void load_library(void)
{
	CUlibrary library;

	CHECK(cuLibraryLoadData(&library, client_image, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuLibraryGetKernel(&mix_kernel, library, "mix"));
	CHECK(cuLibraryGetKernel(&census_kernel, library, "census"));
}

static inline CUresult launch_census(CUfunction function, unsigned int blocks)
{
	CUdeviceptr none = 0;

	return cuLaunchKernel(function, blocks, 1, 1, 64, 1, 1, 0, stream, (void *[]){&where, &none}, NULL);
}

static inline CUresult launch_mix(CUfunction function, unsigned int a, unsigned int b)
{
	unsigned int count = 1;

	return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&value, &count, &a, &b}, NULL);
}

static inline void begin(void)
{
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static inline CUgraph end(void)
{
	CUgraph graph;

	CHECK(cuStreamEndCapture(stream, &graph));
	return graph;
}

static inline CUgraphExec executable(CUgraph graph)
{
	CUgraphExec exec;

	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static inline unsigned int sms_in(CUgraphExec exec, CUstream in)
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

static inline unsigned int sms(CUgraphExec exec)
{
	return sms_in(exec, stream);
}

/* Launches until the helper thread has made the executable of the tier. */
static inline bool reaches(CUgraphExec exec, unsigned int wanted)
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

static inline unsigned int read_value(void)
{
	unsigned int now;

	CHECK(cuMemcpyDtoHAsync_v2(&now, value, sizeof(now), stream));
	CHECK(cuStreamSynchronize(stream));
	return now;
}

static inline uint64_t full(unsigned int reason)
{
	return daemon_counters()->full_runs[reason];
}

static inline CUgraphNode node(CUgraph graph, size_t index)
{
	CUgraphNode nodes[64];
	size_t count = 64;

	CHECK(cuGraphGetNodes(graph, nodes, &count));
	EXPECT(index < count);
	return nodes[index];
}

static inline unsigned int result_of(CUgraphExec exec)
{
	CHECK(cuMemsetD32Async(value, 1, 1, stream));
	CHECK(cuGraphLaunch(exec, stream));
	return read_value();
}

struct graph_case {
	const char *name;
	void (*run)(void);
};

/* The policy is in force from the start, as for a background tenant. Gives the exit status. */
static inline int run_case(const struct graph_case *cases, unsigned int count, int argc, char **argv)
{
	unsigned int index;

	for (index = 0; index < count; index++) {
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
	fprintf(stderr, "usage: %s CASE\n", argv[0]);
	return 2;
}

#endif
