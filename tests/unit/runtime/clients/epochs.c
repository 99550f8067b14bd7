/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `epochs SEED N`: N times random writes by whatever way, a park, and the way back; each time all bytes are what a model in host memory says.
 * EPOCHS_SPOIL=E: in epoch E the model is wrong in one bit.
 */
#include "parked.h"

enum { BLOCKS = 2, WAYS = 6 };

static const size_t sizes[BLOCKS] = {MIB, 4 * MIB};
static CUdeviceptr at[BLOCKS];
static uint8_t *model[BLOCKS];
static CUstream stream;
static unsigned int seed;
static CUgraphExec exec; /* writes 4 words at the begin of block 1 */

static unsigned int dice(unsigned int sides)
{
	return (unsigned int)rand_r(&seed) % sides;
}

static void mixed(uint8_t *bytes, size_t words, uint32_t a, uint32_t b)
{
	uint32_t word;

	for (size_t n = 0; n < words; n++) {
		memcpy(&word, bytes + 4 * n, 4);
		word = word * a + b;
		memcpy(bytes + 4 * n, &word, 4);
	}
}

static void write_some(void)
{
	unsigned int n = dice(BLOCKS), way = dice(WAYS);
	uint32_t number = (uint32_t)rand_r(&seed);
	size_t from = dice((unsigned int)sizes[n] / 4 - 512) * 4UL, size = 4UL * (1 + dice(512));
	uint8_t bytes[2048];

	switch (way) {
	case 0:
		CHECK(client_mix(stream, at[n] + from, (unsigned int)size / 4, 2 * number + 1, number));
		mixed(model[n] + from, size / 4, 2 * number + 1, number);
		break;
	case 1:
		for (size_t i = 0; i < size; i++)
			bytes[i] = (uint8_t)rand_r(&seed);
		CHECK(cuMemcpyHtoDAsync_v2(at[n] + from, bytes, size, stream));
		CHECK(cuStreamSynchronize(stream));
		memcpy(model[n] + from, bytes, size);
		break;
	case 2: /* one bit */
		model[n][from] ^= (uint8_t)(1 << number % 8);
		CHECK(cuMemcpyHtoD_v2(at[n] + from, &model[n][from], 1));
		break;
	case 3:
		CHECK(cuMemsetD8Async(at[n] + from, (uint8_t)number, size, stream));
		memset(model[n] + from, (uint8_t)number, size);
		break;
	case 4: {
		unsigned int to = (n + 1) % BLOCKS;
		size_t where = dice((unsigned int)sizes[to] / 4 - 512) * 4UL;

		CHECK(cuMemcpyDtoDAsync_v2(at[to] + where, at[n] + from, size, stream));
		memmove(model[to] + where, model[n] + from, size);
		break;
	}
	default:
		CHECK(cuGraphLaunch(exec, stream));
		mixed(model[1], 4, 3, 1);
	}
	CHECK(cuStreamSynchronize(stream));
}

static void make(void)
{
	CUgraph graph;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int n = 0; n < BLOCKS; n++) {
		CHECK(cuMemAlloc_v2(&at[n], sizes[n]));
		model[n] = malloc(sizes[n]);
		for (size_t i = 0; i < sizes[n]; i++)
			model[n][i] = (uint8_t)(i * 7 + i / 4096 + n);
		CHECK(cuMemcpyHtoD_v2(at[n], model[n], sizes[n]));
	}
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(client_mix(stream, at[1], 4, 3, 1));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphDestroy(graph));
}

static void compare(unsigned int epoch)
{
	static uint8_t got[4 * MIB];

	for (unsigned int n = 0; n < BLOCKS; n++) {
		CHECK(cuMemcpyDtoH_v2(got, at[n], sizes[n]));
		if (!memcmp(got, model[n], sizes[n]))
			continue;
		fprintf(stderr, "epoch %u: block %u is not what was written\n", epoch, n);
		exit(1);
	}
}

int main(int count, char **arguments)
{
	unsigned int epochs = count == 3 ? (unsigned int)atoi(arguments[2]) : 0;
	const char *spoil = getenv("EPOCHS_SPOIL");
	uint64_t copied = 0;

	if (count != 3)
		return 2;
	seed = (unsigned int)atoi(arguments[1]);
	client_start(0);
	make();
	for (unsigned int epoch = 0; epoch < epochs; epoch++) {
		for (unsigned int writes = dice(4); writes; writes--)
			write_some();
		if (spoil && (unsigned int)atoi(spoil) == epoch)
			model[dice(BLOCKS)][dice(MIB)] ^= 4;
		EXPECT(park() == DS_PARK_OK && away());
		EXPECT(daemon_counters()->whole == DS_WHOLE_NOT);
		copied += daemon_counters()->copied_bytes;
		/* by a launch that changes nothing, or by the daemon */
		if (dice(2)) {
			CHECK(client_mix(stream, at[0], 1, 1, 0));
			CHECK(cuStreamSynchronize(stream));
		} else {
			daemon_park(false);
			EXPECT(daemon_park_wait() == DS_PARK_OK);
		}
		EXPECT(!away());
		compare(epoch);
	}
	printf("copied %llu of %llu\n", (unsigned long long)(copied / MIB), (unsigned long long)(epochs * 6));
	return 0;
}
