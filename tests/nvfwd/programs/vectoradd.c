// SPDX-License-Identifier: Apache-2.0
/*
 * First contact with a GPU, by the CUDA driver API alone: a JSON line for each step, with libcuda's answer. Ends at the first step that fails,
 * but for managed memory, whose refusal is told.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT (1u << 20)

static const char kernel[] =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {\n"
	".reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %d<8>;\n"
	"ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [c]; ld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n"
	"setp.ge.u32 %p, %r5, %r1; @%p bra done;\n"
	"mul.wide.u32 %d4, %r5, 4; add.s64 %d5, %d1, %d4; add.s64 %d6, %d2, %d4; add.s64 %d7, %d3, %d4;\n"
	"ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6]; add.f32 %f3, %f1, %f2; st.global.f32 [%d7], %f3;\n"
	"done: ret;\n}\n";

static void *library;
static double begun;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *find(const char *name)
{
	void *found = dlsym(library, name);

	if (found)
		return found;
	printf("{\"step\":\"%s\",\"error\":\"libcuda has none\"}\n", name);
	exit(1);
}

static int told(const char *step, int result)
{
	printf("{\"step\":\"%s\",\"result\":%d,\"t\":%.3f}\n", step, result, now() - begun);
	fflush(stdout);
	return result;
}

#define MUST(name, types, ...) do { \
		int (*entry) types = (int (*) types)find(#name); \
		if (told(#name, entry(__VA_ARGS__))) \
			return 1; \
	} while (0)

static int add(void)
{
	uint64_t a, b, c;
	void *context, *module, *function, *stream, *event, *pinned;
	float *x = malloc(COUNT * sizeof(float)), *y = malloc(COUNT * sizeof(float));
	size_t bytes = COUNT * sizeof(float), free_bytes, total;
	unsigned int wrong = 0, count = COUNT;
	void *parameters[] = { &a, &b, &c, &count };
	char name[128];
	int device;

	if (!x || !y)
		return 1;
	MUST(cuInit, (unsigned int), 0);
	MUST(cuDeviceGet, (int *, int), &device, 0);
	MUST(cuDeviceGetName, (char *, int, int), name, sizeof(name), device);
	printf("{\"device\":\"%s\"}\n", name);
	MUST(cuCtxCreate_v2, (void **, unsigned int, int), &context, 0, device);
	MUST(cuMemGetInfo_v2, (size_t *, size_t *), &free_bytes, &total);
	printf("{\"free\":%zu,\"total\":%zu}\n", free_bytes, total);
	MUST(cuMemAlloc_v2, (uint64_t *, size_t), &a, bytes);
	MUST(cuMemAlloc_v2, (uint64_t *, size_t), &b, bytes);
	MUST(cuMemAlloc_v2, (uint64_t *, size_t), &c, bytes);
	for (unsigned int i = 0; i < COUNT; i++) {
		x[i] = (float)(i % 1000);
		y[i] = (float)(i % 77);
	}
	MUST(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), a, x, bytes);
	MUST(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), b, y, bytes);
	MUST(cuModuleLoadData, (void **, const void *), &module, kernel);
	MUST(cuModuleGetFunction, (void **, void *, const char *), &function, module, "add");
	MUST(cuStreamCreate, (void **, unsigned int), &stream, 0);
	MUST(cuEventCreate, (void **, unsigned int), &event, 1);	/* one that is slept for */
	MUST(cuLaunchKernel, (void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
			      void *, void **, void **), function, COUNT / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
	MUST(cuEventRecord, (void *, void *), event, stream);
	MUST(cuEventSynchronize, (void *), event);
	MUST(cuMemHostAlloc, (void **, size_t, unsigned int), &pinned, bytes, 0);
	MUST(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), pinned, c, bytes);
	for (unsigned int i = 0; i < COUNT; i++)
		wrong += ((float *)pinned)[i] != x[i] + y[i];
	printf("{\"sums\":%u,\"wrong\":%u}\n", COUNT, wrong);
	{
		int (*managed)(uint64_t *, size_t, unsigned int) = (int (*)(uint64_t *, size_t, unsigned int))find("cuMemAllocManaged");
		uint64_t at;

		told("cuMemAllocManaged", managed(&at, 1 << 20, 1));
	}
	MUST(cuMemFree_v2, (uint64_t), c);
	MUST(cuCtxDestroy_v2, (void *), context);
	return wrong != 0;
}

int main(void)
{
	int failed;

	begun = now();
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("{\"error\":\"%s\"}\n", dlerror());
		return 1;
	}
	failed = add();
	printf("{\"event\":\"%s\",\"t\":%.3f}\n", failed ? "failed" : "added", now() - begun);
	return failed;
}
