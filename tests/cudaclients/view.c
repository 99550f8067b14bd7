// SPDX-License-Identifier: Apache-2.0
/* What a program sees of the GPU: it chooses its launches by these answers, so none may differ under the runtime. */
#include "client.h"

static void occupancy(void)
{
	CUfunction mix = client_kernel("mix");
	CUlaunchAttribute cluster;
	CUlaunchConfig config = { 64, 1, 1, 128, 1, 1, 0, NULL, &cluster, 1 };
	int blocks, grid, block;

	memset(&cluster, 0, sizeof(cluster));
	cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	cluster.value.clusterDim.x = 4;
	cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, mix, 256, 0));
	client_say("blocks-per-sm", (uint64_t)blocks);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, mix, NULL, 0, 0));
	client_say("grid", (uint64_t)grid);
	client_say("block", (uint64_t)block);
	OK(cuOccupancyMaxActiveClusters(&blocks, mix, &config));
	client_say("clusters", (uint64_t)blocks);
}

static void streams(void)
{
	static const unsigned int flags[] = { CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING };
	unsigned int got;
	CUcontext context;
	CUstream stream;
	int priority;

	for (unsigned int i = 0; i < 4; i++) {
		if (i < 2)
			OK(cuStreamCreateWithPriority(&stream, flags[i], -1 - (int)i));
		else
			stream = i == 2 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
		client_mix(stream, client_words(WORDS), 3, 1);
		OK(cuStreamGetFlags(stream, &got));
		client_say("flags", got);
		OK(cuStreamGetPriority(stream, &priority));
		client_say("priority", (uint64_t)(int64_t)priority);
		OK(cuStreamGetCtx(stream, &context));
		client_say("context-is-mine", context == client_context);
		OK(cuStreamSynchronize(stream));
		client_say("idle", (uint64_t)cuStreamQuery(stream));
	}
}

int main(void)
{
	static const CUdevice_attribute asked[] = {
		CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
		CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
		CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
	};
	CUdevResource resource;
	CUcontext context;
	size_t bytes;
	int value, version;

	client_start();
	OK(cuDriverGetVersion(&version));
	client_say("version", (uint64_t)version);
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		OK(cuDeviceGetAttribute(&value, asked[i], 0));
		client_say("attribute", (uint64_t)value);
	}
	OK(cuDeviceTotalMem_v2(&bytes, 0));
	client_say("memory", bytes);
	occupancy();
	streams();
	occupancy();
	OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	client_say("device-sms", resource.sm.smCount);
	OK(cuCtxGetDevResource(client_context, &resource, CU_DEV_RESOURCE_TYPE_SM));
	client_say("context-sms", resource.sm.smCount);
	OK(cuCtxGetCurrent(&context));
	client_say("current-is-mine", context == client_context);
	return client_end();
}
