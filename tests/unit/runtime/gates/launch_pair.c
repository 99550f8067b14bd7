// SPDX-License-Identifier: Apache-2.0
/*
 * What libdetshare.so adds to cuLaunchKernel on a GPU, where the driver's own time wobbles by more than that: short series of launches by the driver's
 * own function and by the library's take turns in one process, and the median of all differences counts. Needs libdetshare.so in LD_PRELOAD.
 * launch_pair own|legacy|per-thread: prints the medians in ns: driver, library, difference of neighbours.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda.h"
#include "daemon.h"

#define PAIRS 1500
/* untimed ones first: after a wait for the GPU the path is cold, the driver's as well as ours */
#define WARM 10
#define SERIES 50

typedef CUresult (*launch_type)(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
				unsigned int shared, CUstream stream, void **params, void **extra);

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxSynchronize(void);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);

static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n// fakecuda: kernel nothing duration_us=1\n"
			    ".visible .entry nothing()\n{\n\tret;\n}\n";
static CUfunction function;
static CUstream stream;

static void check(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s gave %d\n", what, result);
	exit(1);
}

static double series(launch_type launch)
{
	struct timespec before, after;

	for (int n = 0; n < WARM + SERIES; n++) {
		if (n == WARM)
			clock_gettime(CLOCK_MONOTONIC, &before);
		launch(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
	}
	clock_gettime(CLOCK_MONOTONIC, &after);
	return ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) / SERIES;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, PAIRS, sizeof(*values), by_size);
	return values[PAIRS / 2];
}

int main(int count, char **words)
{
	static double driver[PAIRS], library[PAIRS], added[PAIRS];
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *(*find)(void *, const char *) = NULL;
	launch_type ways[2];
	CUcontext context;
	CUmodule module;

	/* one of the ways past the library (docs/how/coverage.md) */
	for (const char *const *version = (const char *const[]){"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", NULL}; *version && !find; version++)
		*(void **)&find = dlvsym(RTLD_NEXT, "dlsym", *version);
	if (count != 2 || !cuda || !find) {
		fprintf(stderr, "usage: launch_pair own|legacy|per-thread\n");
		return 2;
	}
	*(void **)&ways[0] = find(cuda, "cuLaunchKernel");
	*(void **)&ways[1] = dlsym(cuda, "cuLaunchKernel");
	if (ways[0] == ways[1]) {
		fprintf(stderr, "launch_pair: libdetshare.so is not preloaded\n");
		return 1;
	}
	daemon_start();
	check(cuInit(0), "cuInit");
	check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	check(cuModuleLoadData(&module, image), "cuModuleLoadData");
	check(cuModuleGetFunction(&function, module, "nothing"), "cuModuleGetFunction");
	if (!strcmp(words[1], "per-thread"))
		stream = CU_STREAM_PER_THREAD;
	else if (strcmp(words[1], "legacy"))
		check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	for (int n = -200; n < PAIRS; n++) {
		double times[2];

		for (int turn = 0; turn < 2; turn++) {
			int which = (n ^ turn) & 1;

			times[which] = series(ways[which]);
			/* the queue never fills */
			check(cuCtxSynchronize(), "cuCtxSynchronize");
		}
		if (n < 0)
			continue;
		driver[n] = times[0];
		library[n] = times[1];
		added[n] = times[1] - times[0];
	}
	printf("%.1f %.1f %.1f\n", median(driver), median(library), median(added));
	return 0;
}
