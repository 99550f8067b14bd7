/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams end while they have work and while other threads launch and tiers change. What was queued still runs, and events and the legacy stream
 * go on waiting for it. destroy race: threads use the very handle that another one destroys, which no program may do: each call gets an answer.
 */
#include <stdatomic.h>

#include "client.h"

enum { THREADS = 3, ROUNDS = 120, WORDS = 8, RACES = 400 };

static _Atomic(unsigned int) finished;
static _Atomic(CUstream) victim;

static void *churn(void *data)
{
	unsigned int flags = (uintptr_t)data & 1 ? CU_STREAM_NON_BLOCKING : 0;
	uint32_t got[WORDS];
	CUdeviceptr mine;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc_v2(&mine, sizeof(got)));
	for (unsigned int i = 0; i < ROUNDS; i++) {
		CUstream first, second;
		CUevent event;

		CHECK(cuStreamCreate(&first, flags));
		CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
		CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		CHECK(cuMemsetD32Async(mine, i, WORDS, first));
		CHECK(client_mix(first, mine, WORDS, 3, 1));
		CHECK(client_mix(first, mine, WORDS, 3, 1));
		CHECK(cuEventRecord(event, first));
		CHECK(cuStreamDestroy_v2(first));
		CHECK(cuStreamWaitEvent(second, event, 0));
		CHECK(client_mix(second, mine, WORDS, 5, 2));
		CHECK(cuMemcpyDtoHAsync_v2(got, mine, sizeof(got), second));
		CHECK(cuStreamSynchronize(second));
		for (unsigned int k = 0; k < WORDS; k++)
			EXPECT(got[k] == ((i * 3 + 1) * 3 + 1) * 5 + 2);
		CHECK(cuStreamDestroy_v2(second));
		CHECK(cuEventDestroy_v2(event));
	}
	atomic_fetch_add(&finished, 1);
	return NULL;
}

/* a blocking stream's work is waited for by the legacy stream after its end, too */
static void legacy_waits(void)
{
	uint32_t expected = 1, got;
	CUdeviceptr shared;
	CUstream stream;

	CHECK(cuMemAlloc_v2(&shared, 4));
	CHECK(cuMemsetD32_v2(shared, expected, 1));
	for (unsigned int i = 0; atomic_load(&finished) < THREADS || i < 200; i++) {
		daemon_tier(i % 4);
		CHECK(cuStreamCreate(&stream, 0));
		CHECK(client_mix(stream, shared, 1, 3, i));
		expected = expected * 3 + i;
		if (i & 1)
			daemon_tier((i + 1) % 4);
		CHECK(cuStreamDestroy_v2(stream));
		CHECK(client_mix(i & 2 ? NULL : CU_STREAM_LEGACY, shared, 1, 5, 1));
		expected = expected * 5 + 1;
	}
	CHECK(cuMemcpyDtoH_v2(&got, shared, sizeof(got)));
	EXPECT(got == expected);
}

static void *use(void *data)
{
	unsigned int *answers = data;

	CHECK(cuCtxSetCurrent(context));
	while (!atomic_load(&finished)) {
		CUresult result;

		/* leaves the processor to the others */
		usleep(50);
		result = cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, atomic_load(&victim), NULL, NULL);

		EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE);
		answers[result != CUDA_SUCCESS]++;
	}
	return NULL;
}

static void race(void)
{
	unsigned int answers[THREADS][2] = {{0}};
	pthread_t threads[THREADS];
	CUstream stream;

	CHECK(cuStreamCreate(&stream, 0));
	atomic_store(&victim, stream);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, use, answers[i]);
	for (unsigned int i = 0; i < RACES; i++) {
		daemon_tier(i % 4);
		usleep(200);
		CHECK(cuStreamDestroy_v2(stream));
		CHECK(cuStreamCreate(&stream, i & 1 ? CU_STREAM_NON_BLOCKING : 0));
		atomic_store(&victim, stream);
	}
	atomic_store(&finished, 1);
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		printf("%u %u\n", answers[i][0], answers[i][1]);
	}
	/* and all goes on as before */
	daemon_tier(1);
	CHECK(cuCtxSynchronize());
	EXPECT(client_census(stream, false) == 32);
}

int main(int count, char **words)
{
	pthread_t threads[THREADS];

	client_start(1);
	client_pool();
	if (count > 1 && !strcmp(words[1], "race")) {
		race();
		return 0;
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
	legacy_waits();
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
