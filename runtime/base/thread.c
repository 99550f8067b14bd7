/* SPDX-License-Identifier: Apache-2.0 */
/* Time, threads of our own, and what belongs to each thread of the program. */
#define _GNU_SOURCE
#include <signal.h>

#include "thread.h"

#define SECOND_NS 1000000000ULL
/* the program's default may be small, and the driver's calls are deep */
#define STACK_LEAST ((size_t)2 << 20)

__thread struct ds_thread ds_thread;

uint64_t ds_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

struct timespec ds_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

void ds_nap(uint64_t ns)
{
	struct timespec time = ds_timespec(ns);

	nanosleep(&time, NULL);
}

int ds_thread_start(void *(*run)(void *), void *data)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	size_t stack;
	int error;

	error = pthread_attr_init(&attributes);
	if (error)
		return error;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (!pthread_attr_getstacksize(&attributes, &stack) && stack < STACK_LEAST)
		pthread_attr_setstacksize(&attributes, STACK_LEAST);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, run, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error;
}
