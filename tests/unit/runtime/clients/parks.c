/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random allocations, frees, copies, sets, launches and graphs while the daemon parks and fetches at random: `parks SEED STEPS`, or `parks steps`
 * with pairs of numbers on stdin. A model in host memory says what each byte is; all of it is compared at the end, and now and then. With
 * PARKS_SPOIL the model is wrong in one byte.
 */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "client.h"

enum { MOST = 6, STREAMS = 3 };
#define KIB (1UL << 10)

static struct {
	CUdeviceptr at;
	size_t words;
	uint32_t *model;
} blocks[MOST];
static CUstream streams[STREAMS];
static _Atomic(bool) over;
static unsigned int asked;

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);

/* The other side: parks and fetches as fast as it is answered, with pauses. */
static void *daemon_side(void *data)
{
	unsigned int seed = (unsigned int)(uintptr_t)data;

	pthread_setname_np(pthread_self(), "ds-daemon-parks");
	while (!atomic_load(&over)) {
		daemon_park(rand_r(&seed) % 4 != 0);
		daemon_park_wait();
		usleep(rand_r(&seed) % 15000);
	}
	return NULL;
}

static void same(unsigned int n)
{
	uint32_t *got = malloc(blocks[n].words * 4);

	for (unsigned int i = 0; i < STREAMS; i++)
		CHECK(cuStreamSynchronize(streams[i]));
	CHECK(cuMemcpyDtoH_v2(got, blocks[n].at, blocks[n].words * 4));
	for (size_t i = 0; i < blocks[n].words; i++)
		if (got[i] != blocks[n].model[i]) {
			fprintf(stderr, "block %u, word %zu: %u is not what was written: %u\n", n, i, got[i], blocks[n].model[i]);
			exit(1);
		}
	free(got);
}

static void make(unsigned int n, uint32_t number)
{
	size_t pitch;

	/* 64 KiB to 3 MiB; one in 16 of two pieces */
	blocks[n].words = number / 8 % 16 ? 16 * KIB + number / 128 % (752 * KIB) : 8 * KIB * KIB + 64 * KIB;
	if (number % 5 == 0) {
		CHECK(cuMemAllocPitch_v2(&blocks[n].at, &pitch, 4 * KIB, blocks[n].words / KIB, 4));
		EXPECT(pitch == 4 * KIB);
		blocks[n].words = blocks[n].words / KIB * KIB;
	} else {
		CHECK(cuMemAlloc_v2(&blocks[n].at, blocks[n].words * 4));
	}
	blocks[n].model = malloc(blocks[n].words * 4);
	for (size_t i = 0; i < blocks[n].words; i++)
		blocks[n].model[i] = number ^ (uint32_t)(i * 2654435761U);
	CHECK(cuMemcpyHtoD_v2(blocks[n].at, blocks[n].model, blocks[n].words * 4));
}

static void end(unsigned int n)
{
	same(n);
	CHECK(cuMemFree_v2(blocks[n].at));
	free(blocks[n].model);
	blocks[n].at = 0;
}

static void mixed(unsigned int n, size_t from, uint32_t a, uint32_t b)
{
	/* the kernel of the stand-in works on as many words as its second parameter says */
	for (size_t i = from; i < from + 512 && i < blocks[n].words; i++)
		blocks[n].model[i] = blocks[n].model[i] * a + b;
}

static void graph(unsigned int n, size_t from, uint32_t count, CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(client_mix(stream, blocks[n].at + 4 * from, count, 3, 1));
	CHECK(cuMemsetD32Async(blocks[n].at, 77, 5, stream));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
	mixed(n, from, 3, 1);
	for (unsigned int i = 0; i < 5; i++)
		blocks[n].model[i] = 77;
}

static void step(unsigned int what, uint32_t number)
{
	unsigned int n = number % MOST;
	CUstream stream = streams[number / 16 % STREAMS];
	size_t from, left;

	if (what == 8) /* streams move to other SMs as well */
		daemon_tier(number % 4);
	if (what == 9) {
		daemon_park(number % 4 != 0);
		return;
	}
	if (!blocks[n].at) {
		make(n, number);
		return;
	}
	for (unsigned int i = 0; i < STREAMS; i++) /* one order for the model */
		if (streams[i] != stream)
			CHECK(cuStreamSynchronize(streams[i]));
	from = 5 + number / 64 % (blocks[n].words - 5);
	left = blocks[n].words - from;
	switch (what) {
	case 0:
	case 1:
		end(n);
		break;
	case 2:
		same(n);
		break;
	case 3:
		CHECK(cuMemsetD32Async(blocks[n].at + 4 * from, number, left < 1000 ? left : 1000, stream));
		for (size_t i = from; i < from + (left < 1000 ? left : 1000); i++)
			blocks[n].model[i] = number;
		break;
	case 4: {
		unsigned int other = (n + 1) % MOST;
		size_t count = left;

		if (!blocks[other].at)
			break;
		count = count < blocks[other].words ? count : blocks[other].words;
		CHECK(cuMemcpyDtoDAsync_v2(blocks[other].at, blocks[n].at + 4 * from, 4 * count, stream));
		memcpy(blocks[other].model, blocks[n].model + from, 4 * count);
		break;
	}
	case 5:
		graph(n, from, left < 512 ? left : 512, stream);
		break;
	default:
		CHECK(client_mix(stream, blocks[n].at + 4 * from, left < 512 ? left : 512, 5, number));
		mixed(n, from, 5, number);
	}
}

int main(int count, char **arguments)
{
	pthread_t thread;
	bool steps = count > 1 && !strcmp(arguments[1], "steps");
	unsigned int seed = count > 1 ? (unsigned int)atoi(arguments[1]) : 1, what;
	uint32_t number;

	client_start(0);
	for (unsigned int i = 0; i < STREAMS; i++)
		CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	if (steps) {
		while (scanf("%u %u", &what, &number) == 2)
			step(what, number);
	} else {
		pthread_create(&thread, NULL, daemon_side, (void *)(uintptr_t)(seed + 100));
		for (int i = 0; i < atoi(arguments[2]); i++) {
			number = (uint32_t)rand_r(&seed);
			what = (unsigned int)rand_r(&seed) % 9;
			step(what, number);
		}
		atomic_store(&over, true);
		pthread_join(thread, NULL);
	}
	asked = daemon_counters()->parks;
	for (unsigned int n = 0; n < MOST; n++) {
		if (!blocks[n].at)
			continue;
		if (getenv("PARKS_SPOIL"))
			blocks[n].model[blocks[n].words / 2] ^= 1;
		end(n);
	}
	EXPECT(daemon_counters()->parkable_bytes == 0);
	printf("parks %u wakes %u\n", asked, daemon_counters()->wakes);
	return 0;
}
