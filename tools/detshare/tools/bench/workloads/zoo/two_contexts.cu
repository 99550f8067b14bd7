// SPDX-License-Identifier: Apache-2.0
// Driver API: two threads, each with a context of its own on the same GPU, both busy until SIGTERM.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cuda.h>
#include <thread>
#include <unistd.h>

static volatile sig_atomic_t stopped;
static std::atomic<int> ready, failures;

static void stop(int) { stopped = 1; }

static bool failed(CUresult status, const char *what)
{
	const char *name = "?";

	if (status == CUDA_SUCCESS)
		return false;
	cuGetErrorName(status, &name);
	fprintf(stderr, "two_contexts: %s: %s\n", what, name);
	failures++;
	return true;
}

static void worker(CUdevice device)
{
	const size_t size = 64 << 20;
	CUcontext context;
	CUdeviceptr memory;

#if CUDA_VERSION >= 13000
	CUresult status = cuCtxCreate(&context, nullptr, 0, device);
#else
	CUresult status = cuCtxCreate(&context, 0, device);
#endif
	if (failed(status, "cuCtxCreate") || failed(cuMemAlloc(&memory, size), "cuMemAlloc"))
		return;
	ready++;
	for (unsigned n = 0; !stopped && !failures; n++) { // a memset is a kernel of the compute channel
		if (failed(cuMemsetD32(memory, n, size / 4), "cuMemsetD32") ||
		    failed(cuCtxSynchronize(), "cuCtxSynchronize"))
			return;
		usleep(1000);
	}
	cuCtxDestroy(context);
}

int main()
{
	CUdevice device;

	signal(SIGTERM, stop);
	if (failed(cuInit(0), "cuInit") || failed(cuDeviceGet(&device, 0), "cuDeviceGet"))
		return 1;
	std::thread first(worker, device), second(worker, device);
	while (ready < 2 && !failures && !stopped)
		usleep(1000);
	if (ready == 2) {
		printf("{\"event\":\"ready\",\"pid\":%d,\"framework\":\"driver API\",\"contexts\":2}\n", getpid());
		fflush(stdout);
	}
	first.join();
	second.join();
	if (!failures)
		printf("{\"event\":\"summary\",\"count\":2}\n");
	return failures ? 1 : 0;
}
