// SPDX-License-Identifier: Apache-2.0
/* Threads with streams of their own, per-thread default streams, and one chain of events through all of them. */
#include "client.h"

#define THREADS 6

static CUdeviceptr chain, own[THREADS];
static CUstream streams[THREADS];
static CUevent events[THREADS];
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_cond = PTHREAD_COND_INITIALIZER;
static long turn, rounds;

/* Each takes its turn on the chain: behind the event of the one before, in a stream of its own. */
static void take_turn(int me)
{
	int before = (me + THREADS - 1) % THREADS;

	pthread_mutex_lock(&turn_lock);
	while (turn % THREADS != me)
		pthread_cond_wait(&turn_cond, &turn_lock);
	if (turn)
		OK(cuStreamWaitEvent(streams[me], events[before], 0));
	client_mix(streams[me], chain, 3 + (uint32_t)me, (uint32_t)turn);
	OK(cuEventRecord(events[me], streams[me]));
	turn++;
	pthread_cond_broadcast(&turn_cond);
	pthread_mutex_unlock(&turn_lock);
}

static void *work(void *data)
{
	int me = (int)(intptr_t)data;

	OK(cuCtxSetCurrent(client_context));
	for (long i = 0; i < rounds; i++) {
		client_mix(CU_STREAM_PER_THREAD, own[me], 5, (uint32_t)i);
		take_turn(me);
		client_mix(CU_STREAM_PER_THREAD, own[me], 7, (uint32_t)me);
		if (i % 5 == 0)
			OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	}
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize(streams[me]));
	return NULL;
}

int main(int count, char **words)
{
	pthread_t threads[THREADS];

	client_start();
	rounds = client_option(count, words, "rounds", 30);
	chain = client_words(WORDS);
	for (int i = 0; i < THREADS; i++) {
		own[i] = client_words(WORDS);
		OK(cuStreamCreate(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
		OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	client_say_words("chain", chain, WORDS);
	for (int i = 0; i < THREADS; i++)
		client_say_words("own", own[i], WORDS);
	return client_end();
}
