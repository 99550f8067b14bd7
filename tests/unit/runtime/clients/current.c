/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Default streams belong to the context that is current: whatever makes another one current, by whatever way the program got the function, is seen
 * at the next launch, in each thread for itself. current unseen: by a function that the library does not know, in a driver newer than its list.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "client.h"

enum { PRIMARY, OTHER, CONTEXTS, WAYS = 4, THREADS = 3, STEPS = 60 };

struct way {
	CUresult (*set)(CUcontext);
	CUresult (*push)(CUcontext);
	CUresult (*pop)(CUcontext *);
};

static CUcontext contexts[CONTEXTS];
static CUfunction counters[CONTEXTS];
static CUfunction kernel; /* of the primary context */
static struct way ways[WAYS];
static bool alone = true;

static CUresult launch(CUfunction function, CUdeviceptr room, CUstream stream)
{
	CUdeviceptr none = 0;
	void *params[] = {&room, &none};

	return cuLaunchKernel(function, 264, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

/* the default streams are those of contexts[which] */
static void expect(unsigned int which)
{
	static const unsigned int sms[CONTEXTS] = {32, 132};
	CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
	uint32_t sm[264];
	CUdeviceptr room;

	for (unsigned int s = 0; s < 3; s++) {
		unsigned int count = 0;
		bool seen[1024] = {false};

		CHECK(cuMemAlloc_v2(&room, sizeof(sm)));
		CHECK(launch(counters[which], room, streams[s]));
		CHECK(cuStreamSynchronize(streams[s]));
		CHECK(cuMemcpyDtoH_v2(sm, room, sizeof(sm)));
		CHECK(cuMemFree_v2(room));
		for (unsigned int i = 0; i < 264; i++)
			if (!seen[sm[i]]) {
				seen[sm[i]] = true;
				count++;
			}
		/* beside other threads' kernels a grid may leave SMs out, and a stream that another thread is inside a call on stays at home for once */
		EXPECT(alone ? count == sms[which] : which == PRIMARY || count > sms[PRIMARY]);
	}
}

static void ways_find(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	ways[0] = (struct way){cuCtxSetCurrent, cuCtxPushCurrent_v2, cuCtxPopCurrent_v2};
	ways[1].set = dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
	ways[1].push = dlsym(RTLD_DEFAULT, "cuCtxPushCurrent_v2");
	ways[1].pop = dlsym(RTLD_DEFAULT, "cuCtxPopCurrent_v2");
	ways[2].set = dlsym(driver, "cuCtxSetCurrent");
	ways[2].push = dlsym(driver, "cuCtxPushCurrent_v2");
	ways[2].pop = dlsym(driver, "cuCtxPopCurrent_v2");
	CHECK(cuGetProcAddress("cuCtxSetCurrent", (void **)&ways[3].set, 13000, 0));
	CHECK(cuGetProcAddress("cuCtxPushCurrent", (void **)&ways[3].push, 13000, 0));
	CHECK(cuGetProcAddress("cuCtxPopCurrent", (void **)&ways[3].pop, 13000, 0));
}

static void *wander(void *data)
{
	uint64_t random = (uintptr_t)data + 1;
	unsigned int stack[4] = {PRIMARY}, depth = 0;
	CUcontext popped;

	/* a new thread has no context yet */
	EXPECT(launch(counters[PRIMARY], 0, NULL) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(cuCtxSetCurrent(contexts[PRIMARY]));
	for (unsigned int i = 0; i < STEPS; i++) {
		struct way *way;
		unsigned int which;

		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		way = &ways[random >> 33 & 3];
		which = random >> 40 & 1;
		if ((random >> 50 & 1) && depth) {
			CHECK(way->pop(&popped));
			EXPECT(popped == contexts[stack[depth]]);
			depth--;
		} else if ((random >> 51 & 1) && depth < 3) {
			CHECK(way->push(contexts[which]));
			stack[++depth] = which;
		} else {
			CHECK(way->set(contexts[which]));
			stack[depth] = which;
		}
		expect(stack[depth]);
	}
	return NULL;
}

/* a context that ends is not current any more in the thread that ended it */
static void ends(void)
{
	CUcontext doomed;
	CUdevice device;

	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate_v2(&doomed, 0, device));
	client_kernels();
	CHECK(cuCtxPopCurrent_v2(NULL));
	expect(PRIMARY);
	CHECK(cuCtxPushCurrent_v2(doomed));
	CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	CHECK(cuCtxDestroy_v2(doomed));
	expect(PRIMARY);
}

/* a stream of the primary context moves while another context is current */
static void beside(void)
{
	CUstream stream;

	CHECK(cuCtxSetCurrent(contexts[PRIMARY]));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxSetCurrent(contexts[OTHER]));
	for (unsigned int i = 0; i < 6; i++) {
		daemon_tier(i & 1);
		CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		CHECK(cuStreamSynchronize(stream));
		daemon_tier(1);
		expect(OTHER);
	}
	CHECK(cuCtxSetCurrent(contexts[PRIMARY]));
	expect(PRIMARY);
}

int main(int count, char **words)
{
	bool unseen = count > 1 && !strcmp(words[1], "unseen");
	pthread_t threads[THREADS];
	CUdevice device;

	client_start(1);
	CHECK(cuDeviceGet(&device, 0));
	contexts[PRIMARY] = context;
	counters[PRIMARY] = census;
	expect(PRIMARY);
	kernel = nothing;
	CHECK(cuCtxCreate_v2(&contexts[OTHER], 0, device));
	client_kernels();
	counters[OTHER] = census;
	expect(OTHER);
	if (unseen) {
		for (unsigned int i = 0; i < 6; i++) {
			EXPECT(!fakecuda_make_current(contexts[i & 1]));
			expect(i & 1);
		}
		return 0;
	}
	CHECK(cuCtxSetCurrent(contexts[PRIMARY]));
	expect(PRIMARY);
	ways_find();
	beside();
	ends();
	pthread_create(&threads[0], NULL, wander, (void *)99);
	pthread_join(threads[0], NULL);
	alone = false;
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, wander, (void *)i);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	alone = true;
	usleep(2000);
	expect(PRIMARY);
	return 0;
}
