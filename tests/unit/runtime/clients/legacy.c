/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The legacy default stream, blocking streams and this thread's default stream share one buffer without any event: the order that CUDA gives them is
 * all there is. One thread, random order, a new tier now and then, some of them at home. usage: legacy SEED STEPS
 */
#include "client.h"

enum { STREAMS = 3, WORDS = 16 };

static unsigned int draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return *state >> 33;
}

static CUresult mix_own(CUdeviceptr to, unsigned int a, unsigned int b)
{
	unsigned int count = WORDS;
	void *params[] = {&to, &count, &a, &b};

	return cuLaunchKernel_ptsz(mix, 8, 1, 1, 64, 1, 1, 0, NULL, params, NULL);
}

int main(int count, char **args)
{
	uint64_t state = count > 1 ? strtoull(args[1], NULL, 0) : 1;
	unsigned int steps = count > 2 ? strtoul(args[2], NULL, 0) : 1000;
	CUstream streams[STREAMS];
	CUdeviceptr shared, host_room;
	uint32_t expected = 0, got[WORDS];
	/* who used the shared buffer last; only the legacy stream may follow or be followed by anybody */
	int last = -1;

	client_start(0);
	client_pool();
	CHECK(cuMemAlloc_v2(&shared, sizeof(got)));
	CHECK(cuMemAlloc_v2(&host_room, sizeof(got)));
	CHECK(cuMemsetD32_v2(shared, 0, WORDS));
	for (unsigned int i = 0; i < STREAMS; i++)
		CHECK(cuStreamCreate(&streams[i], 0));
	for (unsigned int step = 0; step < steps; step++) {
		unsigned int b = draw(&state), who = draw(&state) % (STREAMS + 1);

		if (draw(&state) % 3 == 0)
			daemon_tier(draw(&state) % 4);
		if (draw(&state) % 16 == 0) {
			/* noise beside it that makes streams move at different times */
			CHECK(client_mix(streams[draw(&state) % STREAMS], host_room + 0, 0, 1, 0));
			continue;
		}
		if (last != -1 && last != (int)who) {
			/* a legacy operation between two blocking streams */
			switch (draw(&state) % 6) {
			case 0:
				CHECK(cuMemcpyDtoH_v2(got, shared, sizeof(got)));
				for (unsigned int k = 0; k < WORDS; k++)
					EXPECT(got[k] == expected);
				break;
			case 1:
				CHECK(cuMemsetD32_v2(shared, b, WORDS));
				expected = b;
				break;
			case 2:
				CHECK(cuMemsetD32Async(shared, b, WORDS, NULL));
				expected = b;
				break;
			case 3:
				CHECK(client_mix(CU_STREAM_LEGACY, shared, WORDS, 5, b));
				expected = expected * 5 + b;
				break;
			default:
				CHECK(client_mix(NULL, shared, WORDS, 5, b));
				expected = expected * 5 + b;
				break;
			}
		}
		for (unsigned int again = draw(&state) % 3; again < 3; again++) {
			CHECK(who == STREAMS ? mix_own(shared, 3, b) : client_mix(streams[who], shared, WORDS, 3, b));
			expected = expected * 3 + b;
		}
		last = who;
		if (draw(&state) % 20 == 0) {
			/* the end of the legacy stream is the end of all of them */
			CHECK(cuStreamSynchronize(NULL));
			CHECK(cuMemcpyDtoHAsync_v2(got, shared, sizeof(got), streams[0]));
			CHECK(cuStreamSynchronize(streams[0]));
			for (unsigned int k = 0; k < WORDS; k++)
				EXPECT(got[k] == expected);
			last = -1;
		}
		if (draw(&state) % 50 == 0) {
			unsigned int i = draw(&state) % STREAMS;

			if (draw(&state) % 2)
				CHECK(cuStreamSynchronize(streams[i]));
			CHECK(cuStreamDestroy_v2(streams[i]));
			CHECK(cuStreamCreate(&streams[i], 0));
			if (last == (int)i)
				last = STREAMS + 1;
		}
	}
	CHECK(cuMemcpyDtoH_v2(got, shared, sizeof(got)));
	for (unsigned int k = 0; k < WORDS; k++)
		EXPECT(got[k] == expected);
	printf("remaps %llu\n", (unsigned long long)daemon_counters()->remaps);
	return 0;
}
