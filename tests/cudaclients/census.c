// SPDX-License-Identifier: Apache-2.0
/*
 * Which SMs kernels run on, over time: census [--seconds S] [--every-us N] [--graph 1] [--blocks N]. One line for each
 * change and one at the end:
 *   MS-SINCE-START  LAUNCHES-SO-FAR  SMS-SEEN  LOWEST  HIGHEST  FIRST-BLOCK-STARTED-NS
 */
#include "client.h"

#define BLOCKS 1024
#define MOST_SMS 1024

struct seen {
	unsigned int sms, low, high;
};

static struct seen look(const uint32_t *sm, long blocks)
{
	struct seen seen = { 0, MOST_SMS, 0 };
	char mark[MOST_SMS] = { 0 };

	for (long i = 0; i < blocks; i++) {
		CHECK(sm[i] < MOST_SMS);
		seen.sms += !mark[sm[i]];
		mark[sm[i]] = 1;
		seen.low = sm[i] < seen.low ? sm[i] : seen.low;
		seen.high = sm[i] > seen.high ? sm[i] : seen.high;
	}
	return seen;
}

static CUgraphExec graph_of(CUfunction census, long blocks, void **params, CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuLaunchKernel(census, (unsigned int)blocks, 1, 1, 1024, 1, 1, 0, stream, params, NULL));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

int main(int count, char **words)
{
	double seconds = (double)client_option(count, words, "seconds", 1), begin;
	long every = client_option(count, words, "every-us", 0), blocks = client_option(count, words, "blocks", 264);
	static uint32_t sm[BLOCKS];
	static uint64_t stamps[BLOCKS];
	struct seen now, last = { 0, 0, 0 };
	CUdeviceptr ids, times;
	CUfunction census;
	CUgraphExec exec = NULL;
	CUstream stream;
	long n = 0;

	if (blocks < 1 || blocks > BLOCKS) {
		fprintf(stderr, "census: --blocks must be from 1 to %d\n", BLOCKS);
		return 2;
	}
	client_start();
	census = client_kernel("census");
	ids = client_words(BLOCKS);
	times = client_words(2 * BLOCKS);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	void *params[] = { &ids, &times };

	if (client_option(count, words, "graph", 0))
		exec = graph_of(census, blocks, params, stream);
	begin = client_ms();
	do {
		if (exec)
			OK(cuGraphLaunch(exec, stream));
		else
			OK(cuLaunchKernel(census, (unsigned int)blocks, 1, 1, 1024, 1, 1, 0, stream, params, NULL));
		OK(cuMemcpyDtoHAsync_v2(sm, ids, sizeof(sm), stream));
		OK(cuMemcpyDtoHAsync_v2(stamps, times, sizeof(stamps), stream));
		OK(cuStreamSynchronize(stream));
		n++;
		now = look(sm, blocks);
		if (memcmp(&now, &last, sizeof(now)))
			printf("%.3f %ld %u %u %u %llu\n", client_ms() - begin, n, now.sms, now.low, now.high,
			       (unsigned long long)stamps[0]);
		fflush(stdout);
		last = now;
		if (every)
			usleep((useconds_t)every);
	} while (client_ms() - begin < seconds * 1e3);
	printf("%.3f %ld %u %u %u end\n", client_ms() - begin, n, now.sms, now.low, now.high);
	return 0;
}
