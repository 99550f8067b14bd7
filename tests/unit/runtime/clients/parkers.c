/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that allocate, copy, launch, use graphs and their own default streams and free, each by itself, while memory leaves and comes back:
 * `parkers THREADS ROUNDS`. Each compares what it reads with what it wrote.
 */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "client.h"

#define WORDS (300UL << 10)

static unsigned int rounds;
static _Atomic(unsigned int) working;

static void graph_of(CUstream stream, CUdeviceptr at)
{
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(client_mix(stream, at, 512, 3, 1));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
}

static void *works(void *data)
{
	unsigned int seed = (unsigned int)(uintptr_t)data;
	uint32_t *model = malloc(WORDS * 4), *got = malloc(WORDS * 4);
	CUdeviceptr kept;
	CUstream stream;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&kept, WORDS * 4));
	for (size_t i = 0; i < WORDS; i++)
		model[i] = seed + (uint32_t)i;
	CHECK(cuMemcpyHtoDAsync_v2(kept, model, WORDS * 4, stream));
	for (unsigned int round = 0; round < rounds; round++) {
		uint32_t a = (uint32_t)rand_r(&seed) | 1, b = (uint32_t)rand_r(&seed);
		CUdeviceptr at;

		if (round % 4 == 3) {
			graph_of(stream, kept);
			a = 3;
			b = 1;
		} else {
			CHECK(client_mix(stream, kept, 512, a, b));
		}
		for (size_t i = 0; i < 512; i++)
			model[i] = model[i] * a + b;
		CHECK(cuMemAlloc_v2(&at, WORDS * 4));
		CHECK(cuMemcpyDtoDAsync_v2(at, kept, WORDS * 4, stream));
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuMemcpyDtoH_v2(got, at, WORDS * 4));
		CHECK(cuMemFree_v2(at));
		if (memcmp(got, model, WORDS * 4)) {
			fprintf(stderr, "round %u: the copy is not what was written\n", round);
			exit(1);
		}
		usleep(rand_r(&seed) % 20000);
	}
	CHECK(cuMemFree_v2(kept));
	CHECK(cuStreamDestroy_v2(stream));
	free(model);
	free(got);
	atomic_fetch_sub(&working, 1);
	return NULL;
}

int main(int count, char **arguments)
{
	unsigned int threads = count == 3 ? (unsigned int)atoi(arguments[1]) : 1, refused = 0, tier = 0;
	pthread_t thread[16];

	rounds = count == 3 ? (unsigned int)atoi(arguments[2]) : 1;
	client_start(0);
	atomic_store(&working, threads);
	for (unsigned int n = 0; n < threads && n < 16; n++)
		pthread_create(&thread[n], NULL, works, (void *)(uintptr_t)(n + 1));
	while (atomic_load(&working)) {
		uint32_t reason;

		daemon_tier(tier++ % 4);
		daemon_park(true);
		reason = daemon_park_wait();
		/* each is in a call, or in a capture, now and then, or has freed all */
		EXPECT(reason == DS_PARK_OK || reason == DS_PARK_CAPTURE || reason == DS_PARK_ARENA || reason == DS_PARK_NOTHING);
		refused += reason != DS_PARK_OK;
		usleep(3000);
	}
	for (unsigned int n = 0; n < threads && n < 16; n++)
		pthread_join(thread[n], NULL);
	printf("parks %u refused %u\n", daemon_counters()->parks, refused);
	return 0;
}
