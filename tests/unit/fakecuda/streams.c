// SPDX-License-Identifier: Apache-2.0
#include "check.h"

TEST(a_launch_returns_at_once_and_the_sync_waits)
{
	double begin;
	CUstream s;

	start();
	s = stream_new(CU_STREAM_NON_BLOCKING);
	begin = ms_now();
	OK(spin(s, 100000000));
	CHECK(ms_now() - begin < 80);
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(s));
	CHECK(ms_now() - begin >= 99);
	OK(cuStreamQuery(s));
}

TEST(work_of_one_stream_is_in_order)
{
	CUdeviceptr p;
	CUstream s;

	start();
	p = words(4);
	s = stream_new(CU_STREAM_NON_BLOCKING);
	OK(mix(s, p, 3, 1));
	OK(mix(s, p, 5, 0));
	OK(mix(s, p, 2, 7));
	OK(cuStreamSynchronize(s));
	CHECK(word_at(p) == ((1 * 3 + 1) * 5) * 2 + 7);
	CLEAN();
}

TEST(the_legacy_stream_orders_blocking_streams)
{
	CUdeviceptr p;
	CUstream a, b;

	start();
	p = words(4);
	a = stream_new(CU_STREAM_DEFAULT);
	b = stream_new(CU_STREAM_DEFAULT);
	OK(mix(a, p, 3, 1));
	OK(mix(NULL, p, 5, 0));
	OK(mix(b, p, 2, 7));
	OK(mix(CU_STREAM_LEGACY, p, 1, 1));
	OK(cuStreamSynchronize(NULL));
	CHECK(word_at(p) == ((1 * 3 + 1) * 5) * 2 + 7 + 1);
	CLEAN();
}

TEST(the_legacy_stream_does_not_order_non_blocking_streams)
{
	CUdeviceptr p;

	start();
	p = words(4);
	OK(mix(stream_new(CU_STREAM_NON_BLOCKING), p, 3, 1));
	OK(mix(NULL, p, 5, 0));
	OK(cuCtxSynchronize());
	VIOLATED(1, "race: mix");
}

