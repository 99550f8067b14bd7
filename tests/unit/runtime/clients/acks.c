/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy with a tier that does not exist yet: once it is acknowledged, no launch runs anywhere else, be the program idle or busy when the policy
 * changes. An argument says what tiers that cannot be made have instead.
 */
#include "client.h"

static void change(unsigned int tier, unsigned int sms)
{
	struct ds_policy *policy = daemon_policy();

	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
	policy->tiers[tier] = (struct ds_tier){.kind = DS_TIER_FIRST, .sms = sms};
	__atomic_store_n(&policy->plan, (uint64_t)tier | (uint64_t)tier << 8 | (uint64_t)(policy->epoch + 1) << 32,
			 __ATOMIC_SEQ_CST);
	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
}

static bool acknowledged(void)
{
	return __atomic_load_n(&daemon_counters()->epoch_ack, __ATOMIC_ACQUIRE) == daemon_policy()->epoch;
}

int main(int argc, char **argv)
{
	unsigned int instead = argc > 1 ? atoi(argv[1]) : 0;
	CUstream stream;

	client_start(0);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT(client_census(stream, false) == 132);
	for (unsigned int tier = 5; tier < 13; tier++) {
		unsigned int sms = 8 + 8 * tier;
		uint64_t until = client_ns() + 5000000000ULL;

		change(tier, sms);
		while (!acknowledged()) {
			EXPECT(client_ns() < until);
			if (tier % 2)
				client_census(stream, false);
			else
				usleep(200);
		}
		EXPECT(client_census(stream, false) == (instead ? instead : sms));
		EXPECT(client_census(NULL, false) == (instead ? instead : sms));
	}
	return 0;
}
