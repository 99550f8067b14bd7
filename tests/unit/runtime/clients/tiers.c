/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of stream runs where the policy says, from the first launch and after each change; the program sees its own context and priority. */
#include "client.h"

int main(void)
{
	CUstream plain, free_running, urgent;
	int priority = 1;
	CUcontext seen;

	client_start(1);
	/* the first launch of all */
	EXPECT(client_census(NULL, false) == 32);
	CHECK(cuStreamCreate(&plain, 0));
	CHECK(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -5));
	client_pool();
	for (unsigned int round = 0; round < 3; round++) {
		static const unsigned int sms[] = {132, 32, 100, 64, 8};

		for (unsigned int tier = 0; tier < 5; tier++) {
			daemon_tier(tier);
			EXPECT(client_census(plain, false) == sms[tier]);
			EXPECT(client_census(free_running, false) == sms[tier]);
			EXPECT(client_census(urgent, false) == sms[tier]);
			EXPECT(client_census(NULL, false) == sms[tier]);
			EXPECT(client_census(CU_STREAM_LEGACY, false) == sms[tier]);
			EXPECT(client_census(CU_STREAM_PER_THREAD, false) == sms[tier]);
			EXPECT(client_census(NULL, true) == sms[tier]);
		}
	}
	CHECK(cuStreamGetCtx(plain, &seen));
	EXPECT(seen == context);
	CHECK(cuStreamGetPriority(urgent, &priority));
	EXPECT(priority == -5);
	printf("remaps %llu pool_bytes %llu\n", (unsigned long long)daemon_counters()->remaps,
	       (unsigned long long)daemon_counters()->pool_bytes);
	return 0;
}
