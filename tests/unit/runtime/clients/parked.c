/* SPDX-License-Identifier: Apache-2.0 */
/* Memory leaves the GPU and comes back: `parked CASE`, with DETSHARE_PARK=1. */
#include <stdatomic.h>

#include "parked.h"

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned int flags);

/* Memory leaves, the next launch fetches it, addresses and contents are what they were. */
static void case_round(void)
{
	CUdeviceptr large, odd, small;
	uint32_t word;
	size_t before;

	CHECK(cuMemAlloc_v2(&large, 70 * MIB));
	CHECK(cuMemAlloc_v2(&odd, MIB + 12));
	CHECK(cuMemAlloc_v2(&small, 4096));
	EXPECT(daemon_counters()->parkable_bytes == 72 * MIB && daemon_counters()->leaves_bytes == 71 * MIB + 12);
	EXPECT(daemon_counters()->memory_used == 71 * MIB + 12 + 4096);
	fill(large, 70 * MIB, 1);
	fill(odd, MIB + 12, 2);
	fill(small, 4096, 3);
	before = on_gpu();
	EXPECT(park() == DS_PARK_OK);
	EXPECT(away() && daemon_counters()->parked_bytes == 72 * MIB && daemon_counters()->arena_bytes == 72 * MIB);
	EXPECT(before - on_gpu() == 72 * MIB);
	/* what asks for nothing leaves it there */
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuCtxSynchronize());
	EXPECT(away());
	CHECK(client_mix(NULL, large + 33 * MIB, 1, 2, 5));
	EXPECT(!away() && daemon_counters()->wakes == 1 && daemon_counters()->parked_bytes == 0);
	CHECK(cuMemcpyDtoH_v2(&word, large + 33 * MIB, 4));
	EXPECT(word == (uint32_t)(33 * MIB / 4) * 2654435761U * 2 + 2 + 5);
	word = (uint32_t)(33 * MIB / 4) * 2654435761U + 1;
	CHECK(cuMemcpyHtoD_v2(large + 33 * MIB, &word, 4));
	EXPECT(filled(large, 70 * MIB, 1) && filled(odd, MIB + 12, 2) && filled(small, 4096, 3));
	EXPECT(on_gpu() == before);
	/* the daemon fetches it, without a call of the program */
	EXPECT(park() == DS_PARK_OK && away());
	daemon_park(false);
	EXPECT(daemon_park_wait() == DS_PARK_OK && !away() && on_gpu() == before && daemon_counters()->wakes == 1);
	EXPECT(filled(large, 70 * MIB, 1) && filled(odd, MIB + 12, 2));
	EXPECT(daemon_arenas() == 1); /* it is kept */
	CHECK(cuMemFree_v2(large));
	CHECK(cuMemFree_v2(odd));
	EXPECT(daemon_counters()->parkable_bytes == 0);
	EXPECT(park() == DS_PARK_NOTHING);
}

static CUdeviceptr place;
static CUstream stream;

static void by_launch(void) { CHECK(client_mix(stream, place, 4, 1, 0)); }
static void by_copy(void) { uint32_t word; CHECK(cuMemcpyDtoHAsync_v2(&word, place, 4, stream)); CHECK(cuStreamSynchronize(stream)); }
static void by_sync_copy(void) { uint32_t word; CHECK(cuMemcpyDtoH_v2(&word, place, 4)); }
static void by_set(void) { CHECK(cuMemsetD32Async(place + 64, 7, 4, stream)); CHECK(cuStreamSynchronize(stream)); }
static void by_alloc(void) { CUdeviceptr more; CHECK(cuMemAlloc_v2(&more, 2 * MIB)); CHECK(cuMemFree_v2(more)); }
static void by_small_alloc(void) { CUdeviceptr more; CHECK(cuMemAlloc_v2(&more, 64)); CHECK(cuMemFree_v2(more)); }
static void by_question(void) { unsigned int type; CHECK(cuPointerGetAttribute(&type, 2, place)); EXPECT(type == 2); }
static void by_graph(void)
{
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(client_mix(stream, place, 4, 1, 0));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphDestroy(graph));
}
static void by_new_stream(void)
{
	CUstream other;

	CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	EXPECT(away());
	CHECK(client_mix(other, place, 4, 1, 0));
	CHECK(cuStreamSynchronize(other));
	CHECK(cuStreamDestroy_v2(other));
}

