/* SPDX-License-Identifier: Apache-2.0 */
/* A program that resets its GPU again and again, as test suites do: contexts that ended leave no pages mapped and no page registered. */
#include "client.h"

enum { CYCLES = 60, FIRST = 20, MOST = 40, HANGS = 300 };

static unsigned int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned int count = 0;
	char line[512];

	EXPECT(maps);
	while (fgets(line, sizeof(line), maps))
		count++;
	fclose(maps);
	return count;
}

int main(void)
{
	unsigned int before = 0;
	CUdevice device;
	CUstream stream;

	client_start(1);
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	/*
	 * Pages go with the next context after both helpers of an ended one have ended, which a busy machine lets them do later: what is not gone after
	 * the last cycle is gone after some more, or never, and then each adds to it.
	 */
	for (unsigned int i = 0; i < CYCLES || mappings() >= before + MOST; i++) {
		/* four for each context, if they stayed */
		EXPECT(i < HANGS);
		CHECK(cuDevicePrimaryCtxRetain(&context, device));
		CHECK(cuCtxSetCurrent(context));
		client_kernels();
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		EXPECT(client_census(stream, false) == 32);
		CHECK(cuDevicePrimaryCtxRelease_v2(device));
		/* the daemon has seen it leave */
		__atomic_store_n(&daemon_activity()->slots[0].state, DS_SLOT_FREE, __ATOMIC_SEQ_CST);
		usleep(2000);
		if (i == FIRST)
			before = mappings();
	}
	return 0;
}
