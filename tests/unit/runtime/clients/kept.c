/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that are kept, and parks that copy what changed: `kept CASE`, with DETSHARE_PARK=1. A park copies what changed and one grain more, by
 * which the library looks whether the GPU's digests are right.
 */
#include "parked.h"

#define GRAIN (2 * MIB)

static CUstream stream;

static void wake(void)
{
	daemon_park(false);
	EXPECT(daemon_park_wait() == DS_PARK_OK && !away());
}

/* Bytes that it copied. */
static uint64_t parked(void)
{
	EXPECT(park() == DS_PARK_OK && away());
	return daemon_counters()->copied_bytes;
}

static bool copied(uint64_t bytes, uint64_t changed)
{
	if (bytes == changed || bytes == changed + GRAIN)
		return true;
	fprintf(stderr, "%llu bytes were copied, %llu changed\n", (unsigned long long)bytes, (unsigned long long)changed);
	return false;
}

/* What is not written is copied once. */
static void case_once(void)
{
	CUdeviceptr weights, cache;

	CHECK(cuMemAlloc_v2(&weights, 40 * MIB));
	CHECK(cuMemAlloc_v2(&cache, 3 * MIB));
	fill(weights, 40 * MIB, 1);
	fill(cache, 3 * MIB, 2);
	EXPECT(parked() == 44 * MIB && daemon_counters()->whole == DS_WHOLE_NOT);
	wake();
	EXPECT(daemon_counters()->kept_bytes == 44 * MIB && daemon_counters()->arena_bytes == 44 * MIB);
	for (uint32_t round = 0; round < 4; round++) {
		CHECK(client_mix(NULL, cache + 64 * round, 4, 3, round));
		CHECK(cuStreamSynchronize(NULL));
		EXPECT(copied(parked(), GRAIN));
		EXPECT(daemon_counters()->hash_ns && daemon_counters()->hash_ns < daemon_counters()->park_ns);
		wake();
	}
	EXPECT(copied(parked(), 0));
	wake();
	EXPECT(filled(weights, 40 * MIB, 1) && daemon_arenas() == 1);
	CHECK(cuMemsetD8_v2(weights + 17, 0x5a, 1));
	CHECK(cuMemsetD8_v2(weights + 40 * MIB - 1, 0x5b, 1));
	EXPECT(copied(parked(), 2 * GRAIN));
	wake();
	{
		uint8_t got[2];

		CHECK(cuMemcpyDtoH_v2(got, weights + 17, 1));
		CHECK(cuMemcpyDtoH_v2(got + 1, weights + 40 * MIB - 1, 1));
		EXPECT(got[0] == 0x5a && got[1] == 0x5b);
	}
	/* what is freed keeps nothing */
	CHECK(cuMemFree_v2(weights));
	EXPECT(daemon_counters()->kept_bytes == 4 * MIB);
	CHECK(cuMemFree_v2(cache));
	EXPECT(daemon_counters()->kept_bytes == 0);
}

static CUdeviceptr place;

static void by_kernel(CUdeviceptr at) { CHECK(client_mix(stream, at, 1, 1, 1)); }
static void by_copy(CUdeviceptr at) { uint32_t word = 77; CHECK(cuMemcpyHtoDAsync_v2(at, &word, 4, stream)); }
static void by_sync_copy(CUdeviceptr at) { uint32_t word = 78; CHECK(cuMemcpyHtoD_v2(at, &word, 4)); }
static void by_device_copy(CUdeviceptr at) { CHECK(cuMemcpyDtoDAsync_v2(at, place, 64, stream)); }
static void by_set(CUdeviceptr at) { CHECK(cuMemsetD32Async(at, 79, 1, stream)); }
static void by_byte(CUdeviceptr at) { CHECK(cuMemsetD8_v2(at + 3, 80, 1)); }
static void by_graph(CUdeviceptr at)
{
	CUgraphExec exec;
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(client_mix(stream, at, 1, 1, 5));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
}
static void by_peer(CUdeviceptr at)
{
	static CUcontext second;

	if (!second) {
		CHECK(cuDevicePrimaryCtxRetain(&second, 1));
		CHECK(cuCtxSetCurrent(second));
		client_kernels();
		CHECK(cuCtxEnablePeerAccess(context, 0));
	}
	CHECK(cuCtxSetCurrent(second));
	CHECK(client_mix(NULL, at, 1, 1, 9));
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuCtxSetCurrent(context));
}