TEST(the_per_thread_stream_is_ordered_with_the_legacy_one)
{
	CUdeviceptr p;
	unsigned int n = 4, a = 3, b = 1;
	void *params[] = { &p, &n, &a, &b };

	start();
	p = words(4);
	OK(cuLaunchKernel_ptsz(function("mix"), 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
	OK(mix(NULL, p, 5, 0));
	OK(mix(CU_STREAM_PER_THREAD, p, 2, 0));
	OK(cuStreamSynchronize_ptsz(NULL));
	CHECK(word_at(p) == 40);
	CLEAN();
}

static CUdeviceptr shared;

static void *other_thread(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(primary));
	OK(mix(CU_STREAM_PER_THREAD, shared, 3, 1));
	return NULL;
}

TEST(two_threads_have_two_per_thread_streams)
{
	pthread_t thread;

	start();
	shared = words(4);
	OK(mix(CU_STREAM_PER_THREAD, shared, 5, 0));
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	OK(cuCtxSynchronize());
	VIOLATED(1, "race: mix");
}

TEST(a_sync_of_the_null_stream_does_not_wait_for_green_streams)
{
	CUstream g;

	start();
	g = green_stream(32);
	OK(spin(g, 200000000));
	OK(cuStreamSynchronize(NULL));
	IS(cuStreamQuery(g), CUDA_ERROR_NOT_READY);
	OK(cuCtxSynchronize());
	OK(cuStreamQuery(g));
}

TEST(free_load_and_green_creation_wait_for_all_work)
{
	CUdeviceptr p;
	CUmodule again;
	CUstream g;

	start();
	p = words(4);
	g = green_stream(32);
	OK(spin(g, 20000000));
	OK(cuMemFree_v2(p));
	OK(cuStreamQuery(g));
	OK(spin(g, 20000000));
	OK(cuModuleLoadData(&again, image));
	OK(cuStreamQuery(g));
	OK(spin(g, 20000000));
	green_new(64, NULL);
	OK(cuStreamQuery(g));
	OK(spin(g, 100000000));
	OK(cuMemAlloc_v2(&p, 64));
	green_stream(0 + 8);
	OK(cuStreamQuery(g));
}

TEST(stream_creation_and_allocation_do_not_wait)
{
	CUdeviceptr p;
	CUgreenCtx green;
	CUstream g, s;

	start();
	green = green_new(16, NULL);
	OK(cuGreenCtxStreamCreate(&g, green, CU_STREAM_NON_BLOCKING, -3));
	OK(spin(g, 200000000));
	OK(cuMemAlloc_v2(&p, 64));
	s = stream_new(CU_STREAM_DEFAULT);
	OK(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
	IS(cuStreamQuery(g), CUDA_ERROR_NOT_READY);
}

TEST(events_time_virtual_work_exactly)
{
	CUevent a, b;
	CUstream s;
	float ms;

	start();
	s = stream_new(CU_STREAM_NON_BLOCKING);
	a = event_new(0);
	b = event_new(0);
	OK(spin(s, 1000000));
	OK(cuEventRecord(a, s));
	OK(spin(s, 250000));
	OK(cuEventRecord(b, s));
	OK(cuEventSynchronize(b));
	OK(cuEventElapsedTime(&ms, a, b));
	CHECK(ms == 0.25f);
	IS(cuEventElapsedTime(&ms, a, event_new(CU_EVENT_DISABLE_TIMING)), CUDA_ERROR_INVALID_HANDLE);
	CLEAN();
}

/* 2048 threads per SM: 8 blocks of 256. A kernel of 100 us takes as many rounds as its SMs need. */
TEST(a_kernel_takes_as_many_waves_as_its_sms_need)
{
	static const struct { unsigned int blocks; float full, small; } rows[] = {
		{ 1, 0.1f, 0.1f }, { 256, 0.1f, 0.1f }, { 257, 0.1f, 0.2f }, { 1056, 0.1f, 0.5f }, { 1057, 0.2f, 0.5f },
	};
	CUstream streams[2];
	CUevent a, b;
	float ms;

	start();
	streams[0] = stream_new(CU_STREAM_NON_BLOCKING);
	streams[1] = green_stream(32);
	a = event_new(0);
	b = event_new(0);
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		CUstream s = streams[i % 2];

		OK(spin(s, 2000000));
		OK(cuEventRecord(a, s));
		OK(cuLaunchKernel(function("half"), rows[i / 2].blocks, 1, 1, 256, 1, 1, 0, s, NULL, NULL));
		OK(cuEventRecord(b, s));
		OK(cuStreamSynchronize(s));
		OK(cuEventElapsedTime(&ms, a, b));
		CHECK(ms == (i % 2 ? rows[i / 2].small : rows[i / 2].full));
	}
}

TEST(events_order_green_and_plain_streams_both_ways)
{
	CUdeviceptr p;
	CUstream s, g;
	CUevent e;

	start();
	p = words(4);
	s = stream_new(CU_STREAM_NON_BLOCKING);
	g = green_stream(32);
	e = event_new(CU_EVENT_DISABLE_TIMING);
	OK(mix(s, p, 3, 1));
	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(g, e, 0));
	OK(mix(g, p, 5, 0));
	OK(cuEventRecord(e, g));
	OK(cuStreamWaitEvent(s, e, 0));
	OK(mix(s, p, 2, 7));
	OK(cuStreamSynchronize(s));
	CHECK(word_at(p) == 47);
	CLEAN();
}

TEST(a_wait_takes_the_record_of_its_time)
{
	CUdeviceptr p;
	CUstream a, b;
	CUevent e;

	start();
	p = words(4);
	a = stream_new(CU_STREAM_NON_BLOCKING);
	b = stream_new(CU_STREAM_NON_BLOCKING);
	e = event_new(CU_EVENT_DISABLE_TIMING);
	OK(cuStreamWaitEvent(b, e, 0));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(mix(a, p, 3, 1));
	OK(cuEventRecord(e, a));
	OK(mix(b, p, 5, 0));
	OK(cuCtxSynchronize());
	VIOLATED(1, "race: mix");
}

TEST(events_of_another_context_are_waited_for_but_not_recorded)
{
	CUcontext other;
	CUstream s, mine;
	CUevent e, own;

	start();
	mine = stream_new(CU_STREAM_NON_BLOCKING);
	own = event_new(CU_EVENT_DISABLE_TIMING);
	OK(cuEventRecord(own, mine));
	OK(cuCtxCreate_v2(&other, 0, 0));
	s = stream_new(CU_STREAM_NON_BLOCKING);
	e = event_new(CU_EVENT_DISABLE_TIMING);
	IS(cuEventRecord(e, mine), CUDA_ERROR_INVALID_HANDLE);
	OK(cuStreamWaitEvent(s, own, 0));
	IS(spin(s, 1000), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxDestroy_v2(other));
	IS(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "use of destroyed stream");
}

