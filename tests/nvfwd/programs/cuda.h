/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What these programs share: libcuda, looked up by name; a JSON line for what fails; kernels of a known amount of work (not of time, which
 * passes for a kernel that waits for its turn too), each of which counts itself in memory that the CPU reads without a call.
 */
#ifndef NVFWD_PROGRAMS_CUDA_H
#define NVFWD_PROGRAMS_CUDA_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char cuda_kernel[] =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".visible .entry work(.param .u64 rounds, .param .u64 count) {\n"
	".reg .pred %p; .reg .b64 %d<4>; .reg .b32 %r<3>;\n"
	"ld.param.u64 %d1, [rounds]; ld.param.u64 %d2, [count]; mov.u64 %d3, 0; mov.u32 %r1, 1;\n"
	"again: mad.lo.u32 %r1, %r1, 1664525, 1013904223; add.u64 %d3, %d3, 1; setp.lt.u64 %p, %d3, %d1; @%p bra again;\n"
	"st.volatile.global.u32 [%d2+4], %r1; ld.volatile.global.u32 %r2, [%d2]; add.u32 %r2, %r2, 1;\n"
	"st.volatile.global.u32 [%d2], %r2; membar.sys;\nret;\n}\n";

typedef int (*cuda_launch_t)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
			     void *, void **, void **);

static void *cuda_library, *cuda_context, *cuda_function, *cuda_stream;
static volatile uint32_t *cuda_count;	/* kernels that ran */
static uint64_t cuda_launched;
static double cuda_rounds_per_us;	/* 0: not known yet */

static inline double cuda_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void *cuda_find(const char *name)
{
	void *found = dlsym(cuda_library, name);

	if (found)
		return found;
	printf("{\"event\":\"failed\",\"step\":\"%s\",\"result\":-1}\n", name);
	exit(1);
}

static inline void cuda_must(const char *step, int result)
{
	if (!result)
		return;
	printf("{\"event\":\"failed\",\"step\":\"%s\",\"result\":%d,\"t\":%.6f}\n", step, result, cuda_now());
	exit(1);
}

#define CALL(name, types, ...) (((int (*) types)cuda_find(#name))(__VA_ARGS__))
#define MUST(name, types, ...) cuda_must(#name, CALL(name, types, __VA_ARGS__))

static inline void cuda_open(void)
{
	cuda_library = dlopen("libcuda.so.1", RTLD_NOW);
	if (cuda_library)
		return;
	printf("{\"event\":\"failed\",\"step\":\"dlopen\",\"result\":-1}\n");
	exit(1);
}

/* A context with the kernel and its counter. */
static inline void cuda_begin(void)
{
	void *module, *count;
	int device;

	MUST(cuInit, (unsigned int), 0);
	MUST(cuDeviceGet, (int *, int), &device, 0);
	MUST(cuCtxCreate_v2, (void **, unsigned int, int), &cuda_context, 4, device);	/* who waits sleeps */
	MUST(cuMemHostAlloc, (void **, size_t, unsigned int), &count, 4096, 2);	/* for kernels, too */
	memset(count, 0, 4096);
	cuda_count = count;
	MUST(cuModuleLoadData, (void **, const void *), &module, cuda_kernel);
	MUST(cuModuleGetFunction, (void **, void *, const char *), &cuda_function, module, "work");
	MUST(cuStreamCreate, (void **, unsigned int), &cuda_stream, 1);
}

static inline void cuda_launch(cuda_launch_t entry, uint64_t rounds)
{
	uint64_t count = (uint64_t)(uintptr_t)cuda_count;
	void *parameters[] = { &rounds, &count };

	cuda_must("cuLaunchKernel", entry(cuda_function, 1, 1, 1, 1, 1, 1, 0, cuda_stream, parameters, NULL));
	cuda_launched++;
}

static inline double cuda_seconds(uint64_t rounds)
{
	double begun = cuda_now();

	cuda_launch((cuda_launch_t)cuda_find("cuLaunchKernel"), rounds);
	MUST(cuStreamSynchronize, (void *), cuda_stream);
	return cuda_now() - begun;
}

/* Only while nobody else is on the GPU. */
static inline void cuda_calibrate(void)
{
	const uint64_t some = 1 << 22, more = 5ull << 22;
	double less;

	cuda_seconds(more);	/* the clock rises */
	less = cuda_seconds(some);
	cuda_rounds_per_us = (double)(more - some) / ((cuda_seconds(more) - less) * 1e6);
}

static inline uint64_t cuda_rounds(uint64_t us)
{
	if (cuda_rounds_per_us <= 0)
		cuda_calibrate();
	return (uint64_t)((double)us * cuda_rounds_per_us);
}

#endif
