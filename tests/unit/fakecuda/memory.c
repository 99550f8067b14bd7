// SPDX-License-Identifier: Apache-2.0
#include "check.h"

TEST(memory_is_counted_and_refused)
{
	size_t before, after, total;
	CUdeviceptr p, q;

	start();
	OK(cuMemGetInfo_v2(&before, &total));
	CHECK(total == 80UL << 30);
	OK(cuMemAlloc_v2(&p, 1UL << 30));
	OK(cuMemGetInfo_v2(&after, &total));
	CHECK(before - after == 1UL << 30);
	IS(cuMemAlloc_v2(&q, 80UL << 30), CUDA_ERROR_OUT_OF_MEMORY);
	IS(cuMemAlloc_v2(&q, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p));
	IS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemGetInfo_v2(&after, &total));
	CHECK(before == after);
}

TEST(addresses_come_back_after_a_free)
{
	CUdeviceptr p[64], again;

	start();
	for (int i = 0; i < 64; i++)
		OK(cuMemAlloc_v2(&p[i], 1000));
	for (int i = 0; i < 64; i += 2)
		OK(cuMemFree_v2(p[i]));
	for (int i = 1; i < 64; i += 2)
		OK(cuMemFree_v2(p[i]));
	OK(cuMemAlloc_v2(&again, 64 * 1024));
	CHECK(again == p[0] || again < p[63]);
}

TEST(copies_of_all_shapes_arrive)
{
	unsigned char in[64], out[64];
	CUDA_MEMCPY2D two;
	CUdeviceptr p;
	size_t pitch;

	start();
	for (int i = 0; i < 64; i++)
		in[i] = (unsigned char)i;
	OK(cuMemAllocPitch_v2(&p, &pitch, 16, 4, 4));
	CHECK(pitch >= 16);
	memset(&two, 0, sizeof(two));
	two.srcMemoryType = CU_MEMORYTYPE_HOST;
	two.srcHost = in;
	two.srcPitch = 16;
	two.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	two.dstDevice = p;
	two.dstPitch = pitch;
	two.WidthInBytes = 16;
	two.Height = 4;
	OK(cuMemcpy2D_v2(&two));
	memset(out, 0, sizeof(out));
	OK(cuMemcpyDtoH_v2(out, p + pitch, 16));
	CHECK(!memcmp(out, in + 16, 16));
	OK(cuMemsetD2D8_v2(p, pitch, 7, 3, 4));
	OK(cuMemcpyDtoH_v2(out, p + 2 * pitch, 16));
	CHECK(out[2] == 7 && out[3] == 35);
	IS(cuMemcpyHtoD_v2(0x1000, in, 4), CUDA_ERROR_INVALID_VALUE);
	CLEAN();
}

TEST(a_pageable_source_may_change_after_the_call)
{
	unsigned int value = 5;
	CUdeviceptr p;
	CUstream s;

	start();
	p = words(4);
	s = stream_new(CU_STREAM_NON_BLOCKING);
	OK(spin(s, 20000000));
	OK(cuMemcpyHtoDAsync_v2(p, &value, 4, s));
	value = 6;
	OK(cuStreamSynchronize(s));
	CHECK(word_at(p) == 5);
}

TEST(a_read_only_page_needs_the_flag)
{
	int fd = memfd_create("page", 0);
	CUdeviceptr device;
	unsigned int *rw, *ro;
	CUstream s;
	int can;

	start();
	CHECK(!ftruncate(fd, 4096));
	rw = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ro = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	OK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
	CHECK(can == 1);
	IS(cuMemHostRegister_v2(ro, 4096, 2), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostRegister_v2(ro, 4096, 10));
	OK(cuMemHostGetDevicePointer_v2(&device, ro, 0));
	CHECK(device == (CUdeviceptr)ro);
	s = green_stream(8);
	*rw = 1;
	OK(cuStreamWaitValue32_v2(s, device, 0, CU_STREAM_WAIT_VALUE_EQ));
	usleep(2000);
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	*rw = 0;
	OK(cuStreamSynchronize(s));
	IS(cuMemHostRegister_v2(ro, 4096, 10), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostUnregister(ro));
	IS(cuMemHostUnregister(ro), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	CLEAN();
}

TEST(reserved_addresses_take_mapped_memory)
{
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	CUmemGenericAllocationHandle handle;
	size_t granularity, free_before, free_after, total;
	CUdeviceptr p;

	start();
	memset(&prop, 0, sizeof(prop));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemGetAllocationGranularity(&granularity, &prop, 0));
	CHECK(granularity == 2 << 20);
	OK(cuMemGetInfo_v2(&free_before, &total));
	OK(cuMemAddressReserve(&p, 4 * granularity, 0, 0, 0));
	OK(cuMemCreate(&handle, granularity, &prop, 0));
	OK(cuMemMap(p + granularity, granularity, 0, handle, 0));
	OK(cuMemRelease(handle));
	OK(cuMemGetInfo_v2(&free_after, &total));
	CHECK(free_before - free_after == granularity);
	IS(cuMemsetD32_v2(p + granularity, 5, 4), CUDA_ERROR_INVALID_VALUE);
	memset(&access, 0, sizeof(access));
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	OK(cuMemSetAccess(p + granularity, granularity, &access, 1));
	OK(cuMemsetD32_v2(p + granularity, 5, 4));
	CHECK(word_at(p + granularity) == 5);
	IS(cuMemAddressFree(p, 4 * granularity), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(p + granularity, granularity));
	OK(cuMemAddressFree(p, 4 * granularity));
	OK(cuMemGetInfo_v2(&free_after, &total));
	CHECK(free_before == free_after);
	CLEAN();
}

