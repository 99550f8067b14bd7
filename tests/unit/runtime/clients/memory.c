/* SPDX-License-Identifier: Apache-2.0 */
/* The memory limit of the policy, and what a program sees of it: `memory CASE`. */
#include <stdatomic.h>

#include "graph_api.h"

#define MIB (1ULL << 20)

static uint64_t base;

static uint64_t used(void)
{
	return daemon_counters()->memory_used - base;
}

static void limit(uint64_t bytes)
{
	daemon_policy()->memory_limit = base + bytes;
}

static void case_linear(void)
{
	CUdeviceptr first, second, third;
	size_t pitch;

	limit(64 * MIB);
	CHECK(cuMemAlloc_v2(&first, 40 * MIB));
	EXPECT(used() == 40 * MIB);
	EXPECT(cuMemAlloc_v2(&second, 24 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(used() == 40 * MIB);
	CHECK(cuMemAlloc_v2(&second, 24 * MIB));
	EXPECT(cuMemAlloc_v2(&third, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAllocManaged(&third, 1, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAllocPitch_v2(&third, &pitch, 100, 100, 4) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemFree_v2(first));
	EXPECT(used() == 24 * MIB);
	CHECK(cuMemAllocManaged(&third, 8 * MIB, 1));
	EXPECT(used() == 32 * MIB);
	CHECK(cuMemFree_v2(third));
	CHECK(cuMemAllocPitch_v2(&third, &pitch, 100, 1000, 4));
	EXPECT(used() == 24 * MIB + pitch * 1000);
	CHECK(cuMemFree_v2(third));
	CHECK(cuMemFree_v2(second));
	EXPECT(used() == 0);
	/* A size that would wrap the sum. */
	EXPECT(cuMemAlloc_v2(&first, SIZE_MAX - 5) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(used() == 0);
	EXPECT(cuMemFree_v2(12345) != CUDA_SUCCESS);
	EXPECT(used() == 0);
}

static void case_stream(void)
{
	CUdeviceptr first, second;
	CUstream stream;
	unsigned int round;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	limit(64 * MIB);
	for (round = 0; round < 4; round++) {
		daemon_tier(round & 1);
		CHECK(cuMemAllocAsync(&first, 40 * MIB, stream));
		EXPECT(used() == 40 * MIB);
		EXPECT(cuMemAllocAsync(&second, 25 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(cuMemAllocAsync(&second, 24 * MIB, NULL));
		CHECK(cuMemFreeAsync(first, stream));
		CHECK(cuStreamSynchronize(NULL));
		CHECK(cuMemFree_v2(second));
		EXPECT(used() == 0);
	}
	/* What a capture allocates has memory only while its graph runs. */
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuMemAllocAsync(&first, 40 * MIB, stream));
	CHECK(cuMemFreeAsync(first, stream));
	CHECK(cuStreamEndCapture(stream, &(CUgraph){NULL}));
	EXPECT(used() == 0);
}

static CUmemGenericAllocationHandle create(size_t size, CUresult expected)
{
	CUmemAllocationProp prop = {.type = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemGenericAllocationHandle handle = 0;

	EXPECT(cuMemCreate(&handle, size, &prop, 0) == expected);
	return handle;
}

/* Memory is held while a handle or a mapping is left, whichever goes last. */
static void case_virtual(void)
{
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr address;

	limit(64 * MIB);
	CHECK(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0));
	handle = create(40 * MIB, CUDA_SUCCESS);
	EXPECT(used() == 40 * MIB);
	create(26 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemMap(address, 40 * MIB, 0, handle, 0));
	CHECK(cuMemRelease(handle));
	EXPECT(used() == 40 * MIB);
	CHECK(cuMemRetainAllocationHandle(&again, (void *)address));
	CHECK(cuMemUnmap(address, 40 * MIB));
	EXPECT(used() == 40 * MIB);
	CHECK(cuMemRelease(again));
	EXPECT(used() == 0);
	/* one handle, mapped twice */
	handle = create(4 * MIB, CUDA_SUCCESS);
	CHECK(cuMemMap(address, 4 * MIB, 0, handle, 0));
	CHECK(cuMemMap(address + 4 * MIB, 4 * MIB, 0, handle, 0));
	CHECK(cuMemRelease(handle));
	CHECK(cuMemUnmap(address, 4 * MIB));
	EXPECT(used() == 4 * MIB);
	CHECK(cuMemUnmap(address + 4 * MIB, 4 * MIB));
	EXPECT(used() == 0);
	/* released without ever being mapped */
	CHECK(cuMemRelease(create(4 * MIB, CUDA_SUCCESS)));
	EXPECT(used() == 0);
}

static void case_arrays(void)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {
		.Width = 1024, .Height = 1024, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4,
	};
	CUarray array, other;

	limit(100 * MIB);
	CHECK(cuArray3DCreate_v2(&array, &descriptor));
	EXPECT(used() == 64 * MIB);
	EXPECT(cuArray3DCreate_v2(&other, &descriptor) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuArrayDestroy(array));
	EXPECT(used() == 0);
}

static void case_view(void)
{
	size_t left, total, all, device;
	CUdeviceptr address;

	daemon_policy()->memory_limit = 0;
	CHECK(cuMemGetInfo_v2(&left, &all));
	CHECK(cuDeviceTotalMem_v2(&device, 0));
	EXPECT(device == all);
	limit(64 * MIB);
	CHECK(cuMemGetInfo_v2(&left, &total));
	EXPECT(total == base + 64 * MIB);
	EXPECT(left == 64 * MIB);
	CHECK(cuMemAlloc_v2(&address, 40 * MIB));
	CHECK(cuMemGetInfo_v2(&left, &total));
	EXPECT(left == 24 * MIB);
	CHECK(cuDeviceTotalMem_v2(&total, 0));
	EXPECT(total == base + 64 * MIB);
	/* lowered below what is in use */
	limit(16 * MIB);
	CHECK(cuMemGetInfo_v2(&left, &total));
	EXPECT(left == 0);
	EXPECT(cuMemAlloc_v2(&address, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	/* taken away */
	daemon_policy()->memory_limit = 0;
	CHECK(cuMemGetInfo_v2(&left, &total));
	EXPECT(total == all);
	CHECK(cuMemAlloc_v2(&address, 200 * MIB));
}

/* A limit that is larger than the GPU changes nothing. */
static void case_large(void)
{
	size_t left, total, all;

	CHECK(cuMemGetInfo_v2(&left, &all));
	daemon_policy()->memory_limit = all * 2;
	CHECK(cuMemGetInfo_v2(&left, &total));
	EXPECT(total == all);
}

static void *hammer(void *unused)
{
	CUdeviceptr held[8] = {0};
	unsigned int round;

	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	for (round = 0; round < 2000; round++) {
		CUdeviceptr *slot = &held[round % 8];
		CUresult result;

		if (*slot)
			CHECK(cuMemFree_v2(*slot));
		*slot = 0;
		result = cuMemAlloc_v2(slot, (round % 5 + 1) * MIB);
		if (result != CUDA_SUCCESS)
			*slot = 0;
		EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	}
	for (round = 0; round < 8; round++)
		if (held[round])
			CHECK(cuMemFree_v2(held[round]));
	return NULL;
}

/* four threads that want 96 MiB of 64 */
static void case_threads(void)
{
	pthread_t threads[4];
	CUdeviceptr address;
	unsigned int index;

	limit(64 * MIB);
	for (index = 0; index < 4; index++)
		pthread_create(&threads[index], NULL, hammer, NULL);
	for (index = 0; index < 4; index++)
		pthread_join(threads[index], NULL);
	CHECK(cuMemAlloc_v2(&address, 64 * MIB));
	EXPECT(used() == 64 * MIB);
	CHECK(cuMemFree_v2(address));
	EXPECT(used() == 0);
}

static _Atomic(bool) over;

static void *greedy(void *unused)
{
	CUdeviceptr none;

	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	while (!atomic_load(&over))
		EXPECT(cuMemAlloc_v2(&none, 64 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	return NULL;
}

/* What is refused to one thread is taken from none. */
static void case_greedy(void)
{
	pthread_t threads[2];
	CUdeviceptr address;

	limit(64 * MIB);
	for (unsigned int n = 0; n < 2; n++)
		pthread_create(&threads[n], NULL, greedy, NULL);
	for (unsigned int n = 0; n < 100000; n++) {
		CHECK(cuMemAlloc_v2(&address, 4096));
		CHECK(cuMemFree_v2(address));
	}
	atomic_store(&over, true);
	for (unsigned int n = 0; n < 2; n++)
		pthread_join(threads[n], NULL);
	EXPECT(used() == 0);
}

/* Contexts that end take their memory with them. */
static void case_contexts(void)
{
	CUcontext other;
	CUdeviceptr address;

	limit(64 * MIB);
	CHECK(cuCtxCreate_v2(&other, 0, 0));
	CHECK(cuMemAlloc_v2(&address, 40 * MIB));
	EXPECT(used() == 40 * MIB);
	CHECK(cuCtxDestroy_v2(other));
	EXPECT(used() == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"linear", case_linear}, {"stream", case_stream}, {"virtual", case_virtual}, {"arrays", case_arrays},
	{"view", case_view}, {"large", case_large}, {"threads", case_threads}, {"contexts", case_contexts},
	{"greedy", case_greedy},
};

int main(int argc, char **argv)
{
	unsigned int index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
		if (argc != 2 || strcmp(argv[1], cases[index].name))
			continue;
		client_start(0);
		client_pool();
		base = daemon_counters()->memory_used;
		cases[index].run();
		return 0;
	}
	fprintf(stderr, "usage: memory CASE\n");
	return 2;
}
