/* SPDX-License-Identifier: Apache-2.0 */
/* A stream that cannot be moved, since another thread stays inside a call on it: it keeps its SMs and its order, and that is counted. */
#include <stdatomic.h>

#include "client.h"

static CUstream stream;
static CUdeviceptr room;
static _Atomic(bool) inside;

/* the driver returns from a copy to memory that it cannot reach when the copy is done */
static void *copies(void *data)
{
	uint32_t got;

	(void)data;
	CHECK(cuCtxSetCurrent(context));
	atomic_store(&inside, true);
	CHECK(cuMemcpyDtoHAsync_v2(&got, room, sizeof(got), stream));
	EXPECT(got == 1);
	return NULL;
}

int main(void)
{
	static const char image[] = "fakecuda 1\nkernel long duration_us=60000\n";
	uint64_t *full, before;
	CUfunction slow;
	CUmodule module;
	pthread_t thread;
	uint32_t got;

	client_start(1);
	full = daemon_counters()->full_runs;
	client_pool();
	daemon_tier(1);
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&slow, module, "long"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&room, 4));
	EXPECT(client_census(stream, false) == 32);
	before = full[DS_FULL_OTHER];
	CHECK(cuLaunchKernel(slow, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	CHECK(cuMemsetD32Async(room, 1, 1, stream));
	pthread_create(&thread, NULL, copies, NULL);
	while (!atomic_load(&inside))
		usleep(100);
	usleep(10000);
	daemon_tier(3);
	CHECK(client_mix(stream, room, 1, 3, 1));
	EXPECT(full[DS_FULL_OTHER] == before + 1);
	pthread_join(thread, NULL);
	usleep(2000);
	EXPECT(client_census(stream, false) == 64);
	EXPECT(full[DS_FULL_OTHER] == before + 1);
	CHECK(cuMemcpyDtoHAsync_v2(&got, room, sizeof(got), stream));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(got == 4);
	return 0;
}
