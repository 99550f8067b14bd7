/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Default streams of threads that come and go: the legacy stream waits for what a thread has queued before it ended, handles used by many threads and
 * destroyed and made again are never taken for each other, attributes hold on every tier.
 */
#include "client.h"

enum { WORDS = 4, ROUNDS = 40 };

static CUdeviceptr room;

static void *once(void *data)
{
	unsigned int count = WORDS, a = 3, b = (unsigned int)(uintptr_t)data;
	void *params[] = {&room, &count, &a, &b};

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuLaunchKernel_ptsz(mix, 8, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CHECK(cuLaunchKernel(mix, 8, 1, 1, 64, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	return NULL;
}

static void *churn(void *data)
{
	CUdeviceptr mine;
	uint32_t got;

	(void)data;
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc_v2(&mine, 4));
	for (unsigned int i = 0; i < 300; i++) {
		CUstream stream;

		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(cuMemsetD32Async(mine, i, 1, stream));
		CHECK(client_mix(stream, mine, 1, 3, 1));
		CHECK(cuMemcpyDtoHAsync_v2(&got, mine, 4, stream));
		CHECK(cuStreamSynchronize(stream));
		EXPECT(got == i * 3 + 1);
		CHECK(cuStreamDestroy_v2(stream));
	}
	return NULL;
}

/* Each census on the 100 SMs runs with the attributes of that moment: the test looks at the driver's trace. */
static void attributes(void)
{
	CUstreamAttrValue value = {.priority = -3}, domain = {.pad = {1}};
	CUstream stream, like;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	CHECK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &domain));
	daemon_tier(2);
	EXPECT(client_census(stream, false) == 100);
	value.priority = -4;
	CHECK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	value.priority = 0;
	CHECK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	EXPECT(value.priority == -4);
	EXPECT(client_census(stream, false) == 100);
	CHECK(cuStreamCreateWithPriority(&like, CU_STREAM_NON_BLOCKING, -1));
	CHECK(cuStreamCopyAttributes(stream, like));
	EXPECT(client_census(stream, false) == 100);
}

int main(void)
{
	uint32_t expected = 0, got;
	pthread_t threads[4];

	client_start(1);
	client_pool();
	CHECK(cuMemAlloc_v2(&room, 4 * WORDS));
	CHECK(cuMemsetD32_v2(room, 0, WORDS));
	for (unsigned int i = 0; i < ROUNDS; i++) {
		daemon_tier(i % 4);
		pthread_create(&threads[0], NULL, once, (void *)(uintptr_t)i);
		pthread_join(threads[0], NULL);
		expected = (expected * 3 + i) * 3 + i;
		if (i % 3 == 0)
			daemon_tier((i + 1) % 4);
		CHECK(client_mix(NULL, room, WORDS, 5, 1));
		expected = expected * 5 + 1;
	}
	CHECK(cuMemcpyDtoH_v2(&got, room, sizeof(got)));
	EXPECT(got == expected);

	for (unsigned int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, churn, NULL);
	for (unsigned int i = 0; i < 100; i++) {
		daemon_tier(i % 4);
		usleep(100);
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);

	attributes();
	return 0;
}
