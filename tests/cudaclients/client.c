// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include "client.h"

__asm__(".section .rodata\n"
	".global client_ptx\n"
	"client_ptx: .incbin \"" KERNELS "\"\n"
	".byte 0\n"
	".previous\n");

CUcontext client_context;
CUmodule client_module;

static uint64_t digest = 0xcbf29ce484222325ULL;

void client_fail(const char *file, int line, const char *what, int status)
{
	const char *name = NULL;

	if (status >= 0)
		cuGetErrorName((CUresult)status, &name);
	fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, what, name ? name : "does not hold", status);
	fflush(NULL);
	_exit(1);
}

void client_start(void)
{
	CUdevice device;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&client_context, device));
	OK(cuCtxSetCurrent(client_context));
	OK(cuModuleLoadData(&client_module, client_ptx));
}

CUfunction client_kernel(const char *name)
{
	CUfunction function;

	OK(cuModuleGetFunction(&function, client_module, name));
	return function;
}

long client_option(int count, char **words, const char *name, long otherwise)
{
	for (int i = 1; i + 1 < count; i++)
		if (!strncmp(words[i], "--", 2) && !strcmp(words[i] + 2, name))
			return strtol(words[i + 1], NULL, 0);
	return otherwise;
}

double client_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static uint64_t fnv(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *at = data;

	while (size--)
		hash = (hash ^ *at++) * 0x100000001b3ULL;
	return hash;
}

CUdeviceptr client_words(unsigned int n)
{
	CUdeviceptr words;

	OK(cuMemAlloc_v2(&words, 4UL * n));
	OK(cuMemsetD32_v2(words, 1, n));
	OK(cuStreamSynchronize(NULL));
	return words;
}

void client_read(CUdeviceptr words, unsigned int n, uint32_t *out)
{
	OK(cuMemcpyDtoH_v2(out, words, 4UL * n));
}

void client_say(const char *name, uint64_t value)
{
	printf("%s %016llx\n", name, (unsigned long long)value);
	digest = fnv(fnv(digest, name, strlen(name)), &value, sizeof(value));
}

void client_say_words(const char *name, CUdeviceptr words, unsigned int n)
{
	uint32_t *host = malloc(4UL * n);

	CHECK(host);
	client_read(words, n, host);
	client_say(name, fnv(0xcbf29ce484222325ULL, host, 4UL * n));
	free(host);
}

int client_end(void)
{
	OK(cuCtxSynchronize());
	printf("digest %016llx\n", (unsigned long long)digest);
	return 0;
}

void client_mix(CUstream stream, CUdeviceptr words, uint32_t a, uint32_t b)
{
	static __thread CUfunction mix;
	uint32_t n = WORDS;
	void *params[] = { &words, &n, &a, &b };

	if (!mix)
		mix = client_kernel("mix");
	OK(cuLaunchKernel(mix, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}
