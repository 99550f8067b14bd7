/* SPDX-License-Identifier: Apache-2.0 */
/* Launches whose blocks wait for each other, on a tier of 32 SMs (and one of 8): `resident CASE`. */
#include "graph_api.h"

static CUstream stream;
static CUdeviceptr where;
static CUfunction collective;
static CUkernel kernel;

static unsigned int sms(unsigned int blocks)
{
	uint32_t ids[4096];
	unsigned char seen[1024] = {0};
	unsigned int index, count = 0;

	CHECK(cuMemcpyDtoHAsync_v2(ids, where, blocks * sizeof(*ids), stream));
	CHECK(cuStreamSynchronize(stream));
	for (index = 0; index < blocks; index++)
		if (ids[index] < sizeof(seen) && !seen[ids[index]]++)
			count++;
	return count;
}

static unsigned int launch(CUfunction function, unsigned int blocks, unsigned int threads, CUlaunchAttribute *attributes,
			   unsigned int count)
{
	CUlaunchConfig config = {blocks, 1, 1, threads, 1, 1, 0, stream, attributes, count};
	CUdeviceptr none = 0;

	CHECK(cuLaunchKernelEx(&config, function, (void *[]){&where, &none}, NULL));
	return sms(blocks);
}

/* as the stand-in's census: sm[block] = id of its SM */
static int count_sms(struct fakecuda_call *call)
{
	uint64_t address = *(uint64_t *)call->args[0];
	uint32_t *ids = fakecuda_touch(call, address, call->grid[0] * sizeof(*ids), 1);
	unsigned int block;

	for (block = 0; ids && block < call->grid[0]; block++)
		ids[block] = call->sm[block % call->sms];
	return ids ? 0 : -1;
}

static uint64_t full(unsigned int reason)
{
	return daemon_counters()->full_runs[reason];
}

/* 1024 threads: two blocks an SM, so 64 fit into 32 SMs and 264 into the whole GPU. */
static void cooperative(CUfunction function)
{
	CUlaunchAttribute yes = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
	CUdeviceptr none = 0;
	unsigned int round;

	for (round = 0; round < 3; round++) {
		EXPECT(launch(function, 64, 1024, &yes, 1) == 32);
		EXPECT(full(DS_FULL_COOPERATIVE) == 2 * round);
		EXPECT(launch(function, 65, 1024, &yes, 1) > 32);
		EXPECT(full(DS_FULL_COOPERATIVE) == 2 * round + 1);
		CHECK(cuLaunchCooperativeKernel(function, 264, 1, 1, 1024, 1, 1, 0, stream, (void *[]){&where, &none}));
		EXPECT(sms(264) == 132);
		EXPECT(full(DS_FULL_COOPERATIVE) == 2 * round + 2);
		/* an ordinary one of the same function moves */
		EXPECT(launch(function, 264, 1024, NULL, 0) == 32);
	}
	/* what fits one tier need not fit another */
	daemon_tier(4);
	EXPECT(launch(function, 64, 1024, &yes, 1) > 8);
	EXPECT(launch(function, 16, 1024, &yes, 1) == 8);
}

/* as cuFuncGetName has it, of NCCL 2.28 */
#define ALL_REDUCE "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"

static void case_cooperative(void)
{
	cooperative(census);
}

static void case_kernel(void)
{
	cooperative((CUfunction)kernel);
}

static void case_name(void)
{
	EXPECT(launch(collective, 264, 32, NULL, 0) == 132);
	EXPECT(full(DS_FULL_NAME) == 1);
	EXPECT(launch(census, 264, 32, NULL, 0) == 32);
	EXPECT(full(DS_FULL_NAME) == 1);
}

/* The name is that of the function that stands at the address now. */
static void case_unload(void)
{
	static const char *const images[] = {
		"fakecuda 1\nkernel ncclKernel params=8,8 duration_us=5\n",
		"fakecuda 1\nkernel plainKernel params=8,8 duration_us=5\n",
	};
	unsigned int round;

	for (round = 0; round < 600; round++) {
		CUfunction function;
		CUmodule module;

		CHECK(cuModuleLoadData(&module, images[round & 1]));
		CHECK(cuModuleGetFunction(&function, module, round & 1 ? "plainKernel" : "ncclKernel"));
		launch(function, 1, 32, NULL, 0);
		EXPECT(full(DS_FULL_NAME) == round / 2 + 1);
		CHECK(cuModuleUnload(module));
	}
}

static void case_cluster(void)
{
	CUlaunchAttribute shape = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {8, 1, 1}};

	EXPECT(launch(census, 264, 32, &shape, 1) == 32);
	EXPECT(full(DS_FULL_CLUSTER) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"cooperative", case_cooperative}, {"kernel", case_kernel}, {"name", case_name}, {"unload", case_unload},
	{"cluster", case_cluster},
};

int main(int argc, char **argv)
{
	static const char image[] = "fakecuda 1\n"
				    "kernel census params=8,8 duration_us=5\n"
				    "kernel " ALL_REDUCE " params=8,8 duration_us=5\n";
	unsigned int index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
		CUlibrary library;
		CUmodule module;

		if (argc != 2 || strcmp(argv[1], cases[index].name))
			continue;
		client_start(1);
		client_pool();
		daemon_tier(1);
		fakecuda_register_kernel(ALL_REDUCE, count_sms);
		CHECK(cuModuleLoadData(&module, image));
		CHECK(cuModuleGetFunction(&collective, module, ALL_REDUCE));
		CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
		CHECK(cuLibraryGetKernel(&kernel, library, "census"));
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(cuMemAlloc_v2(&where, 4096 * 4));
		cases[index].run();
		return 0;
	}
	fprintf(stderr, "usage: resident CASE\n");
	return 2;
}
