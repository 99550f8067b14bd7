// SPDX-License-Identifier: Apache-2.0
/*
 * Work without end that checks itself:
 *   steady [--rounds N | --seconds S] [--streams N] [--graph 1] [--spin-us N]
 * The host computes the same chain; a lost, doubled or reordered launch shows in the next comparison. With --rounds the
 * digest does not depend on time.
 */
#include "client.h"

#define MOST 16
#define CHAIN 24

static CUstream streams[MOST];
static CUevent events[MOST];
static CUdeviceptr own[MOST], chain;
static uint32_t model[MOST], chain_model = 1;
static CUgraphExec execs[MOST];

static void step(uint32_t *value, uint32_t a, uint32_t b)
{
	*value = *value * a + b;
}

static void graph_new(int i)
{
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(streams[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (uint32_t k = 0; k < CHAIN; k++)
		client_mix(streams[i], own[i], 3 + k, k);
	OK(cuStreamEndCapture(streams[i], &graph));
	OK(cuGraphInstantiateWithFlags(&execs[i], graph, 0));
	OK(cuGraphDestroy(graph));
}

static void compare(const char *what, CUdeviceptr words, uint32_t expected, long round)
{
	static uint32_t host[WORDS];

	client_read(words, WORDS, host);
	for (unsigned int i = 0; i < WORDS; i++) {
		if (host[i] == expected)
			continue;
		fprintf(stderr, "steady: %s word %u is %#x, expected %#x, in round %ld\n", what, i, host[i], expected, round);
		exit(1);
	}
}

static void run_round(long round, int n, CUfunction spin, unsigned long long ns)
{
	for (int i = 0; i < n; i++) {
		int before = (i + n - 1) % n;
		void *params[] = { &ns };

		if (ns)
			OK(cuLaunchKernel(spin, 132, 1, 1, 128, 1, 1, 0, streams[i], params, NULL));
		if (execs[i])
			OK(cuGraphLaunch(execs[i], streams[i]));
		for (uint32_t k = 0; k < CHAIN; k++) {
			if (!execs[i])
				client_mix(streams[i], own[i], 3 + k, k);
			step(&model[i], 3 + k, k);
		}
		if (round || i)
			OK(cuStreamWaitEvent(streams[i], events[before], 0));
		client_mix(streams[i], chain, 5 + (uint32_t)i, (uint32_t)round);
		step(&chain_model, 5 + (uint32_t)i, (uint32_t)round);
		OK(cuEventRecord(events[i], streams[i]));
	}
}

int main(int count, char **words)
{
	long rounds = client_option(count, words, "rounds", 50), round = 0;
	double seconds = (double)client_option(count, words, "seconds", 0), begin;
	unsigned long long ns = 1000ULL * (unsigned long long)client_option(count, words, "spin-us", 0);
	int n = (int)client_option(count, words, "streams", 4);
	CUfunction spin;

	if (n < 1 || n > MOST) {
		fprintf(stderr, "steady: --streams must be from 1 to %d\n", MOST);
		return 2;
	}
	client_start();
	spin = client_kernel("spin");
	chain = client_words(WORDS);
	for (int i = 0; i < n; i++) {
		model[i] = 1;
		own[i] = client_words(WORDS);
		OK(cuStreamCreateWithPriority(&streams[i], i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING, i % 3 ? 0 : -1));
		OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
		if (client_option(count, words, "graph", 0))
			graph_new(i);
	}
	begin = client_ms();
	while (seconds > 0 ? client_ms() - begin < seconds * 1e3 : round < rounds) {
		run_round(round, n, spin, ns);
		if (++round % 10)
			continue;
		for (int i = 0; i < n; i++)
			OK(cuStreamSynchronize(streams[i]));
		compare("chain", chain, chain_model, round);
		for (int i = 0; i < n; i++)
			compare("stream", own[i], model[i], round);
	}
	OK(cuCtxSynchronize());
	compare("chain", chain, chain_model, round);
	printf("rounds %ld in %.1f ms\n", round, client_ms() - begin);
	if (seconds > 0)
		return 0;
	client_say_words("chain", chain, WORDS);
	return client_end();
}