TEST(another_process_sees_shared_memory)
{
	int to_child[2], to_parent[2];
	CUipcMemHandle handle;
	CUdeviceptr p, again;
	char byte;
	pid_t child;

	CHECK(!pipe(to_child) && !pipe(to_parent));
	child = fork();
	if (!child) {
		start();
		CHECK(read(to_child[0], &handle, sizeof(handle)) == sizeof(handle));
		OK(cuIpcOpenMemHandle_v2(&p, handle, 1));
		CHECK(word_at(p) == 41);
		OK(cuMemsetD32_v2(p, 42, 1));
		OK(cuCtxSynchronize());
		/* opened again it is the same, and is closed as often */
		OK(cuIpcOpenMemHandle_v2(&again, handle, 1));
		CHECK(again == p);
		OK(cuIpcCloseMemHandle(p));
		CHECK(word_at(p) == 42);
		OK(cuIpcCloseMemHandle(p));
		IS(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
		_exit(write(to_parent[1], "x", 1) != 1);
	}
	start();
	p = words(4);
	OK(cuMemsetD32_v2(p, 41, 1));
	OK(cuCtxSynchronize());
	OK(cuIpcGetMemHandle(&handle, p));
	CHECK(write(to_child[1], &handle, sizeof(handle)) == sizeof(handle));
	CHECK(read(to_parent[0], &byte, 1) == 1);
	CHECK(word_at(p) == 42);
	CHECK(waitpid(child, NULL, 0) == child);
}

TEST(stream_ordered_memory_lives_between_its_ops)
{
	CUmemoryPool pool;
	cuuint64_t used;
	CUdeviceptr p;
	CUstream s;

	start();
	s = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&p, 4096, s));
	OK(put(s, p, 6));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	CHECK(used == 4096);
	OK(cuMemFreeAsync(p, s));
	OK(cuStreamSynchronize(s));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	CHECK(used == 0);
	OK(put(s, p, 7));
	IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "kernel write");
}

TEST(arrays_take_copies)
{
	CUDA_ARRAY_DESCRIPTOR desc = { .Width = 8, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1 };
	unsigned int in[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[4];
	CUarray array;

	start();
	OK(cuArrayCreate_v2(&array, &desc));
	OK(cuMemcpyHtoA_v2(array, 0, in, sizeof(in)));
	OK(cuMemcpyAtoH_v2(out, array, 16, sizeof(out)));
	CHECK(out[0] == 5 && out[3] == 8);
	OK(cuArrayDestroy(array));
	IS(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "destroyed array");
}

TEST(globals_of_modules_have_memory)
{
	CUdeviceptr p;
	size_t size;

	start();
	OK(cuModuleGetGlobal_v2(&p, &size, module, "table"));
	CHECK(size == 64 && word_at(p) == 0);
	IS(cuModuleGetGlobal_v2(&p, &size, module, "nope"), CUDA_ERROR_NOT_FOUND);
}

TEST(access_to_another_device_is_given_once_and_ends_with_a_context)
{
	CUcontext second;
	CUdeviceptr p;

	setenv("FAKECUDA_DEVICES", "2", 1);
	start();
	p = words(1);
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	IS(cuCtxEnablePeerAccess(primary, 0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(second));
	OK(cuModuleLoadData(&module, image));
	IS(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	IS(cuCtxEnablePeerAccess(primary, 1), CUDA_ERROR_INVALID_VALUE);
	IS(cuCtxDisablePeerAccess(primary), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	for (int round = 0; round < 2; round++) {
		OK(cuCtxEnablePeerAccess(primary, 0));
		IS(cuCtxEnablePeerAccess(primary, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
		OK(put(NULL, p, 7));
		OK(cuStreamSynchronize(NULL));
		CHECK(word_at(p) == 7);
		OK(cuCtxDisablePeerAccess(primary));
	}
	/* a copy needs none */
	OK(cuMemsetD32_v2(p, 8, 1));
	CHECK(word_at(p) == 8);
	OK(cuCtxEnablePeerAccess(primary, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxEnablePeerAccess(primary, 0));
	OK(cuCtxDisablePeerAccess(primary));
	OK(cuCtxPushCurrent_v2(primary));
	p = words(1);
	OK(cuCtxPopCurrent_v2(&primary));
	OK(put(NULL, p, 7));
	IS(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "not its context's");
}

TEST(a_registration_ends_with_its_context)
{
	static char page[4096] __attribute__((aligned(4096)));
	CUcontext other;

	start();
	OK(cuMemHostRegister_v2(page, sizeof(page), 0));
	/* the driver unregisters nothing for a context that is beyond repair */
	fakecuda_break(0);
	IS(cuMemHostUnregister(page), CUDA_ERROR_LAUNCH_FAILED);
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
	IS(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemHostRegister_v2(page, sizeof(page), 0));
	OK(cuCtxDestroy_v2(other));
	OK(cuCtxSetCurrent(primary));
	OK(cuMemHostRegister_v2(page, sizeof(page), 0));
	OK(cuMemHostUnregister(page));
}