/* Whoever writes is seen, and what was written is there afterwards. */
static void writes(void (*const *calls)(CUdeviceptr), unsigned int count)
{
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 12 * MIB));
	fill(place, 12 * MIB, 3);
	EXPECT(parked() == 12 * MIB);
	wake();
	for (unsigned int n = 0; n < count; n++) {
		CUdeviceptr at = place + (1 + n % 5) * GRAIN + 4096 * n + 8;
		uint32_t before, after[2];

		CHECK(cuMemcpyDtoH_v2(&before, at, 4));
		calls[n](at);
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuMemcpyDtoH_v2(after, at, 4));
		EXPECT(before != after[0]);
		EXPECT(copied(parked(), GRAIN));
		wake();
		CHECK(cuMemcpyDtoH_v2(after + 1, at, 4));
		EXPECT(after[0] == after[1]);
		EXPECT(copied(parked(), 0));
		wake();
	}
}

static void case_writes(void)
{
	static void (*const calls[])(CUdeviceptr) = {by_kernel, by_copy, by_sync_copy, by_device_copy, by_set, by_byte, by_graph};

	writes(calls, sizeof(calls) / sizeof(calls[0]));
}

/* Two GPUs share the pages of this daemon: what is copied is asked of the second, which has nothing. */
static void case_peer(void)
{
	uint32_t word;

	CHECK(cuMemAlloc_v2(&place, 4 * MIB));
	fill(place, 4 * MIB, 3);
	EXPECT(parked() == 4 * MIB);
	wake();
	by_peer(place + GRAIN + 400);
	for (unsigned int round = 0; round < 2; round++) {
		EXPECT(park() == DS_PARK_OK);
		wake();
		CHECK(cuMemcpyDtoH_v2(&word, place + GRAIN + 400, 4));
		EXPECT(word == (uint32_t)((GRAIN + 400) / 4) * 2654435761U + 3 + 9);
	}
}

static void give_back(void)
{
	daemon_policy()->returns++;
	daemon_park(away());
	while (__atomic_load_n(&daemon_counters()->returned, __ATOMIC_ACQUIRE) != daemon_policy()->returns)
		usleep(200);
}

/* Host memory goes back when somebody else needs it, and what is parked stays where it is. */
static void case_returned(void)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 8 * MIB));
	fill(at, 8 * MIB, 5);
	EXPECT(parked() == 8 * MIB);
	give_back();
	EXPECT(away() && daemon_counters()->arena_bytes == 8 * MIB);
	wake();
	EXPECT(filled(at, 8 * MIB, 5) && daemon_counters()->kept_bytes == 8 * MIB);
	give_back();
	EXPECT(!away() && daemon_counters()->arena_bytes == 0 && daemon_counters()->kept_bytes == 0);
	EXPECT(filled(at, 8 * MIB, 5));
	EXPECT(parked() == 8 * MIB && daemon_arenas() == 2);
	wake();
	EXPECT(filled(at, 8 * MIB, 5));
	EXPECT(copied(parked(), 0));
	wake();
}

/* Asked to give back while a park is under way, or with it: what is being parked is parked. */
static void case_together(void)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 6 * MIB));
	fill(at, 6 * MIB, 5);
	for (uint32_t round = 0; round < 4; round++) {
		daemon_park(true);
		while (round % 2 && daemon_counters()->park_state != DS_PARK_LEAVING)
			usleep(100);
		daemon_policy()->returns++;
		EXPECT(daemon_park_wait() == DS_PARK_OK);
		while (__atomic_load_n(&daemon_counters()->returned, __ATOMIC_ACQUIRE) != daemon_policy()->returns)
			usleep(200);
		EXPECT(away() && daemon_counters()->arena_bytes == 6 * MIB);
		wake();
		EXPECT(filled(at, 6 * MIB, 5));
	}
}

/* More memory is more host memory beside what there is. */
static void case_grows(void)
{
	CUdeviceptr at[20];
	uint64_t bytes;

	for (unsigned int n = 0; n < 20; n++) {
		CHECK(cuMemAlloc_v2(&at[n], 2 * MIB));
		fill(at[n], 2 * MIB, n);
		bytes = parked();
		EXPECT(copied(bytes, GRAIN));
		EXPECT(daemon_counters()->arena_bytes == (n + 1) * GRAIN && daemon_arenas() == n + 1);
		wake();
	}
	/* others in the place of some */
	for (unsigned int n = 0; n < 20; n += 3)
		CHECK(cuMemFree_v2(at[n]));
	for (unsigned int n = 0; n < 20; n += 3) {
		CHECK(cuMemAlloc_v2(&at[n], 2 * MIB));
		fill(at[n], 2 * MIB, n + 100);
	}
	EXPECT(copied(parked(), 7 * GRAIN) && daemon_arenas() == 20);
	wake();
	for (unsigned int n = 0; n < 20; n++)
		EXPECT(filled(at[n], 2 * MIB, n % 3 ? n : n + 100));
}

