/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random work on streams of all kinds by several threads while the tier changes all the time. The stand-in sees each pair of accesses that nothing
 * orders; the results show the order within a stream. usage: order SEED STEPS
 */
#include <stdatomic.h>

#include "client.h"

enum { THREADS = 3, STREAMS = 4, WORDS = 16 };

static _Atomic(bool) over;
static unsigned int steps;

static unsigned int draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return *state >> 33;
}

static void *change(void *data)
{
	uint64_t state = (uint64_t)(uintptr_t)data;

	while (!atomic_load(&over)) {
		daemon_tier(draw(&state) % 5);
		usleep(draw(&state) % 200);
	}
	return NULL;
}

/* a thread's own streams and buffers: what it expects is what it queued, in that order */
static void *work(void *data)
{
	uint64_t state = (uint64_t)(uintptr_t)data;
	CUstream streams[STREAMS];
	CUdeviceptr rooms[STREAMS], copy;
	uint32_t expected[STREAMS] = {0}, got[WORDS];
	CUevent event;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAlloc_v2(&copy, sizeof(got)));
	for (unsigned int i = 0; i < STREAMS; i++) {
		CHECK(cuStreamCreate(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : 0));
		CHECK(cuMemAlloc_v2(&rooms[i], sizeof(got)));
		CHECK(cuMemsetD32Async(rooms[i], 0, WORDS, streams[i]));
	}
	for (unsigned int step = 0; step < steps; step++) {
		unsigned int i = draw(&state) % STREAMS, j = draw(&state) % STREAMS, b = draw(&state);

		if (draw(&state) % 8 == 0)
			daemon_tier(draw(&state) % 5);
		switch (draw(&state) % 16) {
		default:
			CHECK(client_mix(streams[i], rooms[i], WORDS, 3, b));
			expected[i] = expected[i] * 3 + b;
			break;
		case 0:
			CHECK(cuMemsetD32Async(rooms[i], b, WORDS, streams[i]));
			expected[i] = b;
			break;
		case 1:
			/* another stream takes over: j's buffer = i's */
			if (i == j)
				break;
			CHECK(cuEventRecord(event, streams[i]));
			CHECK(cuStreamWaitEvent(streams[j], event, 0));
			CHECK(cuMemcpyDtoDAsync_v2(rooms[j], rooms[i], sizeof(got), streams[j]));
			CHECK(cuEventRecord(event, streams[j]));
			CHECK(cuStreamWaitEvent(streams[i], event, 0));
			expected[j] = expected[i];
			break;
		case 2:
			CHECK(cuStreamSynchronize(streams[i]));
			break;
		case 3:
			CHECK(cuMemcpyDtoDAsync_v2(copy, rooms[i], sizeof(got), streams[i]));
			CHECK(cuMemcpyDtoHAsync_v2(got, copy, sizeof(got), streams[i]));
			CHECK(cuStreamSynchronize(streams[i]));
			for (unsigned int k = 0; k < WORDS; k++)
				EXPECT(got[k] == expected[i]);
			break;
		case 4:
			/* handles come and go */
			if (draw(&state) % 4)
				break;
			CHECK(cuStreamSynchronize(streams[i]));
			CHECK(cuStreamDestroy_v2(streams[i]));
			CHECK(cuStreamCreate(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : 0));
			break;
		}
	}
	for (unsigned int i = 0; i < STREAMS; i++) {
		CHECK(cuStreamSynchronize(streams[i]));
		CHECK(cuMemcpyDtoH_v2(got, rooms[i], sizeof(got)));
		for (unsigned int k = 0; k < WORDS; k++)
			EXPECT(got[k] == expected[i]);
		CHECK(cuStreamDestroy_v2(streams[i]));
	}
	return NULL;
}

int main(int count, char **args)
{
	uint64_t seed = count > 1 ? strtoull(args[1], NULL, 0) : 1;
	pthread_t threads[THREADS], changer;

	steps = count > 2 ? strtoul(args[2], NULL, 0) : 500;
	client_start(0);
	client_pool();
	pthread_create(&changer, NULL, change, (void *)(uintptr_t)(seed + 99));
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(seed * 1000 + i));
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	pthread_join(changer, NULL);
	CHECK(cuCtxSynchronize());
	printf("remaps %llu\n", (unsigned long long)daemon_counters()->remaps);
	return 0;
}