/* Each kind of call that needs memory fetches it, and only then goes on. */
static void case_wakes(void)
{
	static void (*const calls[])(void) = {by_launch, by_copy, by_sync_copy, by_set, by_alloc, by_small_alloc, by_question, by_graph,
					      by_new_stream};

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 5 * MIB));
	fill(place, 5 * MIB, 9);
	for (unsigned int n = 0; n < sizeof(calls) / sizeof(calls[0]); n++) {
		EXPECT(park() == DS_PARK_OK && away());
		calls[n]();
		EXPECT(!away() && daemon_counters()->wakes == n + 1);
	}
	CHECK(cuMemsetD32_v2(place + 64, 0, 4));
	EXPECT(filled(place + 128, 1024, 32 * 2654435761U + 9));
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuMemFree_v2(place));
	EXPECT(!away());
}

/* Whatever refuses a park leaves all as it was. */
static void case_refused(void)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 8 * MIB));
	fill(at, 8 * MIB, 6);
	daemon_arena(4 * MIB);
	EXPECT(park() == DS_PARK_ARENA && !away() && on_gpu() == 8 * MIB);
	EXPECT(filled(at, 8 * MIB, 6));
	daemon_arena(8 * MIB);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(park() == DS_PARK_CAPTURE && !away());
	CHECK(client_mix(stream, at, 1, 1, 0));
	CHECK(cuStreamEndCapture(stream, &(CUgraph){NULL}));
	EXPECT(park() == DS_PARK_OK && away());
	EXPECT(filled(at, 8 * MIB, 6));
}

static void *writes_later(void *word)
{
	usleep(200000);
	__atomic_store_n((uint32_t *)word, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* What runs is waited for; the program's next launch waits for the park and fetches its memory. */
static void case_busy(void)
{
	pthread_t thread;
	uint32_t *word;
	CUdeviceptr at, seen;

	CHECK(cuMemAlloc_v2(&at, 4 * MIB));
	fill(at, 4 * MIB, 6);
	CHECK(cuMemHostAlloc((void **)&word, 4096, 2));
	CHECK(cuMemHostGetDevicePointer_v2(&seen, word, 0));
	*word = 0;
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamWaitValue32_v2(stream, seen, 1, 1));
	CHECK(client_mix(stream, at, 4, 3, 1));
	daemon_park(true);
	while (daemon_counters()->park_state != DS_PARK_LEAVING)
		usleep(100);
	pthread_create(&thread, NULL, writes_later, word);
	CHECK(client_mix(stream, at, 4, 5, 2));
	EXPECT(__atomic_load_n(word, __ATOMIC_SEQ_CST) == 1 && daemon_counters()->parks == 1);
	EXPECT(daemon_park_wait() == DS_PARK_OK);
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemsetD32_v2(at, 0, 0));
	{
		uint32_t got[2];

		CHECK(cuMemcpyDtoH_v2(got, at + 12, sizeof(got)));
		EXPECT(got[0] == ((3 * 2654435761U + 6) * 3 + 1) * 5 + 2 && got[1] == 4 * 2654435761U + 6);
	}
	pthread_join(thread, NULL);
	/* and what never ends ends the park */
	*word = 0;
	CHECK(cuStreamWaitValue32_v2(stream, seen, 1, 1));
	EXPECT(park() == DS_PARK_BUSY && !away());
	*word = 1;
	CHECK(cuStreamSynchronize(stream));
}

static _Atomic(bool) through;

static void *launches(void *unused)
{
	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	CHECK(client_mix(stream, place, 4, 1, 0));
	CHECK(cuStreamSynchronize(stream));
	atomic_store(&through, true);
	return NULL;
}

/* A full GPU: the program waits, and loses nothing. */
static void case_full(void)
{
	const char *path = getenv("FAKECUDA_TAKEN");
	FILE *file;
	pthread_t thread;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 100 * MIB));
	fill(place, 100 * MIB, 8);
	EXPECT(park() == DS_PARK_OK);
	file = fopen(path, "w");
	/* two of its four pieces would fit */
	fprintf(file, "%lu", (80UL << 30) - found - 70 * MIB);
	fclose(file);
	daemon_park(false);
	pthread_create(&thread, NULL, launches, NULL);
	while (daemon_counters()->park_state != DS_PARK_WAITING)
		usleep(100);
	usleep(20000);
	EXPECT(!atomic_load(&through) && on_gpu() == (80UL << 30) - found - 70 * MIB && daemon_counters()->parked_bytes == 100 * MIB);
	unlink(path);
	pthread_join(thread, NULL);
	EXPECT(daemon_park_wait() == DS_PARK_OK);
	EXPECT(filled(place, 100 * MIB, 8));
}

/* A paused program stays away, whatever it launches, until it is let go. */
static void case_held(void)
{
	uint32_t *word = &daemon_activity()->slots[0].word;
	pthread_t thread;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 2 * MIB));
	fill(place, 2 * MIB, 8);
	EXPECT(park() == DS_PARK_OK);
	daemon_policy()->lease_ns = UINT64_MAX;
	__atomic_fetch_or(word, DS_HELD, __ATOMIC_SEQ_CST);
	pthread_create(&thread, NULL, launches, NULL);
	usleep(100000);
	EXPECT(away() && !atomic_load(&through));
	__atomic_fetch_and(word, ~DS_HELD, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	EXPECT(filled(place, 2 * MIB, 8));
}