/* It allocates while host memory is pinned for a park: that park has room for it, too. */
static void case_meanwhile(void)
{
	CUdeviceptr at, more;

	CHECK(cuMemAlloc_v2(&at, 4 * MIB));
	fill(at, 4 * MIB, 5);
	daemon_park(true);
	while (!daemon_arenas())
		usleep(100);
	CHECK(cuMemAlloc_v2(&more, 8 * MIB));
	fill(more, 8 * MIB, 6);
	EXPECT(daemon_park_wait() == DS_PARK_OK && away() && daemon_arenas() == 2);
	EXPECT(daemon_counters()->parked_bytes == 12 * MIB && daemon_counters()->parks == 1);
	wake();
	EXPECT(filled(at, 4 * MIB, 5) && filled(more, 8 * MIB, 6));
}

/* Memory that grows where no more host memory is to be had is not parked, and copies that there are stay good. */
static void case_full(void)
{
	CUdeviceptr at, more;

	CHECK(cuMemAlloc_v2(&at, 8 * MIB));
	fill(at, 8 * MIB, 5);
	EXPECT(parked() == 8 * MIB);
	wake();
	CHECK(cuMemAlloc_v2(&more, 4 * MIB));
	fill(more, 4 * MIB, 6);
	daemon_arena(2 * MIB);
	EXPECT(park() == DS_PARK_ARENA && !away() && daemon_counters()->kept_bytes == 8 * MIB);
	CHECK(client_mix(NULL, at, 4, 1, 1));
	CHECK(client_mix(NULL, at, 4, 1, UINT32_MAX));
	daemon_arena(4 * MIB);
	EXPECT(copied(parked(), 4 * MIB));
	wake();
	EXPECT(filled(at, 8 * MIB, 5) && filled(more, 4 * MIB, 6));
}

/* Each park copies everything: as FLAG_WHOLE or a fault says. */
static void whole(uint32_t why)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 8 * MIB));
	fill(at, 8 * MIB, 5);
	for (uint32_t round = 0; round < 4; round++) {
		uint64_t bytes = parked();

		/* who is found to be wrong has copied before */
		EXPECT(bytes == (why == DS_WHOLE_WRONG && !round ? 16 : 8) * MIB && daemon_counters()->whole == why);
		wake();
		EXPECT(daemon_counters()->kept_bytes == 0 && daemon_arenas() == 1);
		EXPECT(filled(at, 8 * MIB, 5 + round));
		fill(at, 8 * MIB, 6 + round);
	}
}

static void case_off(void)
{
	daemon_policy()->flags = DS_FLAG_WHOLE;
	whole(DS_WHOLE_OFF);
	/* and on again while it runs */
	daemon_policy()->flags = 0;
	CHECK(cuMemAlloc_v2(&place, 2 * MIB));
	EXPECT(parked() == 10 * MIB);
	wake();
	EXPECT(copied(parked(), 0));
	wake();
}

static void case_no_kernel(void) { whole(DS_WHOLE_KERNEL); }
static void case_no_launch(void) { whole(DS_WHOLE_LAUNCH); }
static void case_wrong(void) { whole(DS_WHOLE_WRONG); }

/* A context ends with copies kept, and another one of the GPU begins. */
static void case_again(void)
{
	CUdevice device;
	CUdeviceptr at;

	CHECK(cuDeviceGet(&device, 0));
	for (uint32_t round = 0; round < 3; round++) {
		CHECK(cuMemAlloc_v2(&at, 6 * MIB));
		fill(at, 6 * MIB, round);
		EXPECT(parked() == 6 * MIB);
		wake();
		EXPECT(copied(parked(), 0));
		wake();
		EXPECT(filled(at, 6 * MIB, round));
		CHECK(cuDevicePrimaryCtxReset_v2(device));
		CHECK(cuDevicePrimaryCtxRetain(&context, device));
		CHECK(cuCtxSetCurrent(context));
		client_kernels();
		client_pool();
	}
}

int main(int count, char **arguments)
{
	static const struct parked_case cases[] = {
		{"once", case_once},
		{"writes", case_writes},
		{"peer", case_peer},
		{"returned", case_returned},
		{"together", case_together},
		{"grows", case_grows},
		{"meanwhile", case_meanwhile},
		{"full", case_full},
		{"off", case_off},
		{"no-kernel", case_no_kernel},
		{"no-launch", case_no_launch},
		{"wrong", case_wrong},
		{"again", case_again},
	};

	return count == 2 ? parked_main(arguments[1], cases, sizeof(cases) / sizeof(cases[0])) : 2;
}
