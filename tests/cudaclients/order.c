// SPDX-License-Identifier: Apache-2.0
/* Order between streams by every means that CUDA has: default streams, events, copies, callbacks, words. */
#include "client.h"

static CUdeviceptr words;
static CUstream blocking[2], plain[2];
static CUevent event;

static void by_legacy(void)
{
	for (uint32_t i = 0; i < 20; i++) {
		client_mix(blocking[i % 2], words, 3 + i, 1);
		client_mix(i % 3 ? NULL : CU_STREAM_LEGACY, words, 5, i);
		client_mix(CU_STREAM_PER_THREAD, words, 7, i);
		client_mix(CU_STREAM_LEGACY, words, 9, i);
	}
}

static void by_events(void)
{
	for (uint32_t i = 0; i < 40; i++) {
		client_mix(plain[i % 2], words, 3 + i, 1);
		OK(cuEventRecord(event, plain[i % 2]));
		OK(cuStreamWaitEvent(plain[(i + 1) % 2], event, 0));
	}
	OK(cuStreamSynchronize(plain[0]));
	OK(cuStreamSynchronize(plain[1]));
}

static void by_copies(void)
{
	static uint32_t host[WORDS];

	for (uint32_t i = 0; i < 10; i++) {
		client_mix(blocking[0], words, 3, i);
		OK(cuMemcpyDtoH_v2(host, words, sizeof(host)));
		host[i] += 1000;
		OK(cuMemcpyHtoD_v2(words, host, sizeof(host)));
		client_mix(blocking[1], words, 5, i);
		OK(cuMemsetD32_v2(words + 4 * i, 77 + i, 4));
		client_mix(CU_STREAM_PER_THREAD, words, 11, i);
		OK(cuMemsetD8_v2(words + 40, (unsigned char)i, 3));
	}
}

static void by_async_copies(void)
{
	CUdeviceptr other = client_words(WORDS);
	uint32_t *pinned;

	OK(cuMemHostAlloc((void **)&pinned, 4 * WORDS, 0));
	for (uint32_t i = 0; i < 10; i++) {
		client_mix(plain[0], words, 3, i);
		OK(cuMemcpyDtoDAsync_v2(other, words, 4 * WORDS, plain[0]));
		OK(cuMemsetD32Async(other + 4 * i, i, 8, plain[0]));
		OK(cuMemcpyDtoHAsync_v2(pinned, other, 4 * WORDS, plain[0]));
		OK(cuStreamSynchronize(plain[0]));
		pinned[i] ^= 0x5555;
		OK(cuMemcpyHtoDAsync_v2(words, pinned, 4 * WORDS, plain[0]));
	}
	OK(cuStreamSynchronize(plain[0]));
	OK(cuMemFreeHost(pinned));
	OK(cuMemFree_v2(other));
}

static uint64_t heard;
static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;

static void hear(uint64_t what)
{
	pthread_mutex_lock(&heard_lock);
	heard = heard * 31 + what;
	pthread_mutex_unlock(&heard_lock);
}

static void host_function(void *data)
{
	hear((uintptr_t)data);
}

static void callback(CUstream stream, CUresult status, void *data)
{
	hear(status == CUDA_SUCCESS && stream == plain[0] ? (uintptr_t)data : 999);
}

static void by_host(void)
{
	for (uintptr_t i = 1; i <= 10; i++) {
		client_mix(plain[0], words, 3, (uint32_t)i);
		OK(cuLaunchHostFunc(plain[0], host_function, (void *)i));
		client_mix(plain[0], words, 5, (uint32_t)i);
		OK(cuStreamAddCallback(plain[0], callback, (void *)(100 + i), 0));
	}
	OK(cuStreamSynchronize(plain[0]));
	client_say("heard", heard);
}

static void by_words(void)
{
	CUdeviceptr word = client_words(1);

	for (uint32_t i = 2; i < 12; i++) {
		OK(cuStreamWaitValue32_v2(plain[1], word, i, CU_STREAM_WAIT_VALUE_GEQ));
		client_mix(plain[1], words, 7, i);
		OK(cuEventRecord(event, plain[1]));
		client_mix(plain[0], words + 4 * WORDS, 3, i);
		OK(cuStreamWriteValue32_v2(plain[0], word, i, 0));
		OK(cuStreamWaitEvent(plain[0], event, 0));
		client_mix(plain[0], words, 5, i);
		OK(cuStreamSynchronize(plain[0]));
	}
	OK(cuMemFree_v2(word));
}

int main(void)
{
	static const struct { const char *name; void (*run)(void); } ways[] = {
		{ "legacy", by_legacy }, { "events", by_events }, { "copies", by_copies }, { "async-copies", by_async_copies },
		{ "host", by_host }, { "words", by_words },
	};

	client_start();
	for (int i = 0; i < 2; i++) {
		OK(cuStreamCreate(&blocking[i], CU_STREAM_DEFAULT));
		OK(cuStreamCreate(&plain[i], CU_STREAM_NON_BLOCKING));
	}
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		words = client_words(2 * WORDS);
		ways[i].run();
		OK(cuCtxSynchronize());
		client_say_words(ways[i].name, words, 2 * WORDS);
	}
	return client_end();
}
