// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded beside libdetshare.so: a daemon inside the program that moves it to another tier at random moments.
 * SHAKER_SEED, SHAKER_US (longest time between two moves; 0: never). At the end `remaps N` goes to SHAKER_OUT.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon.h"

static unsigned int seed;
static long longest;

static void *shake(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "ds-shaker");
	for (;;) {
		usleep(50 + (useconds_t)(rand_r(&seed) % longest));
		daemon_tier((unsigned int)rand_r(&seed) % 5);
	}
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("SHAKER_SEED");
	pthread_t thread;

	seed = text ? (unsigned int)atoi(text) : 1;
	text = getenv("SHAKER_US");
	longest = text ? atol(text) : 2000;
	daemon_start();
	if (longest > 0 && !pthread_create(&thread, NULL, shake, NULL))
		pthread_detach(thread);
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("SHAKER_OUT");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	fprintf(file, "remaps %llu\n", (unsigned long long)daemon_counters()->remaps);
	fclose(file);
}
