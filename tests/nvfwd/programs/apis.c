// SPDX-License-Identifier: Apache-2.0
/*
 * What a program may use of the driver API, a JSON line for each part with libcuda's first refusal, or 0 and whether what was computed is
 * right. Parts that need a second process fork before libcuda is there.
 *   apis               all parts in one context
 *   apis ipc           memory handed on by cuIpcGetMemHandle
 *   apis export        memory handed on by cuMemExportToShareableHandle, as a descriptor
 */
#include <sys/socket.h>
#include <sys/wait.h>

#include "cuda.h"

#define COUNT (1u << 18)
#define BYTES ((size_t)COUNT * 4)
#define VALUE 0x5eed5eedu
#define OTHER 0x0badcafeu

static const char *failed_at;	/* the call that refused, NULL: none */

/* Goes on to the next part. */
#define TRY(name, types, ...) do { \
		int result = CALL(name, types, __VA_ARGS__); \
		if (result) { \
			failed_at = #name; \
			return result; \
		} \
	} while (0)

struct location { int type, id; };
struct allocation { int type, handles; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
struct ipc { char bytes[64]; };

static int right;

static int same(const uint32_t *some, uint32_t value)
{
	for (unsigned int i = 0; i < COUNT; i++)
		if (some[i] != value)
			return 0;
	return 1;
}

/* Whether device memory holds `value` everywhere. */
static int holds(uint64_t at, uint32_t value)
{
	uint32_t *copy = calloc(COUNT, 4);

	TRY(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), copy, at, BYTES);
	right = same(copy, value);
	free(copy);
	return 0;
}

static int streams(void)
{
	void *stream[2], *event;

	for (int i = 0; i < 2; i++)
		TRY(cuStreamCreate, (void **, unsigned int), &stream[i], 1);
	TRY(cuEventCreate, (void **, unsigned int), &event, 2);
	*cuda_count = 0;
	for (int i = 0; i < 64; i++)
		cuda_launch((cuda_launch_t)cuda_find("cuLaunchKernel"), 1000);
	TRY(cuEventRecord, (void *, void *), event, cuda_stream);
	TRY(cuStreamWaitEvent, (void *, void *, unsigned int), stream[0], event, 0);
	TRY(cuStreamSynchronize, (void *), stream[0]);
	right = *cuda_count == 64;
	for (int i = 0; i < 2; i++)
		TRY(cuStreamDestroy_v2, (void *), stream[i]);
	return 0;
}

static int events(void)
{
	void *event[2];
	float ms = 0;

	for (int i = 0; i < 2; i++)
		TRY(cuEventCreate, (void **, unsigned int), &event[i], 0);
	TRY(cuEventRecord, (void *, void *), event[0], cuda_stream);
	cuda_launch((cuda_launch_t)cuda_find("cuLaunchKernel"), 1 << 20);
	TRY(cuEventRecord, (void *, void *), event[1], cuda_stream);
	TRY(cuEventSynchronize, (void *), event[1]);
	TRY(cuEventElapsedTime, (float *, void *, void *), &ms, event[0], event[1]);
	right = ms > 0.1f;
	return 0;
}

static int pinned(void)
{
	uint32_t *host;
	uint64_t at;

	TRY(cuMemHostAlloc, (void **, size_t, unsigned int), (void **)&host, BYTES, 2);
	TRY(cuMemAlloc_v2, (uint64_t *, size_t), &at, BYTES);
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, VALUE, COUNT);
	TRY(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), host, at, BYTES, cuda_stream);
	TRY(cuStreamSynchronize, (void *), cuda_stream);
	right = same(host, VALUE);
	TRY(cuMemFree_v2, (uint64_t), at);
	TRY(cuMemFreeHost, (void *), host);
	return 0;
}

