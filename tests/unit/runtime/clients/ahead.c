/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is launched and not finished stays within policy.ahead_us (argument), long kernels and short ones, and two launches always may be under way. */
#include "client.h"

enum { LAUNCHES = 200 };

static CUevent events[LAUNCHES];

/* most launches of a kernel that were under way at once, seen right after each */
static unsigned int most(CUfunction kernel, CUstream stream, uint64_t ns, unsigned int launches)
{
	void *params[] = {&ns};
	unsigned int worst = 0, first = 0;

	for (unsigned int i = 0; i < launches; i++) {
		CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		CHECK(cuEventRecord(events[i], stream));
		while (first <= i && cuEventQuery(events[first]) == CUDA_SUCCESS)
			first++;
		if (i + 1 - first > worst)
			worst = i + 1 - first;
	}
	CHECK(cuStreamSynchronize(stream));
	return worst;
}

static void learn(CUfunction kernel, CUstream stream)
{
	for (unsigned int i = 0; i < 20; i++) {
		most(kernel, stream, 0, 1);
		usleep(2000);
	}
}

int main(int argc, char **argv)
{
	static const char image[] = "fakecuda 1\nkernel long params=8 duration_us=5000\nkernel short params=8 duration_us=200\n";
	unsigned int ahead = argc > 1 ? atoi(argv[1]) : 1000, seen;
	struct ds_policy *policy;
	CUfunction slow, quick;
	CUstream stream;
	CUmodule module;

	client_start(0);
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&slow, module, "long"));
	CHECK(cuModuleGetFunction(&quick, module, "short"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int i = 0; i < LAUNCHES; i++)
		CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	learn(slow, stream);
	learn(quick, stream);
	/* not bounded: all of it is queued at once */
	EXPECT(most(slow, stream, 0, 12) > 8);
	policy = daemon_policy();
	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
	policy->ahead_us = ahead;
	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&daemon_counters()->epoch_ack, __ATOMIC_ACQUIRE) != policy->epoch)
		usleep(1000);
	seen = most(slow, stream, 0, 12);
	EXPECT(seen == 2);
	/* beyond the bound: the launch that reaches it, and what is finished but not marked (a quarter) */
	seen = most(quick, stream, 0, LAUNCHES);
	printf("short %u\n", seen);
	EXPECT(seen > ahead / 200 / 2 && seen <= (ahead + ahead / 4) / 200 + 2);
	return 0;
}
