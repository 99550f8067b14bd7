// SPDX-License-Identifier: Apache-2.0
/* Virtual memory management: what the driver's reference says of wrong use, and what may be done with a handle. */
#include <sys/socket.h>

#include "check.h"

#define MIB (1UL << 20)
#define GRAIN (2 * MIB)

static CUmemAllocationProp prop_of(int type, int id, int handles)
{
	CUmemAllocationProp prop;

	memset(&prop, 0, sizeof(prop));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requestedHandleTypes = handles;
	prop.location.type = type;
	prop.location.id = id;
	return prop;
}

static CUmemGenericAllocationHandle create(size_t size, int handles)
{
	CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, handles);
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, size, &prop, 0));
	return handle;
}

static CUresult reach(CUdeviceptr p, size_t size, int device)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return cuMemSetAccess(p, size, &access, 1);
}

TEST(wrong_handles_sizes_and_flags_are_refused)
{
	CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	start();
	IS(cuMemCreate(&handle, GRAIN + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemCreate(&handle, GRAIN, &prop, 1), CUDA_ERROR_INVALID_VALUE);
	prop.type = 0;
	IS(cuMemCreate(&handle, GRAIN, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 5, 0);
	IS(cuMemCreate(&handle, GRAIN, &prop, 0), 101);
	prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 7, 0);
	IS(cuMemCreate(&handle, GRAIN, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, 8);
	IS(cuMemCreate(&handle, GRAIN, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
	prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
	IS(cuMemCreate(&handle, 81920 * MIB + GRAIN, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	IS(cuMemAddressReserve(&p, GRAIN + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemAddressReserve(&p, GRAIN, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemAddressReserve(&p, GRAIN, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CLEAN();
	handle = create(GRAIN, 0);
	OK(cuMemRelease(handle));
	IS(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	VIOLATED(1, "destroyed memory handle");
}

TEST(a_handle_is_mapped_whole_and_where_nothing_is)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	start();
	OK(cuMemAddressReserve(&p, 4 * GRAIN, 0, 0, 0));
	handle = create(2 * GRAIN, 0);
	IS(cuMemMap(p, GRAIN, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemMap(p, GRAIN, GRAIN, handle, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemMap(p + 4096, 2 * GRAIN, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemMap(p + 3 * GRAIN, 2 * GRAIN, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemMap(p, 2 * GRAIN, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemMap(p + GRAIN, 2 * GRAIN, 0, handle, 0));
	/* the second half would lie on it */
	IS(cuMemMap(p, 2 * GRAIN, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemUnmap(p + GRAIN, GRAIN), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemUnmap(p, 3 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemAddressFree(p, 4 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(p + GRAIN, 2 * GRAIN));
	IS(cuMemAddressFree(p, 2 * GRAIN), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressFree(p, 4 * GRAIN));
	OK(cuMemRelease(handle));
	CLEAN();
}

TEST(access_is_given_to_whole_mappings_and_by_device)
{
	CUmemGenericAllocationHandle handle;
	CUmemLocation other = { CU_MEM_LOCATION_TYPE_DEVICE, 1 }, own = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	unsigned long long flags;
	CUcontext peer;
	CUdeviceptr p;

	setenv("FAKECUDA_DEVICES", "2", 1);
	start();
	OK(cuMemAddressReserve(&p, 4 * GRAIN, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		handle = create(GRAIN, 0);
		OK(cuMemMap(p + i * GRAIN, GRAIN, 0, handle, 0));
		OK(cuMemRelease(handle));
	}
	IS(reach(p, GRAIN / 2, 0), CUDA_ERROR_INVALID_VALUE);
	IS(reach(p, 3 * GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemGetAccess(&flags, &own, p));
	CHECK(!flags);
	OK(reach(p, 2 * GRAIN, 0));
	OK(cuMemGetAccess(&flags, &own, p + GRAIN));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemGetAccess(&flags, &other, p));
	CHECK(!flags);
	OK(put(NULL, p, 3));
	OK(cuStreamSynchronize(NULL));
	OK(cuDevicePrimaryCtxRetain(&peer, 1));
	OK(cuCtxSetCurrent(peer));
	OK(cuModuleLoadData(&module, image));
	OK(reach(p, GRAIN, 1));
	OK(put(NULL, p, 4));
	OK(cuStreamSynchronize(NULL));
	OK(put(NULL, p + GRAIN, 4));
	IS(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "kernel write");
}

TEST(mappings_side_by_side_are_one_range)
{
	unsigned int out[4];
	CUdeviceptr p;

	start();
	OK(cuMemAddressReserve(&p, 3 * GRAIN, 0, 0, 0));
	for (int i = 0; i < 2; i++) {
		OK(cuMemMap(p + i * GRAIN, GRAIN, 0, create(GRAIN, 0), 0));
		OK(reach(p + i * GRAIN, GRAIN, 0));
	}
	OK(cuMemsetD32_v2(p + GRAIN - 8, 5, 4));
	OK(cuMemcpyDtoH_v2(out, p + GRAIN - 8, sizeof(out)));
	CHECK(out[0] == 5 && out[3] == 5);
	OK(mix(NULL, p + GRAIN - 8, 2, 1));
	OK(cuStreamSynchronize(NULL));
	CHECK(word_at(p + GRAIN) == 11);
	/* nothing is mapped behind the second */
	OK(mix(NULL, p + 2 * GRAIN - 8, 2, 1));
	IS(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "kernel mix");
}

TEST(unmapping_waits_for_nobody)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	CUstream s;

	start();
	s = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemAddressReserve(&p, GRAIN, 0, 0, 0));
	handle = create(GRAIN, 0);
	OK(cuMemMap(p, GRAIN, 0, handle, 0));
	OK(reach(p, GRAIN, 0));
	OK(spin(s, 50000000));
	OK(put(s, p, 3));
	OK(cuMemUnmap(p, GRAIN));
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	VIOLATED(1, "kernel write");
}

TEST(memory_that_is_unmapped_keeps_nothing)
{
	CUmemGenericAllocationHandle handle = 0;
	size_t left, total;
	CUdeviceptr p;

	start();
	OK(cuMemAddressReserve(&p, GRAIN, 0, 0, 0));
	for (unsigned int round = 0; round < 3; round++) {
		handle = create(GRAIN, 0);
		OK(cuMemMap(p, GRAIN, 0, handle, 0));
		OK(reach(p, GRAIN, 0));
		CHECK(word_at(p) == 0);
		OK(cuMemsetD32_v2(p, 7 + round, 4));
		OK(cuCtxSynchronize());
		OK(cuMemUnmap(p, GRAIN));
		IS(cuMemsetD32_v2(p, 7, 4), CUDA_ERROR_INVALID_VALUE);
		OK(cuMemMap(p, GRAIN, 0, handle, 0));
		OK(reach(p, GRAIN, 0));
		CHECK(word_at(p) == 7 + round);
		OK(cuMemUnmap(p, GRAIN));
		OK(cuMemRelease(handle));
	}
	OK(cuMemGetInfo_v2(&left, &total));
	CHECK(left == total);
	CLEAN();
}

TEST(host_memory_maps_where_device_memory_was)
{
	CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 0), seen;
	CUmemGenericAllocationHandle handle;
	size_t before, after, total;
	CUdeviceptr p;

	start();
	OK(cuMemGetInfo_v2(&before, &total));
	OK(cuMemAddressReserve(&p, GRAIN, 0, 0, 0));
	OK(cuMemCreate(&handle, GRAIN, &prop, 0));
	OK(cuMemGetAllocationPropertiesFromHandle(&seen, handle));
	CHECK(seen.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
	OK(cuMemMap(p, GRAIN, 0, handle, 0));
	OK(reach(p, GRAIN, 0));
	OK(put(NULL, p, 9));
	CHECK(word_at(p) == 9);
	OK(cuMemGetInfo_v2(&after, &total));
	CHECK(before == after);
	OK(cuMemUnmap(p, GRAIN));
	OK(cuMemRelease(handle));
	CLEAN();
}

static void send_fd(int socket, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = "x", .iov_len = 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	int fd;

	CHECK(recvmsg(socket, &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

TEST(another_process_maps_an_exported_handle)
{
	CUmemGenericAllocationHandle handle;
	int pair[2], fd;
	CUdeviceptr p;
	pid_t child;
	char byte;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	child = fork();
	if (!child) {
		start();
		fd = receive_fd(pair[1]);
		OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		close(fd);
		OK(cuMemAddressReserve(&p, GRAIN, 0, 0, 0));
		OK(cuMemMap(p, GRAIN, 0, handle, 0));
		OK(reach(p, GRAIN, 0));
		CHECK(word_at(p) == 41);
		OK(put(NULL, p, 42));
		OK(cuCtxSynchronize());
		_exit(write(pair[1], "x", 1) != 1);
	}
	start();
	OK(cuMemAddressReserve(&p, 2 * GRAIN, 0, 0, 0));
	handle = create(GRAIN, 0);
	IS(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
	handle = create(GRAIN, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	IS(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemMap(p, GRAIN, 0, handle, 0));
	OK(reach(p, GRAIN, 0));
	OK(put(NULL, p, 41));
	OK(cuCtxSynchronize());
	send_fd(pair[0], fd);
	CHECK(read(pair[0], &byte, 1) == 1);
	CHECK(word_at(p) == 42);
	CHECK(waitpid(child, NULL, 0) == child);
	IS(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)pair[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	   CUDA_ERROR_INVALID_VALUE);
	CLEAN();
}

TEST(what_other_programs_have_is_not_there)
{
	char path[] = "/tmp/fakecuda-taken-XXXXXX";
	CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
	CUmemGenericAllocationHandle handle;
	int fd = mkstemp(path);
	size_t left, total;
	CUdeviceptr p;

	CHECK(write(fd, "85899345920", 11) == 11);	/* all of 80 GiB */
	setenv("FAKECUDA_TAKEN", path, 1);
	start();
	OK(cuMemGetInfo_v2(&left, &total));
	CHECK(!left && total);
	IS(cuMemCreate(&handle, GRAIN, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	IS(cuMemAlloc_v2(&p, GRAIN), CUDA_ERROR_OUT_OF_MEMORY);
	unlink(path);
	OK(cuMemCreate(&handle, GRAIN, &prop, 0));
	OK(cuMemRelease(handle));
	CLEAN();
}
