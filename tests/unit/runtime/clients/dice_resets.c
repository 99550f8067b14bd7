/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `dice_resets SEED STEPS THREADS`: each of FAKECUDA_DEVICES GPUs has so many threads, which work there, and end and begin its context while the others
 * work and the daemon parks. Bytes are what was written; what the thread's own handles have outlives its contexts. Who is not alone on its GPU gives
 * back what it has, and its reference.
 */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "parked.h"
#include "weather.h"

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);

enum { BLOCKS = 3 };

/* the last of a thread's blocks are of its own handles */
struct worker {
	pthread_t thread;
	unsigned int number, gpu, seed, steps;
	bool alone;
	CUcontext context;
	CUfunction mix;
	CUstream stream;
	struct {
		CUdeviceptr at;
		CUmemGenericAllocationHandle handle;
		size_t size;
		uint32_t add; /* to what it was filled with */
	} blocks[2 * BLOCKS];
};

/* A GPU that others have filled for a while is no answer. */
#define PATIENT(call)                                                           \
	do {                                                                    \
		CUresult patient_result;                                        \
		while ((patient_result = (call)) == CUDA_ERROR_OUT_OF_MEMORY)   \
			usleep(1000);                                           \
		CHECK(patient_result);                                          \
	} while (0)

static unsigned int dice(struct worker *self, unsigned int sides)
{
	return (unsigned int)rand_r(&self->seed) % sides;
}

static void begins(struct worker *self)
{
	CUmodule module;

	PATIENT(cuDevicePrimaryCtxRetain(&self->context, (CUdevice)self->gpu));
	CHECK(cuCtxSetCurrent(self->context));
	CHECK(cuModuleLoadData(&module, client_image));
	CHECK(cuModuleGetFunction(&self->mix, module, "mix"));
	CHECK(cuStreamCreate(&self->stream, dice(self, 2)));
}

static void makes(struct worker *self, unsigned int n)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)self->gpu}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	self->blocks[n].size = (1 + dice(self, 3)) * 2 * MIB;
	self->blocks[n].add = 0;
	if (n < BLOCKS) {
		PATIENT(cuMemAlloc_v2(&self->blocks[n].at, self->blocks[n].size));
	} else {
		PATIENT(cuMemAddressReserve(&self->blocks[n].at, self->blocks[n].size, 0, 0, 0));
		PATIENT(cuMemCreate(&self->blocks[n].handle, self->blocks[n].size, &prop, 0));
		PATIENT(cuMemMap(self->blocks[n].at, self->blocks[n].size, 0, self->blocks[n].handle, 0));
		PATIENT(cuMemSetAccess(self->blocks[n].at, self->blocks[n].size, &access, 1));
	}
	fill(self->blocks[n].at, self->blocks[n].size, self->number * 100 + n);
}

static void ends(struct worker *self, unsigned int n)
{
	if (n < BLOCKS) {
		CHECK(cuMemFree_v2(self->blocks[n].at));
	} else {
		CHECK(cuMemUnmap(self->blocks[n].at, self->blocks[n].size));
		CHECK(cuMemRelease(self->blocks[n].handle));
		CHECK(cuMemAddressFree(self->blocks[n].at, self->blocks[n].size));
	}
	self->blocks[n].at = 0;
}

/* of all words the first 512 are worked on */
static void same(struct worker *self, unsigned int n)
{
	uint32_t words[1024], seed = self->number * 100 + n;

	CHECK(cuMemcpyDtoH_v2(words, self->blocks[n].at, sizeof(words)));
	for (uint32_t i = 0; i < 1024; i++)
		EXPECT(words[i] == i * 2654435761U + seed + (i < 512 ? self->blocks[n].add : 0));
}

static void works(struct worker *self, unsigned int n)
{
	uint32_t count = 512, a = 1, b = dice(self, 1000);
	void *params[] = {&self->blocks[n].at, &count, &a, &b};

	CHECK(cuLaunchKernel(self->mix, 8, 1, 1, 64, 1, 1, 0, self->stream, params, NULL));
	CHECK(cuStreamSynchronize(self->stream));
	self->blocks[n].add += b;
}

/* Its context goes, and what is of it; between it and the next one something is asked, or goes too. */
static void renews(struct worker *self)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)self->gpu};
	unsigned int n = BLOCKS + dice(self, BLOCKS);
	unsigned long long flags;

	for (unsigned int i = 0; i < BLOCKS && !self->alone; i++)
		if (self->blocks[i].at)
			ends(self, i);
	if (!self->alone)
		CHECK(cuStreamDestroy_v2(self->stream));
	else if (dice(self, 2))
		CHECK(cuDevicePrimaryCtxReset_v2((CUdevice)self->gpu));
	CHECK(cuDevicePrimaryCtxRelease_v2((CUdevice)self->gpu));
	for (unsigned int i = 0; i < BLOCKS; i++)
		self->blocks[i].at = 0;
	if (self->blocks[n].at && dice(self, 2)) {
		CHECK(cuMemGetAccess(&flags, &location, self->blocks[n].at));
		EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	} else if (self->blocks[n].at && dice(self, 3) == 0) {
		ends(self, n);
	}
	usleep(dice(self, 3000));
	begins(self);
}

static void *lives(void *data)
{
	struct worker *self = data;

	begins(self);
	for (unsigned int step = 0; step < self->steps; step++) {
		unsigned int n = dice(self, 2 * BLOCKS), what = dice(self, 20);

		if (what == 0)
			renews(self);
		else if (!self->blocks[n].at)
			makes(self, n);
		else if (what < 3)
			ends(self, n);
		else if (what < 12)
			works(self, n);
		else
			same(self, n);
		usleep(dice(self, 1000));
	}
	for (unsigned int n = 0; n < 2 * BLOCKS; n++)
		if (self->blocks[n].at) {
			same(self, n);
			ends(self, n);
		}
	CHECK(cuDevicePrimaryCtxRelease_v2((CUdevice)self->gpu));
	return NULL;
}

int main(int count, char **words)
{
	unsigned int gpus = getenv("FAKECUDA_DEVICES") ? (unsigned int)atoi(getenv("FAKECUDA_DEVICES")) : 1;
	unsigned int threads = count == 4 ? (unsigned int)atoi(words[3]) : 1;
	static struct worker workers[16];

	if (count < 3 || gpus * threads > 16)
		return 2;
	daemon_start();
	CHECK(cuInit(0));
	weather_begin((unsigned int)atoi(words[1]));
	for (unsigned int n = 0; n < gpus * threads; n++) {
		workers[n] = (struct worker){.number = n, .gpu = n % gpus, .alone = threads == 1, .steps = (unsigned int)atoi(words[2])};
		workers[n].seed = (unsigned int)atoi(words[1]) * 97 + n;
		pthread_create(&workers[n].thread, NULL, lives, &workers[n]);
	}
	for (unsigned int n = 0; n < gpus * threads; n++)
		pthread_join(workers[n].thread, NULL);
	weather_end();
	for (unsigned int n = 0; n < gpus; n++)
		EXPECT(fakecuda_used((int)n) == 0);
	return 0;
}