TEST(destroyed_handles_are_seen)
{
	CUstream s;
	CUevent e;

	start();
	s = stream_new(CU_STREAM_DEFAULT);
	e = event_new(0);
	OK(cuStreamDestroy_v2(s));
	IS(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "use of destroyed stream");
	OK(cuEventDestroy_v2(e));
	IS(cuEventRecord(e, NULL), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "use of destroyed event");
	IS(cuStreamSynchronize((CUstream)primary), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "is no stream but a context");
}

TEST(a_destroyed_stream_finishes_its_work)
{
	CUdeviceptr p;
	CUstream s;

	start();
	p = words(4);
	s = stream_new(CU_STREAM_NON_BLOCKING);
	OK(spin(s, 10000000));
	OK(mix(s, p, 3, 1));
	OK(cuStreamDestroy_v2(s));
	OK(cuCtxSynchronize());
	CHECK(word_at(p) == 4);
}

TEST(a_word_holds_a_stream_until_it_is_released)
{
	volatile unsigned int *word;
	CUdeviceptr p;
	CUstream g;

	start();
	OK(cuMemHostAlloc((void **)&word, 64, 0));
	p = words(4);
	g = green_stream(32);
	*word = 4;
	OK(cuStreamWaitValue32_v2(g, (CUdeviceptr)word, 0, CU_STREAM_WAIT_VALUE_EQ));
	OK(mix(g, p, 3, 1));
	usleep(20000);
	IS(cuStreamQuery(g), CUDA_ERROR_NOT_READY);
	CHECK(fakecuda_pending() == 2);
	*word = 0;
	OK(cuStreamSynchronize(g));
	CHECK(word_at(p) == 4);
	OK(cuStreamWriteValue32_v2(g, (CUdeviceptr)word, 77, 0));
	OK(cuStreamWaitValue32_v2(g, (CUdeviceptr)word, 70, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuStreamSynchronize(g));
	CHECK(*word == 77);
	IS(cuStreamWaitValue32_v2(g, (CUdeviceptr)word + 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
	CLEAN();
}

TEST(a_written_word_orders_who_waits_for_it)
{
	CUdeviceptr p, word;
	CUstream a, b;

	start();
	p = words(4);
	word = words(1);
	a = stream_new(CU_STREAM_NON_BLOCKING);
	b = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue32_v2(b, word, 9, CU_STREAM_WAIT_VALUE_EQ));
	OK(mix(b, p, 5, 0));
	OK(spin(a, 5000000));
	OK(mix(a, p, 3, 1));
	OK(cuStreamWriteValue32_v2(a, word, 9, 0));
	OK(cuStreamSynchronize(b));
	CHECK(word_at(p) == 20);
	CLEAN();
}

static int calls;
static CUresult inside;

static void CUDA_CB_call(void *data)
{
	calls = calls * 10 + *(int *)data;
	inside = cuStreamQuery(NULL);
}

static void called_back(CUstream stream, CUresult status, void *data)
{
	CHECK(status == CUDA_SUCCESS && stream == *(CUstream *)data);
	calls = calls * 10 + 9;
}

TEST(host_functions_and_callbacks_run_in_order_and_must_not_call)
{
	static int one = 1, two = 2;
	CUdeviceptr word;
	CUstream s, other;

	start();
	word = words(1);
	s = stream_new(CU_STREAM_NON_BLOCKING);
	other = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue32_v2(s, word, 9, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuLaunchHostFunc(s, CUDA_CB_call, &one));
	OK(cuStreamAddCallback(s, called_back, &s, 0));
	OK(cuLaunchHostFunc(s, CUDA_CB_call, &two));
	CHECK(calls == 0);
	OK(cuStreamWriteValue32_v2(other, word, 9, 0));
	OK(cuStreamSynchronize(s));
	CHECK(calls == 192);
	CHECK(inside == CUDA_ERROR_NOT_PERMITTED);
	VIOLATED(2, "calls CUDA");
}

TEST(priorities_and_flags_are_answered)
{
	unsigned int flags;
	CUgreenCtx green;
	CUcontext context;
	CUstream s;
	int priority, least, greatest;

	start();
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(least == 0 && greatest == -5);
	OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -9));
	OK(cuStreamGetPriority(s, &priority));
	OK(cuStreamGetFlags(s, &flags));
	CHECK(priority == -5 && flags == CU_STREAM_NON_BLOCKING);
	green = green_new(32, NULL);
	IS(cuGreenCtxStreamCreate(&s, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, -2));
	OK(cuStreamGetPriority(s, &priority));
	CHECK(priority == -2);
	OK(cuStreamGetCtx(s, &context));
	CHECK(context != primary);
	OK(cuStreamGetCtx(NULL, &context));
	CHECK(context == primary);
}
