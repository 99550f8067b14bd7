/* SPDX-License-Identifier: Apache-2.0 */
/* An asynchronous copy to the GPU tells lower classes that kernels follow; a copy back does not, nor one into a capture. */
#include "client.h"

static bool told(void)
{
	return __atomic_load_n(&daemon_activity()->slots[1].word, __ATOMIC_SEQ_CST) & 1;
}

static void idle(void)
{
	uint64_t until = client_ns() + 5000000000ULL;

	CHECK(cuCtxSynchronize());
	while (told()) {
		EXPECT(client_ns() < until);
		usleep(500);
	}
}

int main(void)
{
	uint32_t word = 7, back = 0, *opened;
	CUstream stream;
	CUdeviceptr room;
	CUgraph graph;

	client_start(0);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&room, 64));
	daemon_activity()->slots[1].class_ = DS_CLASS_LOW;
	__atomic_store_n(&daemon_activity()->slots[1].state, DS_SLOT_LIVE, __ATOMIC_SEQ_CST);
	CHECK(cuMemHostAlloc((void **)&opened, sizeof(*opened), 0));
	*opened = 0;
	for (uint32_t round = 1; round <= 3; round++) {
		idle();
		/* the copy cannot end, and its announcement with it, before it was looked at */
		CHECK(cuStreamWaitValue32_v2(stream, (CUdeviceptr)opened, round, CU_STREAM_WAIT_VALUE_EQ));
		EXPECT(!told());
		CHECK(cuMemcpyHtoDAsync_v2(room, &word, sizeof(word), stream));
		EXPECT(told());
		__atomic_store_n(opened, round, __ATOMIC_SEQ_CST);
		idle();
		CHECK(cuMemcpyDtoHAsync_v2(&back, room, sizeof(back), stream));
		EXPECT(!told());
		CHECK(cuStreamSynchronize(stream));
		EXPECT(back == word);
	}
	idle();
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuMemcpyHtoDAsync_v2(room, &word, sizeof(word), stream));
	EXPECT(!told());
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphDestroy(graph));
	return 0;
}
