// SPDX-License-Identifier: Apache-2.0
#include "check.h"

TEST(a_split_is_by_multiples_of_eight_and_leaves_a_rest)
{
	CUdevResource all, groups[20], rest;
	unsigned int n = 20;

	start();
	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(all.sm.smCount == 132 && all.sm.smCoscheduledAlignment == 8);
	OK(cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 0, 30));
	CHECK(n == 4);
	n = 20;
	OK(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 30));
	CHECK(n == 4 && groups[3].sm.smCount == 32 && rest.sm.smCount == 4);
	n = 1;
	OK(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 1));
	CHECK(groups[0].sm.smCount == 8 && rest.sm.smCount == 124);
	n = 1;
	IS(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 136), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	all.sm.smCount = 64;
	n = 1;
	IS(cuDevSmResourceSplitByCount(groups, &n, &all, &rest, 0, 8), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	VIOLATED(1, "no query or split");
}

TEST(kernels_stay_on_their_sms)
{
	CUdevResource rest, mine;
	CUdevResourceDesc desc;
	unsigned int last;
	CUgreenCtx first, others;
	CUstream a, b;
	uint16_t ids[200];

	start();
	first = green_new(32, &rest);
	OK(cuDevResourceGenerateDesc(&desc, &rest, 1));
	OK(cuGreenCtxCreate(&others, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	OK(cuGreenCtxStreamCreate(&a, first, CU_STREAM_NON_BLOCKING, 0));
	OK(cuGreenCtxStreamCreate(&b, others, CU_STREAM_NON_BLOCKING, 0));
	CHECK(census(a, &last) == 32 && last == 31);
	CHECK(census(b, &last) == 100 && last == 131);
	CHECK(census(NULL, NULL) == 132);
	CHECK(fakecuda_stream_sms(b, ids, 200) == 100 && ids[0] == 32);
	OK(cuGreenCtxGetDevResource(first, &mine, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(mine.sm.smCount == 32);
	OK(cuCtxGetDevResource(primary, &mine, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(mine.sm.smCount == 132);
}

TEST(a_green_context_can_be_current)
{
	CUcontext context;
	CUdeviceptr p;
	CUstream s;

	start();
	p = words(4);
	OK(cuCtxFromGreenCtx(&context, green_new(16, NULL)));
	OK(cuCtxPushCurrent_v2(context));
	CHECK(census(NULL, NULL) == 16);
	IS(cuStreamCreate(&s, CU_STREAM_DEFAULT), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(put(s, p, 9));
	OK(cuStreamSynchronize(s));
	CHECK(word_at(p) == 9);
}

static CUresult cooperative(CUstream s, unsigned int blocks)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config;

	memset(&attribute, 0, sizeof(attribute));
	attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
	attribute.value.cooperative = 1;
	config = (CUlaunchConfig){ blocks, 1, 1, 256, 1, 1, 0, s, &attribute, 1 };
	return cuLaunchKernelEx(&config, function("half"), NULL, NULL);
}

TEST(a_cooperative_grid_must_fit_its_sms)
{
	CUstream g;
	int blocks;

	start();
	g = green_stream(32);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function("half"), 256, 0));
	CHECK(blocks == 8);
	OK(cooperative(g, 256));
	IS(cooperative(g, 257), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	OK(cooperative(NULL, 1056));
	IS(cooperative(NULL, 1057), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	IS(cuLaunchCooperativeKernel(function("half"), 257, 1, 1, 256, 1, 1, 0, g, NULL),
	   CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	CLEAN();
}

TEST(clusters_have_sizes)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config;
	CUstream g;

	start();
	g = green_stream(32);
	memset(&attribute, 0, sizeof(attribute));
	attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attribute.value.clusterDim.x = 8;
	attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	config = (CUlaunchConfig){ 64, 1, 1, 128, 1, 1, 0, g, &attribute, 1 };
	OK(cuLaunchKernelEx(&config, function("half"), NULL, NULL));
	attribute.value.clusterDim.x = 16;
	IS(cuLaunchKernelEx(&config, function("half"), NULL, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	OK(cuFuncSetAttribute(function("half"), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	OK(cuLaunchKernelEx(&config, function("half"), NULL, NULL));
	attribute.value.clusterDim.x = 7;
	IS(cuLaunchKernelEx(&config, function("half"), NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_green_context_with_work_must_not_be_destroyed)
{
	CUgreenCtx green;
	CUstream s;

	start();
	green = green_new(32, NULL);
	OK(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
	OK(spin(s, 50000000));
	OK(cuGreenCtxDestroy(green));
	VIOLATED(1, "is destroyed while stream");
	IS(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "use of destroyed stream");
}

TEST(green_contexts_may_be_missing)
{
	CUdevResource all;

	setenv("FAKECUDA_GREEN", "0", 1);
	start();
	IS(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(creation_may_fail_at_the_nth)
{
	CUdevResource all, group;
	CUdevResourceDesc desc;
	unsigned int n = 1;
	CUgreenCtx green;

	setenv("FAKECUDA_GREEN_FAIL", "2", 1);
	start();
	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevSmResourceSplitByCount(&group, &n, &all, NULL, 0, 8));
	OK(cuDevResourceGenerateDesc(&desc, &group, 1));
	OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	IS(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(an_event_of_the_primary_context_is_of_its_green_ones_too)
{
	CUstream stream, captured;
	CUgraph graph;
	CUevent event;
	CUdeviceptr p;

	start();
	p = words(1);
	stream = green_stream(32);
	captured = green_stream(32);
	OK(cuEventCreate(&event, 0));
	OK(put(stream, p, 7));
	OK(cuCtxRecordEvent(primary, event));
	OK(cuEventSynchronize(event));
	CHECK(word_at(p) == 7);
	OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuCtxRecordEvent(primary, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	IS(cuCtxWaitEvent(primary, event), CUDA_SUCCESS);
	CLEAN();
}
