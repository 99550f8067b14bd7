// SPDX-License-Identifier: Apache-2.0
/*
 * How long cuLaunchKernel takes, as a program sees it, where the driver's own does nothing. Run with and without libdetshare.so in LD_PRELOAD;
 * the difference is what the library adds. launch_cost LAUNCHES FUNCTIONS GATE_US own|legacy|per-thread [other]: prints the ns of each of some
 * rounds, and then how many launches and gates the library counted. other: the process has a second context.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "daemon.h"

#define ROUNDS 20

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
			unsigned int shared, CUstream stream, void **params, void **extra);

/* for a GPU too, where the driver's own time is in the figure */
static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n// fakecuda: kernel nothing duration_us=1\n"
			    ".visible .entry nothing()\n{\n\tret;\n}\n";

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static void check(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s gave %d\n", what, result);
	exit(1);
}

int main(int count, char **words)
{
	bool complete = count == 5 || (count == 6 && !strcmp(words[5], "other"));
	int launches = complete ? atoi(words[1]) : 0, round, n;
	unsigned int functions = complete ? (unsigned int)atoi(words[2]) : 0;
	CUcontext context, other;
	CUfunction function;
	CUmodule module;
	CUstream stream;
	uint64_t began;

	if (launches < 1 || !functions) {
		fprintf(stderr, "usage: launch_cost LAUNCHES FUNCTIONS GATE_US own|legacy|per-thread [other]\n");
		return 2;
	}
	daemon_start();
	daemon_policy()->gate_us = (uint32_t)atoi(words[3]);
	check(cuInit(0), "cuInit");
	check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check(cuModuleLoadData(&module, image), "cuModuleLoadData");
	check(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
	if (!strcmp(words[4], "legacy"))
		stream = NULL;
	else if (!strcmp(words[4], "per-thread"))
		stream = CU_STREAM_PER_THREAD;
	else
		check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	if (count == 6) {
		check(cuCtxCreate_v2(&other, 0, 0), "cuCtxCreate_v2");
		check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	}
	check(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
	/* the poller registers the word and makes its events once */
	usleep(50000);
	for (round = 0; round < ROUNDS; round++) {
		began = now_ns();
		/* grids tell launches apart as functions do */
		for (n = 0; n < launches; n++)
			cuLaunchKernel(function, 1 + (unsigned int)n % functions, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
		printf("%.3f\n", (double)(now_ns() - began) / launches);
	}
	/* the watchdog counts every 2 ms, when the machine lets it */
	for (n = 0; daemon_attached() && daemon_counters()->launches <= (uint64_t)launches * ROUNDS && n < 5000; n++)
		usleep(1000);
	printf("%llu %llu\n", (unsigned long long)daemon_counters()->launches, (unsigned long long)daemon_counters()->gates);
	/* the stand-in's own end has nothing to do with it */
	fflush(stdout);
	_exit(0);
}
