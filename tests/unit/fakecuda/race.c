// SPDX-License-Identifier: Apache-2.0
#include "check.h"

static CUdeviceptr p;
static CUstream a, b;
static CUevent e;

static void two_streams(void)
{
	start();
	p = words(16);
	a = stream_new(CU_STREAM_NON_BLOCKING);
	b = stream_new(CU_STREAM_NON_BLOCKING);
	e = event_new(CU_EVENT_DISABLE_TIMING);
}

TEST(a_forgotten_wait_is_seen_even_when_it_went_well)
{
	two_streams();
	OK(mix(a, p, 3, 1));
	OK(spin(b, 20000000));
	OK(mix(b, p, 5, 0));
	OK(cuCtxSynchronize());
	CHECK(word_at(p) == 20);
	VIOLATED(1, "race: mix");
}

TEST(two_reads_are_no_race_and_a_write_after_them_is)
{
	unsigned int host[4];

	two_streams();
	OK(cuMemcpyDtoHAsync_v2(host, p, 16, a));
	OK(cuMemcpyDtoHAsync_v2(host, p, 16, b));
	CLEAN();
	OK(spin(a, 1000000));
	OK(cuMemcpyAsync(p + 32, p, 16, a));
	OK(mix(b, p, 3, 1));
	OK(cuCtxSynchronize());
	VIOLATED(1, "race");
}

TEST(ranges_beside_each_other_are_no_race)
{
	two_streams();
	OK(mix(a, p, 3, 1));
	OK(mix(b, p + 16, 5, 0));
	OK(put(b, p + 32, 5));
	OK(put(a, p + 36, 5));
	OK(cuCtxSynchronize());
	CLEAN();
	OK(mix(a, p + 8, 3, 1));
	OK(mix(b, p + 16, 5, 0));
	OK(cuCtxSynchronize());
	VIOLATED(1, "+8)");
}

TEST(what_the_host_waited_for_is_ordered)
{
	two_streams();
	OK(mix(a, p, 3, 1));
	OK(cuStreamSynchronize(a));
	OK(mix(b, p, 5, 0));
	OK(cuEventRecord(e, b));
	OK(cuEventSynchronize(e));
	OK(mix(a, p, 2, 0));
	while (cuStreamQuery(a) == CUDA_ERROR_NOT_READY)
		;
	OK(mix(b, p, 2, 0));
	OK(cuCtxSynchronize());
	CHECK(word_at(p) == 80);
	CLEAN();
}

static const char *thread_name;

static void *wait_for_a(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, thread_name);
	OK(cuCtxSetCurrent(primary));
	OK(cuStreamSynchronize(a));
	return NULL;
}

static void synced_by(const char *name)
{
	pthread_t thread;

	thread_name = name;
	two_streams();
	OK(mix(a, p, 3, 1));
	pthread_create(&thread, NULL, wait_for_a, NULL);
	pthread_join(thread, NULL);
	OK(mix(b, p, 5, 0));
	OK(cuCtxSynchronize());
}

TEST(a_sync_by_another_thread_of_the_program_counts)
{
	synced_by("worker");
	CLEAN();
}

TEST(a_sync_by_a_helper_thread_of_the_library_does_not)
{
	synced_by("ds-poller");
	VIOLATED(1, "race: mix");
}

TEST(order_is_transitive_over_streams)
{
	CUstream c;

	two_streams();
	c = green_stream(16);
	OK(mix(a, p, 3, 1));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(c, e, 0));
	OK(cuEventRecord(e, c));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(mix(b, p, 5, 0));
	OK(cuCtxSynchronize());
	CHECK(word_at(p) == 20);
	CLEAN();
}

TEST(the_host_may_say_what_it_touches)
{
	unsigned int *pinned;

	two_streams();
	OK(cuMemHostAlloc((void **)&pinned, 64, 0));
	OK(put(a, (CUdeviceptr)pinned, 5));
	fakecuda_host_access(pinned, 4, 0);
	OK(cuStreamSynchronize(a));
	VIOLATED(1, "race");
	fakecuda_host_access(pinned, 4, 0);
	CHECK(*pinned == 5);
	CLEAN();
}

TEST(memory_freed_in_stream_order_must_be_behind_its_use)
{
	CUdeviceptr q;

	two_streams();
	OK(cuMemAllocAsync(&q, 64, a));
	OK(put(a, q, 1));
	OK(cuStreamSynchronize(b));
	OK(cuMemFreeAsync(q, b));
	cuCtxSynchronize();
	CHECK(fakecuda_violations() > 0);
	fakecuda_forget_violations();
}

TEST(a_fault_is_sticky_and_a_violation)
{
	unsigned int value;

	two_streams();
	OK(put(a, 0x1000, 1));
	IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuMemcpyDtoH_v2(&value, p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "kernel write");
}

TEST(memory_of_another_context_is_out_of_reach)
{
	CUcontext other;
	CUdeviceptr q;

	two_streams();
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemAlloc_v2(&q, 64));
	OK(cuCtxPopCurrent_v2(NULL));
	OK(put(a, q, 1));
	IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "kernel write");
}

TEST(violations_end_the_process_with_a_status)
{
	two_streams();
	OK(mix(a, p, 3, 1));
	OK(mix(b, p, 5, 0));
	OK(cuCtxSynchronize());
}
