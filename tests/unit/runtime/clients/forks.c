/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks without exec, in the middle of other threads' calls: the child gets the driver's refusals from whatever it calls, ends by exit() with all of
 * its handlers, and takes nothing of its parent with it: not its place on the board, not its streams.
 */
#include <stdatomic.h>
#include <sys/wait.h>

#include "client.h"

enum { THREADS = 2, FORKS = 25 };

static _Atomic(bool) over;
static CUdeviceptr room;

static void *hammer(void *data)
{
	(void)data;
	CHECK(cuCtxSetCurrent(context));
	while (!atomic_load(&over)) {
		CUdeviceptr own;
		CUstream stream;

		CHECK(cuStreamCreate(&stream, 0));
		CHECK(cuMemAlloc_v2(&own, 4096));
		CHECK(cuMemsetD32Async(own, 1, 16, stream));
		CHECK(client_mix(stream, own, 16, 3, 1));
		CHECK(cuStreamSynchronize(stream));
		CHECK(cuMemFree_v2(own));
		CHECK(cuStreamDestroy_v2(stream));
	}
	return NULL;
}

static void child(CUstream stream)
{
	CUdeviceptr other;
	CUcontext primary;
	CUstream new;

	alarm(20);
	EXPECT(cuStreamCreate(&new, 0) == CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(client_mix(stream, room, 16, 1, 1) == CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(client_mix(NULL, room, 16, 1, 1) == CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuMemAlloc_v2(&other, 64) == CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_ERROR_NOT_INITIALIZED);
	exit(0);
}

int main(void)
{
	pthread_t threads[THREADS];
	CUstream stream;
	int status;

	client_start(1);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT(client_census(stream, false) == 32);
	CHECK(cuMemAlloc_v2(&room, 64));
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, hammer, NULL);
	for (unsigned int i = 0; i < FORKS; i++) {
		pid_t pid;

		daemon_tier(i % 4);
		fflush(NULL);
		pid = fork();
		if (!pid)
			child(stream);
		EXPECT(waitpid(pid, &status, 0) == pid);
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		EXPECT(__atomic_load_n(&daemon_activity()->slots[0].state, __ATOMIC_SEQ_CST) == DS_SLOT_LIVE);
	}
	atomic_store(&over, true);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	daemon_tier(3);
	EXPECT(client_census(stream, false) == 64);
	EXPECT(daemon_attached() == 1);
	return 0;
}
