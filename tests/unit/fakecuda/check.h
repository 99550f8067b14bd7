/* SPDX-License-Identifier: Apache-2.0 */
/* TEST(name) { ... } in one file per theme; the program runs the test it is given, `--list` names them. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "fakecuda.h"

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

static struct test *tests;

#define TEST(label) \
	static void test_##label(void); \
	__attribute__((constructor)) static void add_##label(void) { \
		static struct test test = { #label, test_##label, NULL }; \
		test.next = tests; \
		tests = &test; \
	} \
	static void test_##label(void)

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1); \
		} \
	} while (0)

#define IS(call, expected) \
	do { \
		CUresult got_ = (call); \
		if (got_ != (CUresult)(expected)) { \
			fprintf(stderr, "%s:%d: %s gave %d, expected %d\n", __FILE__, __LINE__, #call, (int)got_, \
				(int)(expected)); \
			_exit(1); \
		} \
	} while (0)

#define OK(call) IS(call, CUDA_SUCCESS)

/* Exactly so many violations, of which the first holds the text; forgotten then. */
#define VIOLATED(n, text) \
	do { \
		if (fakecuda_violations() != (n) || ((n) && !strstr(fakecuda_violation(0), text))) { \
			fprintf(stderr, "%s:%d: %zu violations, first: %s\n", __FILE__, __LINE__, fakecuda_violations(), \
				fakecuda_violation(0) ? fakecuda_violation(0) : "-"); \
			_exit(1); \
		} \
		fakecuda_forget_violations(); \
	} while (0)

#define CLEAN() VIOLATED(0, "")

static const char image[] =
	"fakecuda 1\n"
	"kernel write params=8,4 duration_us=20\n"
	"kernel mix params=8,4,4,4 duration_us=50\n"
	"kernel add params=8,8,4 duration_us=20\n"
	"kernel census params=8,8 duration_us=10\n"
	"kernel spin params=8\n"
	"kernel until params=8,4\n"
	"kernel fault\n"
	"kernel nothing\n"
	"kernel condition params=8,4\n"
	"kernel half duration_us=100 shared=0 registers=32\n"
	"global table size=64\n";

static CUcontext primary;
static CUmodule module;

static inline void start(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
	OK(cuModuleLoadData(&module, image));
}

static inline CUfunction function(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

static inline CUdeviceptr words(size_t n)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 4 * n));
	OK(cuMemsetD32_v2(p, 1, n));
	OK(cuStreamSynchronize(NULL));
	return p;
}

static inline unsigned int word_at(CUdeviceptr p)
{
	unsigned int value;

	OK(cuMemcpyDtoH_v2(&value, p, 4));
	return value;
}

static inline CUresult mix(CUstream stream, CUdeviceptr p, unsigned int a, unsigned int b)
{
	unsigned int n = 4;
	void *params[] = { &p, &n, &a, &b };

	return cuLaunchKernel(function("mix"), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static inline CUresult put(CUstream stream, CUdeviceptr p, unsigned int value)
{
	void *params[] = { &p, &value };

	return cuLaunchKernel(function("write"), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static inline CUresult spin(CUstream stream, unsigned long long ns)
{
	void *params[] = { &ns };

	return cuLaunchKernel(function("spin"), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static inline CUstream stream_new(unsigned int flags)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

static inline CUevent event_new(unsigned int flags)
{
	CUevent event;

	OK(cuEventCreate(&event, flags));
	return event;
}

static inline CUgreenCtx green_new(unsigned int sms, CUdevResource *rest)
{
	CUdevResource all, group;
	CUdevResourceDesc desc;
	unsigned int groups = 1;
	CUgreenCtx green;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevSmResourceSplitByCount(&group, &groups, &all, rest, 0, sms));
	OK(cuDevResourceGenerateDesc(&desc, &group, 1));
	OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

static inline CUstream green_stream(unsigned int sms)
{
	CUstream stream;

	OK(cuGreenCtxStreamCreate(&stream, green_new(sms, NULL), CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

/* SMs that 132 blocks run on in this stream; the highest id goes to *last. */
static inline unsigned int census(CUstream stream, unsigned int *last)
{
	CUdeviceptr p = words(132), none = 0;
	unsigned int sm[132], n = 0, max = 0;
	void *params[] = { &p, &none };
	char seen[256] = { 0 };

	OK(cuLaunchKernel(function("census"), 132, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(sm, p, sizeof(sm)));
	for (int i = 0; i < 132; i++) {
		n += !seen[sm[i]];
		seen[sm[i]] = 1;
		max = sm[i] > max ? sm[i] : max;
	}
	if (last)
		*last = max;
	OK(cuMemFree_v2(p));
	return n;
}

static inline double ms_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int count, char **names)
{
	for (struct test *test = tests; test; test = test->next) {
		if (count != 2)
			puts(test->name);
		if (count != 2 || strcmp(names[1], test->name))
			continue;
		test->run();
		return 0;
	}
	return count == 2 ? 2 : 0;
}

#endif
