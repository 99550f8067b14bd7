/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that are not steered, and what is of no context: `besides CASE`, with DETSHARE_PARK=1; the first ones want two GPUs. */
#include "parked.h"

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);

static CUdeviceptr block;

static void make(void)
{
	CHECK(cuMemAlloc_v2(&block, 4 * MIB));
	fill(block, 4 * MIB, 3);
}

/* What the current context of the other GPU makes of the first one's memory, which is parked. */
static void reaches(void)
{
	CUdeviceptr copy;
	uint32_t word;

	CHECK(cuMemAlloc_v2(&copy, 4 * MIB));
	EXPECT(park() == DS_PARK_CONTEXT && !away());
	CHECK(cuMemcpyDtoD_v2(copy, block, 4 * MIB));
	EXPECT(filled(copy, 4 * MIB, 3));
	CHECK(cuCtxEnablePeerAccess(context, 0));
	client_kernels();
	CHECK(client_mix(NULL, block, 1, 1, 5));
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuMemcpyDtoH_v2(&word, block, sizeof(word)));
	EXPECT(word == 8);
	CHECK(cuMemFree_v2(copy));
	/* what is made later is reached too */
	CHECK(cuCtxPushCurrent_v2(context));
	CHECK(cuMemAlloc_v2(&copy, 4 * MIB));
	fill(copy, 4 * MIB, 4);
	CHECK(cuCtxPopCurrent_v2(&(CUcontext){NULL}));
	CHECK(client_mix(NULL, copy, 1, 1, 5));
	CHECK(cuStreamSynchronize(NULL));
}

static void own_elsewhere(void)
{
	CUcontext other;

	make();
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuCtxCreate_v2(&other, 0, 1));
	reaches();
}

/* The daemon gives no boards of the other GPU. */
static void refused_elsewhere(void)
{
	CUcontext other;

	make();
	daemon_refuses(1);
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuDevicePrimaryCtxRetain(&other, 1));
	CHECK(cuCtxSetCurrent(other));
	reaches();
}

/* The primary context ends and comes again, another one of the same GPU goes on. */
static void outlived(void)
{
	CUcontext other;

	CHECK(cuCtxCreate_v2(&other, 0, 0));
	CHECK(cuCtxSynchronize());
	CHECK(cuDevicePrimaryCtxReset_v2(0));
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	__atomic_store_n(&daemon_counters()->unmanaged, 0, __ATOMIC_RELAXED); /* the board is a new one */
	CHECK(cuCtxSetCurrent(context));
	make();
	EXPECT(park() == DS_PARK_CONTEXT && !away());
	CHECK(cuCtxDestroy_v2(other));
	EXPECT(park() == DS_PARK_OK && away());
}

#define OWN (4 * MIB)

static CUmemGenericAllocationHandle handle;

static CUdeviceptr own_memory(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr base;

	CHECK(cuMemAddressReserve(&base, OWN, 0, 0, 0));
	CHECK(cuMemCreate(&handle, OWN, &prop, 0));
	CHECK(cuMemMap(base, OWN, 0, handle, 0));
	CHECK(cuMemSetAccess(base, OWN, &access, 1));
	return base;
}

static void next_context(void)
{
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
}

/* Memory of no context is asked about while there is none; it is away. */
static void between(void)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUdeviceptr base = own_memory();
	unsigned long long flags;

	for (unsigned int round = 0; round < 3; round++) {
		fill(base, OWN, round);
		EXPECT(park() == DS_PARK_OK);
		CHECK(cuDevicePrimaryCtxRelease_v2(0));
		CHECK(cuMemGetAccess(&flags, &location, base));
		EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		next_context();
		EXPECT(filled(base, OWN, round));
	}
}

/* The daemon brings it back in the midst of the next context's beginning. */
static void begins(void)
{
	CUdeviceptr base = own_memory();

	for (unsigned int round = 0; round < 60; round++) {
		fill(base, OWN, round);
		EXPECT(park() == DS_PARK_OK);
		CHECK(cuDevicePrimaryCtxRelease_v2(0));
		daemon_park(false);
		next_context();
		daemon_park_wait();
		EXPECT(filled(base, OWN, round));
	}
}

/* The next context is not steered. */
static void given_up(void)
{
	CUdeviceptr base = own_memory();

	fill(base, OWN, 6);
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
	daemon_refuses(0);
	next_context();
	EXPECT(filled(base, OWN, 6));
}

static CUstream stream;
static CUdeviceptr own, pooled, second;

static void gives_back(void)
{
	CHECK(cuMemFreeAsync(pooled, stream));
	CHECK(cuMemFreeAsync(second, stream));
	CHECK(cuStreamDestroy_v2(stream));
	CHECK(cuMemFree_v2(block));
	EXPECT(cuMemFree_v2(block) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemUnmap(own, OWN / 2) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemUnmap(own, OWN));
	EXPECT(cuMemUnmap(own, OWN) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemRelease(handle));
	EXPECT(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemAddressFree(own, OWN));
	EXPECT(daemon_counters()->memory_used == 0);
}

static void all_away(void)
{
	CHECK(cuStreamCreate(&stream, 0));
	make();
	own = own_memory();
	CHECK(cuMemAllocAsync(&pooled, MIB, stream));
	CHECK(cuMemAlloc_v2(&second, 2 * MIB));
	EXPECT(park() == DS_PARK_OK && away());
	others_have(80UL << 30);
}

/* It ends while it is away, and the GPU stays full: what it gives back at its exit needs no room. */
static void exits(void)
{
	all_away();
}

/* It ran over what is lent before. */
static void exits_lent(void)
{
	client_kernels();
	all_away();
	CHECK(client_mix(stream, block, 1, 1, 5));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(state() == DS_PARK_LENT);
}

int main(int count, char **words)
{
	static const struct parked_case cases[] = {
		{"own", own_elsewhere},
		{"refused", refused_elsewhere},
		{"outlived", outlived},
		{"between", between},
		{"begins", begins},
		{"given-up", given_up},
		{"exits", exits},
		{"exits-lent", exits_lent},
	};

	/* before the library's own: it runs after them, as destructors of a program do */
	if (count > 1 && !strncmp(words[1], "exits", 5))
		atexit(gives_back);
	return parked_main(count > 1 ? words[1] : "", cases, sizeof(cases) / sizeof(cases[0]));
}