/* What is queued behind a gate for a higher class runs to its end first; the higher class has the GPU again afterwards. */
static void case_below(void)
{
	struct ds_slot *higher = &daemon_activity()->slots[1];
	struct ds_policy *policy = daemon_policy();
	uint32_t got;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 2 * MIB));
	fill(place, 2 * MIB, 8);
	policy->epoch++;
	policy->gate_us = 1;
	policy->depth = 64;
	__atomic_store_n(&policy->plan, (uint64_t)DS_MODE_HOLD << 16 | (uint64_t)(policy->epoch + 1) << 32, __ATOMIC_SEQ_CST);
	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
	while (daemon_counters()->epoch_ack != policy->epoch)
		usleep(100);
	higher->class_ = DS_CLASS_HIGH;
	higher->beat = UINT64_MAX / 2;
	higher->state = DS_SLOT_LIVE;
	__atomic_store_n(&higher->active, 1, __ATOMIC_SEQ_CST);
	CHECK(client_mix(stream, place, 1, 2, 1));
	while (!__atomic_load_n(&daemon_activity()->slots[0].word, __ATOMIC_SEQ_CST))
		usleep(100);
	for (unsigned int n = 0; n < 8; n++)
		CHECK(client_mix(stream, place, 1, 2, 1));
	usleep(20000);
	EXPECT(cuStreamQuery(stream) == 600);
	EXPECT(park() == DS_PARK_OK && away());
	__atomic_store_n(&higher->active, 0, __ATOMIC_SEQ_CST);
	CHECK(cuMemcpyDtoH_v2(&got, place, 4));
	EXPECT(got == 8 * 512 + 511);
}

/* The context ends while its memory is away; the next one starts with none of it. */
static void case_ends(void)
{
	size_t first = found;
	CUdeviceptr at;

	for (unsigned int round = 0; round < 3; round++) {
		CHECK(cuMemAlloc_v2(&at, 40 * MIB));
		fill(at, 40 * MIB, round);
		EXPECT(park() == DS_PARK_OK && on_gpu() == 0);
		CHECK(round == 1 ? cuDevicePrimaryCtxReset_v2(0) : cuDevicePrimaryCtxRelease_v2(0));
		CHECK(cuDevicePrimaryCtxRetain(&context, 0));
		if (round == 1)
			CHECK(cuDevicePrimaryCtxRelease_v2(0)); /* the reset took no reference */
		CHECK(cuCtxSetCurrent(context));
		client_kernels();
		settled();
		EXPECT(found == first);
		/* nothing waits */
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		CHECK(cuStreamSynchronize(stream));
	}
}

/* A context that ends stops the copies of a park: all that is theirs goes with it. Rounds, for all may be copied before this thread comes to end it. */
static void case_stops(void)
{
	for (unsigned int round = 0; round < 5; round++) {
		CUdeviceptr at;

		CHECK(cuMemAlloc_v2(&at, 320 * MIB));
		CHECK(cuMemsetD32_v2(at, 1, 80 * MIB));
		EXPECT(park() == DS_PARK_OK && daemon_counters()->kept_bytes == 320 * MIB);
		CHECK(cuMemsetD32_v2(at, 2, 80 * MIB));
		daemon_park(true);
		/* what is about to be copied is kept no longer */
		while (__atomic_load_n(&daemon_counters()->kept_bytes, __ATOMIC_ACQUIRE))
			usleep(100);
		CHECK(cuDevicePrimaryCtxRelease_v2(0));
		EXPECT(daemon_counters()->park_ack == daemon_policy()->park);
		if (daemon_counters()->park_reason == DS_PARK_DRIVER)
			return;
		CHECK(cuDevicePrimaryCtxRetain(&context, 0));
		CHECK(cuCtxSetCurrent(context));
		client_kernels();
		settled();
	}
	EXPECT(!"it stopped");
}

static void case_off(void)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 2 * MIB));
	EXPECT(daemon_counters()->parkable_bytes == 0);
	EXPECT(park() == DS_PARK_OFF);
}

int main(int count, char **arguments)
{
	static const struct parked_case cases[] = {
		{"round", case_round},
		{"wakes", case_wakes},
		{"refused", case_refused},
		{"busy", case_busy},
		{"full", case_full},
		{"held", case_held},
		{"below", case_below},
		{"ends", case_ends},
		{"stops", case_stops},
		{"off", case_off},
	};

	return count == 2 ? parked_main(arguments[1], cases, sizeof(cases) / sizeof(cases[0])) : 2;
}
