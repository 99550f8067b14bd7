// SPDX-License-Identifier: Apache-2.0
/* The primary context, two of the program's own, and a green context of the program's own, side by side. */
#include "client.h"

struct side {
	CUcontext context;
	CUmodule module;
	CUfunction mix;
	CUdeviceptr words;
	CUstream stream;
	CUevent event;
};

static void side_start(struct side *side, CUcontext context)
{
	side->context = context;
	OK(cuCtxPushCurrent_v2(context));
	OK(cuModuleLoadData(&side->module, client_ptx));
	OK(cuModuleGetFunction(&side->mix, side->module, "mix"));
	side->words = client_words(WORDS);
	OK(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&side->event, CU_EVENT_DISABLE_TIMING));
	OK(cuCtxPopCurrent_v2(NULL));
}

static void side_mix(struct side *side, CUstream stream, uint32_t a, uint32_t b)
{
	uint32_t n = WORDS;
	void *params[] = { &side->words, &n, &a, &b };

	OK(cuLaunchKernel(side->mix, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static CUcontext green_context(void)
{
	CUdevResource all, group;
	CUdevResourceDesc desc;
	unsigned int groups = 1;
	CUgreenCtx green;
	CUcontext context;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevSmResourceSplitByCount(&group, &groups, &all, NULL, 0, 16));
	client_say("green-sms", group.sm.smCount);
	OK(cuDevResourceGenerateDesc(&desc, &group, 1));
	OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	OK(cuCtxFromGreenCtx(&context, green));
	return context;
}

int main(void)
{
	struct side sides[4];
	CUcontext made, current;

	client_start();
	side_start(&sides[0], client_context);
	for (int i = 1; i < 3; i++) {
		OK(cuCtxCreate_v2(&made, 0, 0));
		OK(cuCtxPopCurrent_v2(NULL));
		side_start(&sides[i], made);
	}
	side_start(&sides[3], green_context());
	for (uint32_t round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++) {
			struct side *before = &sides[(i + 3) % 4];

			OK(cuCtxSetCurrent(sides[i].context));
			if (round)
				OK(cuStreamWaitEvent(sides[i].stream, before->event, 0));
			side_mix(&sides[i], sides[i].stream, 3, round);
			OK(cuEventRecord(sides[i].event, sides[i].stream));
			if (round % 7 == 0)
				OK(cuStreamSynchronize(sides[i].stream));
			if (round % 5 == 0) {
				OK(cuStreamSynchronize(sides[i].stream));
				side_mix(&sides[i], NULL, 5, round);
				OK(cuStreamSynchronize(NULL));
			}
		}
	}
	for (int i = 0; i < 4; i++) {
		OK(cuCtxSetCurrent(sides[i].context));
		OK(cuCtxSynchronize());
		client_say_words("side", sides[i].words, WORDS);
		OK(cuCtxGetCurrent(&current));
		CHECK(current == sides[i].context);
	}
	OK(cuCtxSetCurrent(client_context));
	for (int i = 1; i < 3; i++)
		OK(cuCtxDestroy_v2(sides[i].context));
	return client_end();
}
