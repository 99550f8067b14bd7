/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts beside those that are steered, on the same GPU and on another: `besides CASE`, with DETSHARE_PARK=1 and two GPUs. */
#include "parked.h"

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

int main(int count, char **words)
{
	static const struct parked_case cases[] = {
		{"own", own_elsewhere},
		{"refused", refused_elsewhere},
		{"outlived", outlived},
	};

	return parked_main(count > 1 ? words[1] : "", cases, sizeof(cases) / sizeof(cases[0]));
}
