/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `dice SEED THREADS STEPS LIVES`, on FAKECUDA_DEVICES GPUs: a life is the same calls with and without the library, right ones and wrong ones, by threads
 * with objects of their own; between its epochs a GPU's context is reset or ends. Under the library the daemon parks, fetches and changes its mind meanwhile.
 * What each call answered goes to stdout, what is left after each life to stderr.
 */
#include "dice.h"
#include "outside.h"
#include "weather.h"

enum { EPOCHS = 3 };

static struct worker workers[8];

static void *works(void *data)
{
	struct worker *self = data;

	for (unsigned int gpu = 0; gpu < self->gpus; gpu++)
		dice_enter(self, gpu);
	for (unsigned int n = 0; n < self->steps; n++) {
		dice_step(self);
		/* who rests longer is parked deeply */
		usleep(!dice_shares() && self->called % 8 == 0 ? 20000 : (unsigned int)(self->called * 7919) % 1500);
	}
	dice_settle(self);
	for (unsigned int gpu = 0; gpu < self->gpus; gpu++) {
		dice_enter(self, gpu);
		CALL(cuStreamSynchronize, CU_STREAM_PER_THREAD);
	}
	return NULL;
}

static void epoch(unsigned int threads)
{
	for (unsigned int n = 0; n < threads; n++)
		pthread_create(&workers[n].thread, NULL, works, &workers[n]);
	for (unsigned int n = 0; n < threads; n++)
		pthread_join(workers[n].thread, NULL);
}

/* What the context had is gone; what is not the context's is given back. */
static void forget(struct worker *self, unsigned int gpu)
{
	CALL(cuCtxSetCurrent, NULL);
	for (unsigned int n = 0; n < BLOCKS; n++) {
		struct block *block = &self->blocks[n];

		if (!block->kind || block->gpu != gpu)
			continue;
		memset(block, 0, sizeof(*block));
	}
	memset(&self->places[gpu], 0, sizeof(self->places[gpu]));
}

static void end_blocks(struct worker *self, unsigned int gpu, bool all)
{
	say(self, "\nend of GPU %u:", gpu);
	dice_enter(self, gpu);
	for (unsigned int n = 0; n < BLOCKS; n++)
		if (self->blocks[n].kind && self->blocks[n].gpu == gpu &&
		    (all || (self->blocks[n].kind != PLAIN && self->blocks[n].kind != PITCHED)))
			dice_end(self, &self->blocks[n]);
	dice_settle(self);
}

/* The GPU's context ends, by a reset or as the last reference goes. */
static void ends(unsigned int threads, unsigned int gpu, bool reset, bool all)
{
	for (unsigned int n = 0; n < threads; n++)
		end_blocks(&workers[n], gpu, all);
	if (reset) {
		struct worker *self = &workers[0];

		CALL(cuDevicePrimaryCtxReset_v2, (CUdevice)gpu);
	}
	for (unsigned int n = 0; n < threads; n++) {
		struct worker *self = &workers[n];

		CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice)gpu);
		forget(self, gpu);
	}
}

static size_t used(unsigned int gpus)
{
	size_t sum = 0;

	pthread_mutex_lock(&weather_calm);
	for (unsigned int gpu = 0; gpu < gpus; gpu++)
		sum += fakecuda_used((int)gpu);
	pthread_mutex_unlock(&weather_calm);
	return sum;
}

int main(int count, char **arguments)
{
	unsigned int seed = count == 5 ? (unsigned int)atoi(arguments[1]) : 1, threads = count == 5 ? (unsigned int)atoi(arguments[2]) : 1;
	unsigned int steps = count == 5 ? (unsigned int)atoi(arguments[3]) : 50, lives = count == 5 ? (unsigned int)atoi(arguments[4]) : 1;
	unsigned int gpus = getenv("FAKECUDA_DEVICES") ? (unsigned int)atoi(getenv("FAKECUDA_DEVICES")) : 1, dices = seed;
	unsigned long charged;

	daemon_start();
	if (cuInit(0))
		return 1;
	weather_begin(seed);
	for (unsigned int life = 0; life < lives; life++) {
		for (unsigned int n = 0; n < threads; n++) {
			struct worker *self = &workers[n];

			memset(self, 0, sizeof(*self));
			self->number = n;
			self->seed = seed * 9973 + life * 97 + n;
			self->gpus = gpus;
			self->alone = threads == 1;
			self->steps = steps / EPOCHS + 1;
		}
		for (unsigned int n = 0; n < EPOCHS; n++) {
			epoch(threads);
			if (n + 1 < EPOCHS && rand_r(&dices) % 2)
				ends(threads, (unsigned int)rand_r(&dices) % gpus, rand_r(&dices) % 2, rand_r(&dices) % 2);
		}
		for (unsigned int n = 0; n < threads * gpus; n++)
			end_blocks(&workers[n % threads], n / threads, true);
		charged = daemon_counters() ? daemon_counters()->memory_used : 0;
		for (unsigned int gpu = 0; gpu < gpus; gpu++)
			ends(threads, gpu, false, true);
		for (unsigned int n = 0; n < threads; n++) {
			printf("life %u%.*s\n", life, (int)workers[n].length, workers[n].record);
			free(workers[n].record);
		}
		fprintf(stderr, "left: %u descriptors, %zu bytes of GPUs, %lu charged\n", open_files(), used(gpus),
			charged);
	}
	weather_end();
	fprintf(stderr, "parks %u wakes %u deeps %u\n", daemon_counters()->parks, daemon_counters()->wakes, weather_deeps);
	return 0;
}
