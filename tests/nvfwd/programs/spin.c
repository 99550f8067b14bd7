// SPDX-License-Identifier: Apache-2.0
/*
 * A program with a CUDA context that does as it is told on stdin, a JSON line for each thing that happens.
 *   alloc MIB          cuMemAlloc
 *   rate [R]           kernels' rounds for a microsecond of work: as told, or as measured now; tells it
 *   run US PERIOD_MS   kernels of US microseconds: PERIOD_MS 0: two batches of 20 ms in flight at any time; else one every so often
 *   rest               no more; tells how many were launched and how many ran
 *   end                destroys its context
 */
#include <poll.h>
#include <pthread.h>

#include "cuda.h"

#define BATCH_US 20000
#define SHOWN_MS 50	/* between two looks at how many kernels ran */

static void *events[2];

typedef int (*record_t)(void *, void *);
typedef int (*sync_t)(void *);

static void begin(void)
{
	cuda_begin();
	for (int i = 0; i < 2; i++)
		MUST(cuEventCreate, (void **, unsigned int), &events[i], 1 | 2);
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f}\n", getpid(), cuda_now());
}

static void alloc(size_t mib)
{
	uint64_t at;
	double begun = cuda_now();
	int result = CALL(cuMemAlloc_v2, (uint64_t *, size_t), &at, mib << 20);

	printf("{\"event\":\"alloc\",\"mib\":%zu,\"result\":%d,\"us\":%.0f}\n", mib, result, (cuda_now() - begun) * 1e6);
}

static void rate(double told)
{
	cuda_rounds_per_us = told;
	if (told <= 0)
		cuda_calibrate();
	printf("{\"event\":\"rate\",\"per_us\":%.6f,\"t\":%.6f}\n", cuda_rounds_per_us, cuda_now());
}

static int told(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };

	return poll(&in, 1, 0) > 0;
}

static void wait_until(double when)
{
	double left = when - cuda_now();
	struct timespec t = { .tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9) };

	if (left > 0)
		nanosleep(&t, NULL);
}

/* From a thread: one whose kernels wait for the GPU tells what ran before, too. */
static void *show(void *unused)
{
	const struct timespec t = { .tv_nsec = SHOWN_MS * 1000000L };
	uint32_t shown = 0, count;

	for (;; nanosleep(&t, NULL)) {
		count = *cuda_count;
		if (count == shown)
			continue;
		shown = count;
		printf("{\"event\":\"done\",\"t\":%.6f,\"kernels\":%u}\n", cuda_now(), count);
		fflush(stdout);
	}
	return unused;
}

static void run(uint64_t us, unsigned int period_ms)
{
	cuda_launch_t entry = (cuda_launch_t)cuda_find("cuLaunchKernel");
	record_t record = (record_t)cuda_find("cuEventRecord");
	sync_t sync = (sync_t)cuda_find("cuEventSynchronize");
	uint64_t rounds = cuda_rounds(us), batch = period_ms ? 1 : BATCH_US / us ? BATCH_US / us : 1;
	double due = cuda_now();
	unsigned int turn = 0, filled = 0;

	while (!told()) {
		double begun = cuda_now();

		for (uint64_t i = 0; i < batch; i++)
			cuda_launch(entry, rounds);
		cuda_must("cuEventRecord", record(events[turn], cuda_stream));
		if (period_ms) {
			cuda_must("cuEventSynchronize", sync(events[turn]));
			printf("{\"event\":\"request\",\"t\":%.6f,\"us\":%.0f}\n", begun, (cuda_now() - begun) * 1e6);
			fflush(stdout);
			due += period_ms / 1e3;
			if (due < cuda_now())
				due = cuda_now();
			wait_until(due);
			continue;
		}
		turn ^= 1;
		if (filled++)
			cuda_must("cuEventSynchronize", sync(events[turn]));
	}
}

static void rest(void)
{
	MUST(cuStreamSynchronize, (void *), cuda_stream);
	printf("{\"event\":\"rest\",\"t\":%.6f,\"launched\":%lu,\"ran\":%u}\n", cuda_now(), cuda_launched, *cuda_count);
}

int main(void)
{
	char line[128];
	unsigned long a, b;
	pthread_t shows;

	setvbuf(stdin, NULL, _IONBF, 0);	/* poll must see what is there */
	cuda_open();
	begin();
	fflush(stdout);
	if (pthread_create(&shows, NULL, show, NULL))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "alloc %lu", &a) == 1)
			alloc(a);
		else if (sscanf(line, "run %lu %lu", &a, &b) == 2)
			run(a, (unsigned int)b);
		else if (!strncmp(line, "rate", 4))
			rate(atof(line + 4));
		else if (!strncmp(line, "rest", 4))
			rest();
		else if (!strncmp(line, "end", 3))
			break;
		fflush(stdout);
	}
	return 0;
}
