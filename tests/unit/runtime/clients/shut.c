/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of a program that is parked deeply: `shut CASE`, with DETSHARE_PARK=1 and FAKECUDA_CHECKPOINTS=1. Whatever it is, the daemon hears of it. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "parked.h"

typedef struct CUcheckpoint CUcheckpoint; /* NULL is all that is given */
CUresult cuCheckpointProcessLock(int pid, CUcheckpoint *args);
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpoint *args);
CUresult cuCheckpointProcessRestore(int pid, CUcheckpoint *args);
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpoint *args);

static CUdeviceptr block;
static CUstream stream;
static _Atomic(bool) deep;

/* It brings back who wants to, and nobody else. */
static void *daemon_side(void *unused)
{
	struct ds_policy *policy = daemon_policy();
	struct ds_counters *counters = daemon_counters();

	pthread_setname_np(pthread_self(), "ds-daemon-deep");
	__atomic_store_n(&policy->lease_ns, client_ns() + 3600000000000ULL, __ATOMIC_SEQ_CST);
	__atomic_store_n(&policy->deep, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&counters->deep, __ATOMIC_ACQUIRE) != 1)
		usleep(200);
	CHECK(cuCheckpointProcessLock(getpid(), NULL));
	CHECK(cuCheckpointProcessCheckpoint(getpid(), NULL));
	atomic_store(&deep, true);
	while (!__atomic_load_n(&counters->wants_back, __ATOMIC_ACQUIRE))
		usleep(200);
	atomic_store(&deep, false);
	CHECK(cuCheckpointProcessRestore(getpid(), NULL));
	CHECK(cuCheckpointProcessUnlock(getpid(), NULL));
	__atomic_store_n(&policy->deep, 0, __ATOMIC_SEQ_CST);
	return unused;
}

static void launches(void)
{
	uint32_t word;

	CHECK(client_mix(stream, block, 1, 1, 5));
	CHECK(cuMemcpyDtoH_v2(&word, block, sizeof(word)));
	EXPECT(word == 8);
}

static void frees(void)
{
	CHECK(cuMemFree_v2(block));
}

static void releases(void)
{
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
}

static void resets(void)
{
	CHECK(cuDevicePrimaryCtxReset_v2(0));
}

static void destroys(void)
{
	CHECK(cuStreamDestroy_v2(stream));
}

static void asks(void)
{
	EXPECT(cuStreamQuery(stream) == CUDA_SUCCESS);
}

/* Somebody else needs host memory: there is none to give, and nothing to ask the driver for that. */
static void gives(void)
{
	daemon_policy()->returns++;
	while (__atomic_load_n(&daemon_counters()->returned, __ATOMIC_ACQUIRE) != daemon_policy()->returns)
		usleep(200);
	EXPECT(atomic_load(&deep));
	launches();
}

static void exits(void)
{
	exit(0);
}

int main(int count, char **words)
{
	static const struct parked_case cases[] = {
		{"launch", launches}, {"free", frees},	      {"release", releases}, {"reset", resets},
		{"query", asks},      {"destroy", destroys}, {"exit", exits},
		{"gives", gives},
	};
	pthread_t thread;

	client_start(0);
	CHECK(cuMemAlloc_v2(&block, 4 * MIB));
	CHECK(cuStreamCreate(&stream, 0));
	fill(block, 4 * MIB, 3);
	EXPECT(park() == DS_PARK_OK && away());
	pthread_create(&thread, NULL, daemon_side, NULL);
	while (!atomic_load(&deep))
		usleep(200);
	for (unsigned int n = 0; n < sizeof(cases) / sizeof(cases[0]); n++)
		if (count == 2 && !strcmp(words[1], cases[n].name)) {
			cases[n].run();
			pthread_join(thread, NULL);
			return 0;
		}
	return 2;
}