static int registered(void)
{
	uint32_t *host = aligned_alloc(4096, BYTES);
	uint64_t at;

	memset(host, 0, BYTES);
	TRY(cuMemHostRegister_v2, (void *, size_t, unsigned int), host, BYTES, 2);
	TRY(cuMemAlloc_v2, (uint64_t *, size_t), &at, BYTES);
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, OTHER, COUNT);
	TRY(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), host, at, BYTES, cuda_stream);
	TRY(cuStreamSynchronize, (void *), cuda_stream);
	right = same(host, OTHER);
	TRY(cuMemFree_v2, (uint64_t), at);
	TRY(cuMemHostUnregister, (void *), host);
	return 0;
}

static int make(struct allocation *kind, size_t *size, uint64_t *memory)
{
	*kind = (struct allocation){ .type = 1, .handles = 1, .location = { 1, 0 } };	/* pinned; as a descriptor; device 0 */
	TRY(cuMemGetAllocationGranularity, (size_t *, const void *, int), size, kind, 0);
	TRY(cuMemCreate, (uint64_t *, size_t, const void *, unsigned long long), memory, *size, kind, 0);
	return 0;
}

static int place(size_t size, uint64_t memory, uint64_t *at)
{
	struct access access = { { 1, 0 }, 3 };

	TRY(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long), at, size, 0, 0, 0);
	TRY(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long), *at, size, 0, memory, 0);
	TRY(cuMemSetAccess, (uint64_t, size_t, const void *, size_t), *at, size, &access, 1);
	return 0;
}

static int virtual(void)
{
	struct allocation kind;
	uint64_t memory, at;
	size_t size;
	int result = make(&kind, &size, &memory);

	if (!result)
		result = place(size, memory, &at);
	if (result)
		return result;
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, VALUE, COUNT);
	result = holds(at, VALUE);
	if (result)
		return result;
	TRY(cuMemUnmap, (uint64_t, size_t), at, size);
	TRY(cuMemRelease, (uint64_t), memory);
	TRY(cuMemAddressFree, (uint64_t, size_t), at, size);
	return 0;
}

static int pool(void)
{
	uint64_t at;
	int result;

	TRY(cuMemAllocAsync, (uint64_t *, size_t, void *), &at, BYTES, cuda_stream);
	TRY(cuMemsetD32Async, (uint64_t, unsigned int, size_t, void *), at, OTHER, COUNT, cuda_stream);
	TRY(cuStreamSynchronize, (void *), cuda_stream);
	result = holds(at, OTHER);
	if (result)
		return result;
	TRY(cuMemFreeAsync, (uint64_t, void *), at, cuda_stream);
	TRY(cuStreamSynchronize, (void *), cuda_stream);
	return 0;
}

static int graph(void)
{
	void *captured, *ready;

	*cuda_count = 0;
	TRY(cuStreamBeginCapture_v2, (void *, int), cuda_stream, 1);
	for (int i = 0; i < 8; i++)
		cuda_launch((cuda_launch_t)cuda_find("cuLaunchKernel"), 1000);
	TRY(cuStreamEndCapture, (void *, void **), cuda_stream, &captured);
	TRY(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &ready, captured, 0);
	for (int i = 0; i < 16; i++)
		TRY(cuGraphLaunch, (void *, void *), ready, cuda_stream);
	TRY(cuStreamSynchronize, (void *), cuda_stream);
	right = *cuda_count == 8 * 16;
	TRY(cuGraphExecDestroy, (void *), ready);
	TRY(cuGraphDestroy, (void *), captured);
	return 0;
}

static int managed(void)
{
	uint64_t at;

	TRY(cuMemAllocManaged, (uint64_t *, size_t, unsigned int), &at, BYTES, 1);
	((volatile uint32_t *)(uintptr_t)at)[0] = VALUE;
	right = 1;
	TRY(cuMemFree_v2, (uint64_t), at);
	return 0;
}

/* ---- two processes ---- */

static int other;	/* a socket to the other process */

static int send_fd(int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &fd, sizeof(fd));
	return sendmsg(other, &message, 0) == 1 ? 0 : -1;
}

static int receive_fd(void)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *part;
	int fd = -1;

	if (recvmsg(other, &message, 0) != 1)
		return -1;
	part = CMSG_FIRSTHDR(&message);
	if (part)
		memcpy(&fd, CMSG_DATA(part), sizeof(fd));
	return fd;
}

