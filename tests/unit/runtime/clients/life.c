/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts come and go: the last release is the last one although green contexts retain the primary context, streams of a context that is gone are
 * forgotten, a reset works in the middle of work, other contexts stay native, callbacks get the program's handle, a forked child starts clean.
 */
#include <sys/wait.h>

#include "client.h"

static CUstream called_with;
static void *called_data;

static void callback(CUstream stream, CUresult status, void *data)
{
	EXPECT(status == CUDA_SUCCESS);
	called_with = stream;
	called_data = data;
}

static int active(CUdevice device)
{
	unsigned int flags;
	int answer;

	CHECK(cuDevicePrimaryCtxGetState(device, &flags, &answer));
	return answer;
}

static void kernels(CUcontext in, unsigned int sms)
{
	CHECK(cuCtxSetCurrent(in));
	client_kernels();
	EXPECT(client_census(NULL, false) == sms);
}

/* a reset in the middle of work leaves the program's reference; retained again, the context lives until both are released */
static void reset(CUdevice device)
{
	const CUresult context_is_destroyed = 709;
	CUdeviceptr room;
	CUcontext again;
	CUstream stream;

	CHECK(cuDevicePrimaryCtxReset_v2(device));
	EXPECT(!active(device));
	EXPECT(cuMemAlloc_v2(&room, 64) == context_is_destroyed);
	EXPECT(cuStreamCreate(&stream, 0) == context_is_destroyed);
	CHECK(cuDevicePrimaryCtxRetain(&again, device));
	EXPECT(again == context);
	kernels(context, 32);
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	EXPECT(active(device));
	EXPECT(client_census(NULL, false) == 32);
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	EXPECT(!active(device));
	EXPECT(cuDevicePrimaryCtxRelease_v2(device) == CUDA_ERROR_INVALID_CONTEXT);
}

int main(void)
{
	CUstream stream, plain;
	CUcontext other, again;
	CUdevice device;
	CUdeviceptr room;
	unsigned int attached;
	int status;
	pid_t child;

	client_start(1);
	CHECK(cuDeviceGet(&device, 0));
	EXPECT(daemon_attached() == 1);

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT(client_census(stream, false) == 32);
	CHECK(cuStreamAddCallback(stream, callback, &status, 0));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(called_with == stream && called_data == &status);
	CHECK(cuStreamAddCallback(NULL, callback, NULL, 0));
	CHECK(cuCtxSynchronize());
	EXPECT(!called_with);

	/* a context that green contexts cannot serve */
	CHECK(cuCtxCreate_v2(&other, 0, device));
	kernels(other, 132);
	CHECK(cuStreamCreate(&plain, 0));
	EXPECT(client_census(plain, false) == 132);
	EXPECT(daemon_counters()->unmanaged == 1);
	CHECK(cuCtxDestroy_v2(other));
	CHECK(cuCtxSetCurrent(context));

	/* two retains, two releases */
	CHECK(cuDevicePrimaryCtxRetain(&again, device));
	EXPECT(again == context);
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	EXPECT(active(device));
	kernels(context, 32);
	CHECK(cuMemAlloc_v2(&room, 64));
	CHECK(cuMemsetD32Async(room, 0, 16, stream));
	CHECK(client_mix(stream, room, 16, 1, 1));
	CHECK(cuDevicePrimaryCtxRelease_v2(device));
	EXPECT(!active(device));

	for (unsigned int round = 0; round < 3; round++) {
		attached = daemon_attached();
		CHECK(cuDevicePrimaryCtxRetain(&context, device));
		EXPECT(daemon_attached() == attached + 1);
		kernels(context, 32);
		CHECK(cuStreamCreate(&stream, 0));
		EXPECT(client_census(stream, false) == 32);
		CHECK(cuMemAlloc_v2(&room, 64));
		CHECK(cuMemsetD32Async(room, 0, 16, stream));
		CHECK(client_mix(stream, room, 16, 1, 1));
		if (round == 1)
			reset(device);
		else
			CHECK(cuDevicePrimaryCtxRelease_v2(device));
		EXPECT(!active(device));
	}

	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	kernels(context, 32);
	child = fork();
	if (!child) {
		/* natively the driver refuses here, and so it does with us */
		_exit(cuStreamCreate(&stream, 0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	}
	EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	EXPECT(client_census(NULL, false) == 32);
	/* exit() with work in flight */
	CHECK(cuStreamCreate(&stream, 0));
	CHECK(cuMemAlloc_v2(&room, 64));
	CHECK(cuMemsetD32Async(room, 0, 16, stream));
	for (unsigned int i = 0; i < 20; i++)
		CHECK(client_mix(stream, room, 16, 1, 1));
	return 0;
}
