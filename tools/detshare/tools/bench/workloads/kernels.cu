// SPDX-License-Identifier: Apache-2.0
// Small kernels with a known amount of work or a known answer. No includes: NVRTC compiles this without any headers.

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void empty(void) {}

// Writes where no memory is.
extern "C" __global__ void fault(void)
{
	*(volatile u32 *)0xdead0000ull = 1;
}

// `iterations` dependent fused multiply-adds per thread: the work is fixed, only the clock decides how long it takes.
extern "C" __global__ void burn(u64 iterations, float *out)
{
	float x = threadIdx.x, y = blockIdx.x;

	for (u64 i = 0; i < iterations; i++) {
		x = __fmaf_rn(x, 0.999f, 0.5f);
		y = __fmaf_rn(y, 0.998f, 0.25f);
	}
	if (x + y == -1.0f) // never: keeps the loop alive
		*out = x;
}

// x -> a * x + c, `iterations` times, modulo 2^64, from x0 = seed + thread; the sum over all threads has a closed form.
extern "C" __global__ void affine(u64 iterations, u64 a, u64 c, u64 seed, u64 *sum)
{
	u64 x = seed + (u64)blockIdx.x * blockDim.x + threadIdx.x;

	for (u64 i = 0; i < iterations; i++)
		x = a * x + c;
	atomicAdd(sum, x);
}

// Runs until the host sets *stop (mapped host memory). One thread asks the host and counts its progress there; all others
// watch a word in device memory, so that the bus carries one reader only.
extern "C" __global__ void endless(volatile u32 *stop, volatile u64 *progress, volatile u32 *word)
{
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		u64 n = 0;

		while (!*stop) {
			*progress = ++n;
			__threadfence_system();
		}
		*word = 1;
		__threadfence();
		return;
	}
	float x = threadIdx.x;

	while (!*word)
		for (int i = 0; i < 256; i++)
			x = __fmaf_rn(x, 0.999f, 0.5f);
	if (x == -1.0f) // never: keeps the loop alive
		*word = 2;
}

// Each block writes its SM and the time at which it started, and then stays for `ns` nanoseconds.
extern "C" __global__ void census(u32 *sm, u64 *stamp, u64 ns)
{
	u64 start, now;

	if (threadIdx.x)
		return;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	asm volatile("mov.u32 %0, %%smid;" : "=r"(sm[blockIdx.x]));
	stamp[blockIdx.x] = start;
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - start < ns);
}