/* The other has done its part, or has ended. */
static void await(void)
{
	char byte;

	if (read(other, &byte, 1) != 1)
		failed_at = failed_at ? failed_at : "the other process";
}

static void done(void)
{
	char byte = 0;

	if (write(other, &byte, 1) != 1)
		failed_at = failed_at ? failed_at : "the other process";
}

static int ipc_gives(void)
{
	struct ipc handle;
	uint64_t at;

	TRY(cuMemAlloc_v2, (uint64_t *, size_t), &at, 2 << 20);
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, VALUE, COUNT);
	MUST(cuCtxSynchronize, (void));
	TRY(cuIpcGetMemHandle, (struct ipc *, uint64_t), &handle, at);
	if (write(other, &handle, sizeof(handle)) != sizeof(handle))
		return -1;
	await();
	return holds(at, OTHER);
}

static int ipc_takes(void)
{
	struct ipc handle;
	uint64_t at;
	int result;

	if (read(other, &handle, sizeof(handle)) != sizeof(handle)) {
		failed_at = "the other process";
		return -1;
	}
	TRY(cuIpcOpenMemHandle_v2, (uint64_t *, struct ipc, unsigned int), &at, handle, 1);
	result = holds(at, VALUE);
	if (result)
		return result;
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, OTHER, COUNT);
	MUST(cuCtxSynchronize, (void));
	TRY(cuIpcCloseMemHandle, (uint64_t), at);
	done();
	return 0;
}

static int export_gives(void)
{
	struct allocation kind;
	uint64_t memory, at;
	size_t size;
	int fd = -1, result = make(&kind, &size, &memory);

	if (!result)
		result = place(size, memory, &at);
	if (result)
		return result;
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, VALUE, COUNT);
	MUST(cuCtxSynchronize, (void));
	TRY(cuMemExportToShareableHandle, (void *, uint64_t, int, unsigned long long), &fd, memory, 1, 0);
	if (send_fd(fd))
		return -1;
	await();
	return holds(at, OTHER);
}

static int export_takes(void)
{
	uint64_t memory, at;
	int result, fd = receive_fd();

	if (fd < 0) {
		failed_at = "the other process";
		return -1;
	}
	TRY(cuMemImportFromShareableHandle, (uint64_t *, void *, int), &memory, (void *)(intptr_t)fd, 1);
	result = place(2 << 20, memory, &at);
	if (!result)
		result = holds(at, VALUE);
	if (result)
		return result;
	TRY(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), at, OTHER, COUNT);
	MUST(cuCtxSynchronize, (void));
	done();
	return 0;
}

static int tell(const char *name, int (*part)(void))
{
	int result;

	failed_at = NULL;
	right = 0;
	result = part();
	printf("{\"event\":\"part\",\"part\":\"%s\",\"result\":%d,\"at\":\"%s\",\"right\":%d,\"t\":%.6f}\n", name, result,
	       failed_at ? failed_at : "", right, cuda_now());
	fflush(stdout);
	return result;
}

static int two(const char *name, int (*gives)(void), int (*takes)(void))
{
	int sockets[2], child, result, status = 0;
	char text[32];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		return 1;
	child = fork();
	other = sockets[child == 0];
	close(sockets[child != 0]);
	alarm(25);	/* neither waits for ever */
	cuda_open();
	cuda_begin();
	snprintf(text, sizeof(text), "%s: %s", name, child ? "gives" : "takes");
	result = tell(text, child ? gives : takes);
	close(other);
	if (child)
		waitpid(child, &status, 0);
	return result || status;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "ipc"))
		return two("ipc", ipc_gives, ipc_takes);
	if (argc > 1 && !strcmp(argv[1], "export"))
		return two("export", export_gives, export_takes);
	cuda_open();
	cuda_begin();
	tell("streams", streams);
	tell("events", events);
	tell("pinned memory", pinned);
	tell("registered memory", registered);
	tell("graphs", graph);
	tell("virtual memory", virtual);
	tell("memory pools", pool);
	tell("managed memory", managed);
	tell("streams after all", streams);
	return 0;
}
