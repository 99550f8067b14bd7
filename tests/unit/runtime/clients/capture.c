/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures while the tier changes: what is captured is captured at home, streams join by events and leave, streams beside it move on, a failed begin
 * leaves nothing behind. The graphs' results are those of the order that was captured.
 */
#include "client.h"

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);

enum { WORDS = 4 };

static uint32_t read_word(CUdeviceptr room, CUstream stream)
{
	uint32_t value;

	CHECK(cuMemcpyDtoHAsync_v2(&value, room, sizeof(value), stream));
	CHECK(cuStreamSynchronize(stream));
	return value;
}

int main(void)
{
	CUstream origin, joiner, beside, blocking;
	CUstreamCaptureStatus status;
	CUdeviceptr room, other;
	CUevent fork, join;
	CUgraphExec exec;
	CUgraph graph;

	client_start(1);
	client_pool();
	CHECK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&joiner, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&blocking, 0));
	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAlloc_v2(&room, 4 * WORDS));
	CHECK(cuMemAlloc_v2(&other, 4 * WORDS));
	for (unsigned int round = 0; round < 6; round++) {
		CUstream first = round % 2 ? blocking : origin;

		/* all of them away from home and with work queued */
		daemon_tier(1 + round % 4);
		CHECK(cuMemsetD32Async(room, 1, WORDS, first));
		CHECK(client_mix(first, room, WORDS, 1, 0));
		CHECK(client_mix(joiner, other, 0, 1, 0));
		CHECK(cuMemsetD32Async(other, 7, WORDS, beside));
		CHECK(client_mix(beside, other, WORDS, 1, 0));
		if (round % 2)
			CHECK(client_mix(NULL, other, 0, 1, 0));
		CHECK(cuStreamBeginCapture_v2(first, round % 3 ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_GLOBAL));
		CHECK(client_mix(first, room, WORDS, 3, 1));
		CHECK(cuEventRecord(fork, first));
		CHECK(cuStreamWaitEvent(joiner, fork, 0));
		daemon_tier(2 + round % 3);
		CHECK(client_mix(joiner, room, WORDS, 5, 2));
		CHECK(cuStreamIsCapturing(joiner, &status));
		EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
		/* not of it */
		CHECK(client_mix(beside, other, WORDS, 2, round));
		CHECK(cuStreamIsCapturing(beside, &status));
		EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
		CHECK(cuEventRecord(join, joiner));
		CHECK(cuStreamWaitEvent(first, join, 0));
		CHECK(client_mix(first, room, WORDS, 7, 3));
		CHECK(cuStreamEndCapture(first, &graph));
		CHECK(cuStreamIsCapturing(first, &status));
		EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
		EXPECT(read_word(other, beside) == 14 + round);
		CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		CHECK(cuGraphLaunch(exec, first));
		EXPECT(read_word(room, first) == ((1 * 3 + 1) * 5 + 2) * 7 + 3);
		/* both move again */
		daemon_tier(1);
		EXPECT(client_census(first, false) == 32);
		EXPECT(client_census(joiner, false) == 32);
		CHECK(cuGraphExecDestroy(exec));
		CHECK(cuGraphDestroy(graph));
	}
	/* a use of the legacy stream while a blocking stream is captured is the program's mistake, wherever the legacy stream was */
	EXPECT(client_census(NULL, false) == 32);
	CHECK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(client_mix(NULL, other, WORDS, 1, 0) == 906);
	EXPECT(cuStreamEndCapture(blocking, &graph) != CUDA_SUCCESS);
	EXPECT(client_census(blocking, false) == 32);
	/* the legacy stream cannot be captured */
	EXPECT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS);
	EXPECT(client_census(NULL, false) == 32);
	EXPECT(client_census(origin, false) == 32);
	return 0;
}
