/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads launch into the same streams while the tier changes. Each thread's order shows in its own words; the total order of the stream shows in a
 * word that all of them change: a move that is not atomic beside a launch would let two of them run at once.
 */
#include <stdatomic.h>

#include "client.h"

enum { THREADS = 4, MOVES = 30 };

static CUstream stream;
static CUdeviceptr common, rooms[THREADS];
static _Atomic(bool) over;
static _Atomic(unsigned int) steps;
static uint64_t until;

static void *change(void *data)
{
	(void)data;
	for (unsigned int i = 0; !atomic_load(&over); i++) {
		daemon_tier(i % 4);
		usleep(50);
	}
	return NULL;
}

static void *work(void *data)
{
	unsigned int me = (unsigned int)(uintptr_t)data;
	uint32_t expected = 0, got;

	CHECK(cuCtxSetCurrent(context));
	for (unsigned int i = 0; client_ns() < until && daemon_counters()->remaps < MOVES; i++) {
		atomic_fetch_add(&steps, 1);
		CHECK(client_mix(stream, rooms[me], 1, 3, i));
		expected = expected * 3 + i;
		/* a sum does not depend on the order, but needs one */
		CHECK(client_mix(stream, common, 1, 1, 1));
		if (i % 50 == me) {
			CHECK(cuMemcpyDtoHAsync_v2(&got, rooms[me], sizeof(got), stream));
			CHECK(cuStreamSynchronize(stream));
			EXPECT(got == expected);
		}
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS], changer;
	uint32_t sum;

	client_start(0);
	client_pool();
	until = client_ns() + (getenv("CLIENT_NATIVE") ? 200000000ULL : 5000000000ULL);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&common, 4));
	CHECK(cuMemsetD32Async(common, 0, 1, stream));
	for (unsigned int i = 0; i < THREADS; i++) {
		CHECK(cuMemAlloc_v2(&rooms[i], 4));
		CHECK(cuMemsetD32Async(rooms[i], 0, 1, stream));
	}
	pthread_create(&changer, NULL, change, NULL);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	pthread_join(changer, NULL);
	CHECK(cuMemcpyDtoHAsync_v2(&sum, common, sizeof(sum), stream));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(sum == atomic_load(&steps));
	EXPECT(daemon_counters()->remaps >= MOVES || getenv("CLIENT_NATIVE"));
	printf("remaps %llu\n", (unsigned long long)daemon_counters()->remaps);
	return 0;
}
