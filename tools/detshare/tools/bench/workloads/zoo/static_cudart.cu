// SPDX-License-Identifier: Apache-2.0
// A C program with the CUDA runtime linked statically (nvcc -cudart static): no shared libcudart to hook. Runs until SIGTERM.
#include <csignal>
#include <cstdio>
#include <ctime>
#include <cuda_runtime.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;

static void stop(int) { stopped = 1; }

__global__ void add_one(unsigned *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

static bool failed(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		fprintf(stderr, "static_cudart: %s: %s\n", what, cudaGetErrorString(error));
	return error != cudaSuccess;
}

int main()
{
	const unsigned blocks = 1024, threads = 256;
	unsigned *x, seen = 0, launched = 0;

	signal(SIGTERM, stop);
	if (failed(cudaMalloc(&x, blocks * threads * sizeof(*x)), "cudaMalloc") ||
	    failed(cudaMemset(x, 0, blocks * threads * sizeof(*x)), "cudaMemset"))
		return 1;
	printf("{\"event\":\"ready\",\"pid\":%d,\"framework\":\"static cudart\"}\n", getpid());
	fflush(stdout);
	while (!stopped) {
		add_one<<<blocks, threads>>>(x);
		if (failed(cudaDeviceSynchronize(), "the kernel"))
			return 1;
		launched++;
		usleep(1000);
	}
	if (failed(cudaMemcpy(&seen, x, sizeof(seen), cudaMemcpyDeviceToHost), "cudaMemcpy"))
		return 1;
	printf("{\"event\":\"summary\",\"count\":%u,\"correct\":%s}\n", launched, seen == launched ? "true" : "false");
	return seen == launched ? 0 : 1;
}
