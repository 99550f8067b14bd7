/* SPDX-License-Identifier: Apache-2.0 */
/* A stream that cannot be moved, since another thread stays inside a call on it: it keeps its SMs and its order, and that is counted. */
#include <stdatomic.h>
#include <sys/syscall.h>

#include "client.h"

static CUstream stream;
static CUdeviceptr room;
static _Atomic(int) inside;

/* it sleeps, and nowhere but in its call on the stream could it */
static bool asleep(int thread)
{
	char path[64], line[512] = "", *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	EXPECT(file && fgets(line, sizeof(line), file));
	fclose(file);
	state = strrchr(line, ')');
	return state && state[2] == 'S';
}

/* the driver returns from a copy to memory that it cannot reach when the copy is done */
static void *copies(void *data)
{
	uint32_t got;

	(void)data;
	CHECK(cuCtxSetCurrent(context));
	atomic_store(&inside, syscall(SYS_gettid));
	CHECK(cuMemcpyDtoHAsync_v2(&got, room, sizeof(got), stream));
	EXPECT(got == 1);
	return NULL;
}

int main(void)
{
	uint64_t *full, before;
	CUstream other;
	CUdeviceptr word;
	pthread_t thread;
	uint32_t got;

	client_start(1);
	full = daemon_counters()->full_runs;
	client_pool();
	daemon_tier(1);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&room, 4));
	CHECK(cuMemAlloc_v2(&word, 4));
	CHECK(cuMemsetD32Async(word, 0, 1, stream));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(client_census(stream, false) == 32);
	before = full[DS_FULL_OTHER];
	CHECK(cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuMemsetD32Async(room, 1, 1, stream));
	pthread_create(&thread, NULL, copies, NULL);
	while (!atomic_load(&inside) || !asleep(atomic_load(&inside)))
		usleep(100);
	daemon_tier(3);
	CHECK(client_mix(stream, room, 1, 3, 1));
	EXPECT(full[DS_FULL_OTHER] == before + 1);
	CHECK(cuMemsetD32Async(word, 1, 1, other));
	pthread_join(thread, NULL);
	usleep(2000);
	EXPECT(client_census(stream, false) == 64);
	EXPECT(full[DS_FULL_OTHER] == before + 1);
	CHECK(cuMemcpyDtoHAsync_v2(&got, room, sizeof(got), stream));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(got == 4);
	return 0;
}
