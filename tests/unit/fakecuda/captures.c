// SPDX-License-Identifier: Apache-2.0
#include "check.h"

static CUdeviceptr p;
static CUstream a, b;
static CUevent e, f;
static CUgraph graph;

static void begin(CUstreamCaptureMode mode)
{
	start();
	p = words(16);
	a = stream_new(CU_STREAM_NON_BLOCKING);
	b = stream_new(CU_STREAM_NON_BLOCKING);
	e = event_new(CU_EVENT_DISABLE_TIMING);
	f = event_new(CU_EVENT_DISABLE_TIMING);
	OK(cuStreamBeginCapture_v2(a, mode));
}

static void run(void)
{
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuStreamSynchronize(NULL));
}

TEST(captured_work_runs_at_the_launch_only)
{
	CUstreamCaptureStatus status;

	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(mix(a, p, 3, 1));
	OK(cuMemsetD32Async(p + 16, 9, 4, a));
	OK(cuStreamIsCapturing(a, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuStreamEndCapture(a, &graph));
	OK(cuStreamIsCapturing(a, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
	CHECK(word_at(p) == 1);
	run();
	CHECK(word_at(p) == 4 && word_at(p + 16) == 9);
	CLEAN();
}

TEST(a_fork_joins_back)
{
	size_t n;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(mix(a, p, 3, 1));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(mix(b, p + 16, 7, 0));
	OK(mix(a, p, 5, 0));
	OK(cuEventRecord(f, b));
	OK(cuStreamWaitEvent(a, f, 0));
	OK(mix(a, p + 16, 2, 0));
	OK(cuStreamEndCapture(a, &graph));
	OK(cuGraphGetEdges(graph, NULL, NULL, &n));
	CHECK(n == 4);
	run();
	CHECK(word_at(p) == 20 && word_at(p + 16) == 14);
	CLEAN();
}

TEST(a_fork_from_a_plain_to_a_green_stream_is_legal)
{
	CUstream g;

	start();
	g = green_stream(32);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(g, e, 0));
	OK(mix(g, p, 3, 1));
	OK(cuEventRecord(f, g));
	OK(cuStreamWaitEvent(a, f, 0));
	OK(cuStreamEndCapture(a, &graph));
	run();
	CHECK(word_at(p) == 4);
}

TEST(a_fork_left_open_is_unjoined)
{
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(mix(a, p, 3, 1));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(mix(b, p, 3, 1));
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	CHECK(!graph);
	OK(mix(b, p, 3, 1));
}

TEST(a_sync_of_the_capturing_stream_spoils_it)
{
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(mix(a, p, 3, 1));
	IS(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(mix(a, p, 3, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(mix(a, p, 3, 1));
}

TEST(a_wait_for_an_event_from_outside_is_isolation)
{
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord(e, b));
	IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

TEST(a_captured_event_cannot_be_asked)
{
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord(e, a));
	IS(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
	IS(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
}

TEST(two_captures_do_not_merge)
{
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(e, a));
	IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
}

TEST(only_the_first_stream_ends_a_capture)
{
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(the_legacy_stream_cannot_be_used_beside_a_blocking_one_that_captures)
{
	CUstream blocking;

	start();
	p = words(4);
	blocking = stream_new(CU_STREAM_DEFAULT);
	IS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(mix(NULL, p, 3, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	IS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(unsafe_calls_depend_on_the_mode)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr q;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemAlloc_v2(&q, 64));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	IS(cuMemAlloc_v2(&q, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static CUresult answer;
static char mode_is_relaxed;

static void *ask(void *relaxed)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	OK(cuCtxSetCurrent(primary));
	if (relaxed)
		OK(cuThreadExchangeStreamCaptureMode(&mode));
	answer = cuStreamQuery(b);
	return NULL;
}

TEST(another_thread_may_ask_only_when_relaxed)
{
	pthread_t thread;

	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(mix(a, p, 3, 1));
	pthread_create(&thread, NULL, ask, &mode_is_relaxed);
	pthread_join(thread, NULL);
	CHECK(answer == CUDA_SUCCESS);
	pthread_create(&thread, NULL, ask, NULL);
	pthread_join(thread, NULL);
	CHECK(answer == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(a_thread_local_capture_leaves_other_threads_alone)
{
	pthread_t thread;

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	pthread_create(&thread, NULL, ask, NULL);
	pthread_join(thread, NULL);
	CHECK(answer == CUDA_SUCCESS);
	OK(cuStreamEndCapture(a, &graph));
}

TEST(a_context_sync_spoils_captures)
{
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	IS(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(capture_information_names_graph_and_nodes)
{
	const CUgraphNode *nodes;
	CUstreamCaptureStatus status;
	cuuint64_t id = 0;
	CUgraph within;
	size_t n;

	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(mix(a, p, 3, 1));
	OK(cuStreamGetCaptureInfo_v2(a, &status, &id, &within, &nodes, &n));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id && n == 1);
	OK(cuStreamUpdateCaptureDependencies(a, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(mix(a, p + 16, 3, 1));
	OK(cuStreamEndCapture(a, &graph));
	CHECK(graph == within);
	OK(cuGraphGetRootNodes(graph, NULL, &n));
	CHECK(n == 2);
}
