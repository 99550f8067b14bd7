// SPDX-License-Identifier: Apache-2.0
/* Every kind of memory, used by kernels: plain, stream-ordered, pinned, registered, managed, mapped. */
#include <sys/mman.h>

#include "client.h"

static CUstream stream;

static void use(const char *name, CUdeviceptr words, CUstream in)
{
	OK(cuMemsetD32Async(words, 1, WORDS, in));
	for (uint32_t i = 0; i < 8; i++)
		client_mix(in, words, 3 + i, i);
	OK(cuStreamSynchronize(in));
	client_say_words(name, words, WORDS);
}

static void stream_ordered(void)
{
	CUdeviceptr words[4], sum = client_words(WORDS);
	CUfunction plus = client_kernel("add");
	uint32_t n = WORDS;

	for (int i = 0; i < 40; i++) {
		void *params[] = { &sum, &words[i % 4], &n };

		OK(cuMemAllocAsync(&words[i % 4], 4 * WORDS, stream));
		OK(cuMemsetD32Async(words[i % 4], (uint32_t)i, WORDS, stream));
		client_mix(stream, words[i % 4], 3, 1);
		OK(cuLaunchKernel(plus, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
		OK(cuMemFreeAsync(words[i % 4], stream));
	}
	OK(cuStreamSynchronize(stream));
	client_say_words("stream-ordered", sum, WORDS);
	OK(cuMemFree_v2(sum));
}

static void host_memory(void)
{
	void *pinned, *registered = aligned_alloc(4096, 4 * WORDS);
	CUdeviceptr device;

	CHECK(registered);
	OK(cuMemHostAlloc(&pinned, 4 * WORDS, 0));
	OK(cuMemHostGetDevicePointer_v2(&device, pinned, 0));
	use("pinned", device, stream);
	OK(cuMemFreeHost(pinned));
	OK(cuMemHostRegister_v2(registered, 4 * WORDS, 2));
	OK(cuMemHostGetDevicePointer_v2(&device, registered, 0));
	use("registered", device, NULL);
	OK(cuMemHostUnregister(registered));
	free(registered);
}

static void mapped(void)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	CUdeviceptr words;
	size_t size;

	memset(&prop, 0, sizeof(prop));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemAddressReserve(&words, size, 0, 0, 0));
	OK(cuMemCreate(&handle, size, &prop, 0));
	OK(cuMemMap(words, size, 0, handle, 0));
	memset(&access, 0, sizeof(access));
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	OK(cuMemSetAccess(words, size, &access, 1));
	use("mapped", words, stream);
	OK(cuMemUnmap(words, size));
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(words, size));
}

int main(void)
{
	CUdeviceptr words;
	size_t before, after, total;

	client_start();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	words = client_words(WORDS);
	use("plain", words, stream);
	OK(cuMemFree_v2(words));
	stream_ordered();
	host_memory();
	OK(cuMemAllocManaged(&words, 4 * WORDS, CU_MEM_ATTACH_GLOBAL));
	use("managed", words, CU_STREAM_PER_THREAD);
	OK(cuMemFree_v2(words));
	mapped();
	OK(cuMemGetInfo_v2(&before, &total));
	OK(cuMemAlloc_v2(&words, 64 << 20));
	OK(cuMemGetInfo_v2(&after, &total));
	client_say("counted", before - after);
	client_say("too-much", (uint64_t)cuMemAlloc_v2(&words, total));
	return client_end();
}
