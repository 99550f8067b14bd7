/* SPDX-License-Identifier: Apache-2.0 */
/* Time, threads of our own, and what belongs to each thread of the program. */
#ifndef DS_THREAD_H
#define DS_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "cuda.h"

uint64_t ds_now_ns(void); /* CLOCK_MONOTONIC */
struct timespec ds_timespec(uint64_t ns);
void ds_nap(uint64_t ns);
/* Runs detached, with all signals blocked: no handler of the program ever runs on a thread of ours. 0, or an errno. */
int ds_thread_start(void *(*run)(void *), void *data);

#define DS_CACHED_STREAMS 16

struct ds_device;
struct ds_own_stream;
struct ds_stream;
struct ds_tally;

/* What belongs to one thread. The first line of the cache has what each launch reads. */
struct ds_thread {
	uint32_t known; /* ds_process.contexts when the next three were found; else, and when 0, they are void */
	uint8_t home; /* calls under way that need the program's memory on the GPU, one in another */
	bool makes; /* what it is inside of makes memory and names none: if need be it begins while memory is lent */
	bool waits; /* inside a call that waits for memory of the driver's own */
	bool passes; /* a helper thread of ours that is about to leave the driver: it does not wait there for a driver that sleeps */
	bool locked; /* inside a call of ours that holds a lock, or a helper thread of ours: wrapped calls go on natively */
	CUcontext current; /* the driver's answer */
	struct ds_stream *legacy, *per_thread; /* its default streams; NULL: not looked for */
	struct ds_tally *tally; /* of the device used last */
	uint32_t streams; /* ds_process.streams_changed at which the NULLs in cache were right */
	uint32_t generation;
	CUcontext context; /* device: whose it is, while generation is ds_process.contexts */
	struct ds_device *device;
	struct {
		CUstream app;
		struct ds_stream *stream; /* NULL: not managed */
	} cache[DS_CACHED_STREAMS];
	struct ds_own_stream *own; /* default streams of this thread */
} __attribute__((aligned(64)));
extern __thread struct ds_thread ds_thread __attribute__((tls_model("initial-exec")));

/* after each call by which another context may be current in this thread */
static inline void ds_context_changed(void)
{
	ds_thread.known = 0;
}

#endif
