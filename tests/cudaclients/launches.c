// SPDX-License-Identifier: Apache-2.0
/* One launch by every interface, in one stream: each must come after the one before. */
#include <dlfcn.h>

#include "client.h"

static CUdeviceptr words;
static CUstream stream;
static uint32_t n = WORDS, a, b;
static void *params[] = { &words, &n, &a, &b };

static void next(void)
{
	a = a * 2 + 3;
	b += 17;
}

static void with_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	CUlaunchAttribute attribute;
	CUlaunchConfig config = { 8, 1, 1, 128, 1, 1, 0, stream, &attribute, 1 };

	memset(&attribute, 0, sizeof(attribute));
	attribute.id = id;
	attribute.value = *value;
	next();
	OK(cuLaunchKernelEx(&config, client_kernel("mix"), params, NULL));
}

static void attributes(void)
{
	CUlaunchAttributeValue value;

	memset(&value, 0, sizeof(value));
	value.cooperative = 1;
	with_attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
	memset(&value, 0, sizeof(value));
	value.priority = -1;
	with_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
	memset(&value, 0, sizeof(value));
	value.programmaticStreamSerializationAllowed = 1;
	with_attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &value);
	memset(&value, 0, sizeof(value));
	value.clusterDim.x = 4;
	value.clusterDim.y = value.clusterDim.z = 1;
	with_attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
}

static void by_buffer(void)
{
	struct { CUdeviceptr words; uint32_t n, a, b; } args;
	size_t size = sizeof(args) - 4;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };

	next();
	args.words = words;
	args.n = n;
	args.a = a;
	args.b = b;
	OK(cuLaunchKernel(client_kernel("mix"), 8, 1, 1, 128, 1, 1, 0, stream, NULL, extra));
}

typedef CUresult launch_fn(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
			   unsigned int, unsigned int, CUstream, void **, void **);

static void by_address(void)
{
	static const struct { int version; cuuint64_t flags; } asked[] = {
		{ 4000, 0 }, { 7000, 1 }, { 12000, 0 }, { 13000, 2 },
	};
	CUdriverProcAddressQueryResult status;
	launch_fn *launch;

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		OK(cuGetProcAddress_v2("cuLaunchKernel", (void **)&launch, asked[i].version, asked[i].flags, &status));
		next();
		OK(launch(client_kernel("mix"), 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
	}
	*(void **)&launch = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
	next();
	OK(launch(client_kernel("mix"), 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
	*(void **)&launch = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel_ptsz");
	next();
	OK(launch(client_kernel("mix"), 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void by_library(void)
{
	CUlibrary library;
	CUfunction function;
	CUkernel kernel;

	OK(cuLibraryLoadData(&library, client_ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "mix"));
	next();
	OK(cuLaunchKernel((CUfunction)kernel, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
	OK(cuKernelGetFunction(&function, kernel));
	next();
	OK(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

int main(void)
{
	static const char *const names[] = { "non-blocking", "blocking", "legacy", "per-thread", "null" };
	CUstream streams[5] = { NULL, NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL };

	client_start();
	OK(cuStreamCreateWithPriority(&streams[0], CU_STREAM_NON_BLOCKING, -1));
	OK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
	for (size_t i = 0; i < 5; i++) {
		words = client_words(WORDS);
		stream = streams[i];
		a = b = 1;
		client_mix(stream, words, 3, 5);
		by_buffer();
		attributes();
		next();
		OK(cuLaunchCooperativeKernel(client_kernel("mix"), 8, 1, 1, 128, 1, 1, 0, stream, params));
		by_library();
		/* the per-thread name of the launch takes another stream for NULL: ordered by the legacy stream's rule */
		by_address();
		OK(cuCtxSynchronize());
		client_say_words(names[i], words, WORDS);
	}
	return client_end();
}
