/* SPDX-License-Identifier: Apache-2.0 */
/* Which memory leaves the GPU, and what the program sees of it: `parkable CASE`, with DETSHARE_PARK=1. */
#include <sys/wait.h>

#include "parked.h"

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count, const CUdevResource *whole, CUdevResource *rest,
				     unsigned int flags, unsigned int least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned int count);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);

static CUstream stream;

/* What the program sees of an address is what it sees of memory that cannot leave. */
static void case_questions(void)
{
	CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
	CUdeviceptr pointers[3], base, start;
	unsigned long long id[2];
	size_t size, length;
	CUstream stream;
	CUgraph graph;
	CUcontext whose;
	unsigned int type, yes = 1;

	CHECK(cuMemAlloc_v2(&pointers[0], 3 * MIB + 4));
	CHECK(cuMemAlloc_v2(&pointers[1], 3 * MIB + 4));
	CHECK(cuMemAlloc_v2(&pointers[2], 3 * MIB + 4));
	for (unsigned int round = 0; round < 2; round++) {
		int attributes[] = {1, 2, 11, 12, 7};
		void *answers[] = {&whose, &type, &start, &length, &id[round]};

		CHECK(cuMemGetAddressRange_v2(&base, &size, pointers[0] + 2 * MIB + 5));
		EXPECT(base == pointers[0] && size == 3 * MIB + 4);
		EXPECT(cuMemGetAddressRange_v2(&base, &size, pointers[0] + 3 * MIB + 4096) != CUDA_SUCCESS || base != pointers[0]);
		CHECK(cuPointerGetAttributes(5, attributes, answers, pointers[0] + 100));
		EXPECT(whose == context && type == 2 && start == pointers[0] && length == 3 * MIB + 4);
		CHECK(cuPointerGetAttribute(&whose, 1, pointers[1]));
		EXPECT(whose == context);
		CHECK(cuPointerSetAttribute(&yes, 6, pointers[0]));
		EXPECT(park() == DS_PARK_OK);
	}
	EXPECT(id[0] == id[1]);
	type = 0;
	CHECK(cuPointerGetAttribute(&type, 6, pointers[0]));
	EXPECT(type == 1);
	CHECK(cuPointerGetAttribute(&id[1], 7, pointers[1]));
	EXPECT(id[0] != id[1]);
	EXPECT(cuMemFree_v2(pointers[0] + 4) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemRetainAllocationHandle(&(CUmemGenericAllocationHandle){0}, (void *)pointers[0]) == CUDA_ERROR_INVALID_VALUE);
	/* it is no mapping of the program's */
	EXPECT(cuMemUnmap(pointers[0], 4 * MIB) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemSetAccess(pointers[0], 4 * MIB, &none, 1) == CUDA_ERROR_INVALID_VALUE);
	CHECK(client_mix(NULL, pointers[0], 1, 1, 1));
	CHECK(cuStreamSynchronize(NULL));
	/* a thread that captures may not free, and loses its capture by that */
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	EXPECT(cuMemFree_v2(pointers[0]) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
	CHECK(cuMemFree_v2(pointers[0]));
	EXPECT(cuMemFree_v2(pointers[0]) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(cuMemFree_v2(pointers[2]));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuMemFreeAsync(pointers[1], NULL));
	CHECK(cuStreamSynchronize(NULL));
	EXPECT(on_gpu() == 0 || daemon_counters()->parkable_bytes == 0);
}

/* Handles that the program made leave, too, but for those that somebody else has, or that are mapped twice. */
static void case_own(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, seen;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handles[3], again;
	unsigned long long flags;
	CUdeviceptr base;
	int fd;

	CHECK(cuMemAddressReserve(&base, 64 * MIB, 0, 0, 0));
	prop.requestedHandleTypes = 1;
	for (unsigned int n = 0; n < 3; n++) {
		CHECK(cuMemCreate(&handles[n], 4 * MIB, &prop, 0));
		CHECK(cuMemMap(base + 4 * n * MIB, 4 * MIB, 0, handles[n], 0));
	}
	CHECK(cuMemSetAccess(base, 12 * MIB, &access, 1));
	EXPECT(daemon_counters()->parkable_bytes == 12 * MIB);
	fill(base, 12 * MIB, 4);
	/* the mapping holds it alone */
	CHECK(cuMemRelease(handles[0]));
	EXPECT(cuMemRelease(handles[0]) != CUDA_SUCCESS);
	CHECK(cuMemExportToShareableHandle(&fd, handles[2], 1, 0));
	EXPECT(daemon_counters()->parkable_bytes == 8 * MIB);
	EXPECT(park() == DS_PARK_OK && daemon_counters()->parked_bytes == 8 * MIB && on_gpu() == 4 * MIB);
	EXPECT(filled(base, 12 * MIB, 4));
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuMemGetAllocationPropertiesFromHandle(&seen, handles[1]));
	EXPECT(seen.requestedHandleTypes == 1 && !away());
	CHECK(cuMemGetAccess(&flags, &access.location, base + 5 * MIB));
	EXPECT(flags == 3);
	CHECK(cuMemRetainAllocationHandle(&again, (void *)(base + 5 * MIB)));
	EXPECT(again == handles[1]);
	CHECK(cuMemRelease(again));
	/* at two places at once */
	CHECK(cuMemMap(base + 32 * MIB, 4 * MIB, 0, handles[1], 0));
	CHECK(cuMemSetAccess(base + 32 * MIB, 4 * MIB, &access, 1));
	EXPECT(daemon_counters()->parkable_bytes == 4 * MIB);
	EXPECT(park() == DS_PARK_OK);
	EXPECT(filled(base, 12 * MIB, 4));
	EXPECT(filled(base + 32 * MIB, 4 * MIB, 4 + 2654435761U * (uint32_t)MIB));
	CHECK(cuMemUnmap(base + 32 * MIB, 4 * MIB));
	for (unsigned int n = 0; n < 3; n++)
		CHECK(cuMemUnmap(base + 4 * n * MIB, 4 * MIB));
	CHECK(cuMemRelease(handles[1]));
	CHECK(cuMemRelease(handles[2]));
	EXPECT(on_gpu() == 0 && daemon_counters()->memory_used == 0);
	/* nobody has it any more: refused by us and not by the stand-in, for which it would be wrong use */
	EXPECT(park() == DS_PARK_NOTHING);
	close(fd);
}

/* Contexts that we do not steer reach the memory past us: it stays. */
static void case_foreign(void)
{
	CUdeviceptr at;
	CUcontext other;

	CHECK(cuMemAlloc_v2(&at, 2 * MIB));
	CHECK(cuCtxCreate_v2(&other, 0, 0));
	CHECK(cuMemAlloc_v2(&at, 2 * MIB)); /* of the other one: not ours */
	EXPECT(daemon_counters()->parkable_bytes == 2 * MIB);
	EXPECT(park() == DS_PARK_CONTEXT);
	CHECK(cuMemFree_v2(at));
}

/* Two GPUs: the memory of both leaves together, and who could reach the other's still can. */
static void case_peers(void)
{
	CUdeviceptr before, after, own;
	CUcontext second;
	uint32_t word;

	CHECK(cuMemAlloc_v2(&before, 40 * MIB));
	fill(before, 40 * MIB, 1);
	CHECK(cuDevicePrimaryCtxRetain(&second, 1));
	CHECK(cuCtxSetCurrent(second));
	client_kernels();
	CHECK(cuCtxEnablePeerAccess(context, 0));
	CHECK(cuMemAlloc_v2(&own, 3 * MIB));
	fill(own, 3 * MIB, 2);
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc_v2(&after, 2 * MIB));
	fill(after, 2 * MIB, 3);
	CHECK(cuCtxSetCurrent(second));
	for (unsigned int round = 0; round < 2; round++) {
		EXPECT(park() == DS_PARK_OK && away());
		CHECK(client_mix(NULL, before + 33 * MIB, 1, 1, 1));
		CHECK(client_mix(NULL, after, 1, 1, 1));
		CHECK(client_mix(NULL, own, 1, 1, 1));
		CHECK(cuStreamSynchronize(NULL));
		EXPECT(!away());
	}
	CHECK(cuMemcpyDtoH_v2(&word, own, 4));
	EXPECT(word == 4);
	CHECK(cuMemcpyDtoH_v2(&word, after, 4));
	EXPECT(word == 5);
	CHECK(cuCtxDisablePeerAccess(context));
	CHECK(cuCtxSetCurrent(context));
	EXPECT(filled(before, 32 * MIB, 1) && filled(after + 4 * KIB, MIB, 3 + (uint32_t)KIB * 2654435761U));
	CHECK(cuCtxSetCurrent(second));
	CHECK(client_mix(NULL, after, 1, 1, 1));
	EXPECT(cuStreamSynchronize(NULL) == 700);
}

static void *frees(void *at)
{
	/* a thread without a context frees nothing */
	EXPECT(cuMemFree_v2((CUdeviceptr)at) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemFree_v2((CUdeviceptr)at));
	return NULL;
}

/* A green context of the program's own, made while the memory is away, finds it there. */
static void case_green(void)
{
	CUdevResource all, group;
	CUdevResourceDesc desc;
	unsigned int groups = 1;
	CUgreenCtx green;
	CUdeviceptr at, before;
	pthread_t thread;
	CUgraph graph;

	CHECK(cuMemAlloc_v2(&before, 2 * MIB));
	CHECK(cuMemAlloc_v2(&at, 2 * MIB));
	fill(at, 2 * MIB, 4);
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(cuDevSmResourceSplitByCount(&group, &groups, &all, NULL, 0, 16));
	CHECK(cuDevResourceGenerateDesc(&desc, &group, 1));
	CHECK(cuGreenCtxCreate(&green, desc, 0, 1));
	EXPECT(!away());
	CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	CHECK(client_mix(stream, at, 1, 1, 1));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(park() == DS_PARK_CONTEXT && !away());
	/* what there was, and what is made from now on, is freed while another thread captures, and that goes on */
	CHECK(cuMemAlloc_v2(&at, 2 * MIB));
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_create(&thread, NULL, frees, (void *)at);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, frees, (void *)before);
	pthread_join(thread, NULL);
	CHECK(cuStreamEndCapture(stream, &graph));
}

/* A driver that makes no such memory: the program has what it would have without us. */
static void case_plain(void)
{
	CUdeviceptr at, rows;
	size_t pitch;

	CHECK(cuMemAlloc_v2(&at, 3 * MIB));
	CHECK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 2000, 4));
	fill(at, 3 * MIB, 1);
	EXPECT(daemon_counters()->parkable_bytes == 0);
	EXPECT(park() == DS_PARK_NOTHING);
	EXPECT(filled(at, 3 * MIB, 1));
	CHECK(cuMemFree_v2(at));
	CHECK(cuMemFree_v2(rows));
	EXPECT(on_gpu() == 0);
}

/* The process that opens it, without --park. */
static void opens(int from, int to)
{
	CUdeviceptr at, again, base;
	CUipcMemHandle handles[2];
	CUcontext whose;
	size_t size;

	setenv("DETSHARE_PARK", "0", 1);
	client_start(0);
	EXPECT(read(from, handles, sizeof(handles)) == sizeof(handles));
	CHECK(cuIpcOpenMemHandle_v2(&at, handles[0], 1));
	EXPECT(filled(at, 70 * MIB, 7));
	CHECK(cuMemGetAddressRange_v2(&base, &size, at + 50 * MIB));
	EXPECT(base == at && size == 70 * MIB);
	CHECK(cuPointerGetAttribute(&whose, 1, at));
	EXPECT(whose == context);
	/* opened twice it is closed twice */
	CHECK(cuIpcOpenMemHandle_v2(&again, handles[0], 1));
	EXPECT(again == at);
	CHECK(cuIpcCloseMemHandle(at));
	CHECK(client_mix(NULL, at + 40 * MIB, 1, 1, 1));
	CHECK(cuStreamSynchronize(NULL));
	EXPECT(cuMemFree_v2(at) == CUDA_ERROR_INVALID_VALUE);
	EXPECT(park() == DS_PARK_OFF);
	CHECK(cuIpcCloseMemHandle(at));
	EXPECT(cuMemGetAddressRange_v2(&base, &size, at) != CUDA_SUCCESS);
	/* a secret that is none, an allocation that was freed, a process that is none */
	handles[0].reserved[8] ^= 1;
	EXPECT(cuIpcOpenMemHandle_v2(&at, handles[0], 1) == CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuIpcOpenMemHandle_v2(&at, handles[1], 1) == CUDA_ERROR_INVALID_HANDLE);
	_exit(write(to, "x", 1) != 1);
}

/* Another process sees what was named, which stays; all else leaves. */
static int shared(void)
{
	int to_child[2], to_parent[2], status;
	unsigned int files;
	CUipcMemHandle handles[2];
	CUdeviceptr at, freed;
	uint32_t word;
	pid_t child;
	char byte;

	EXPECT(!pipe(to_child) && !pipe(to_parent));
	child = fork();
	if (!child)
		opens(to_child[0], to_parent[1]);
	client_start(0);
	CHECK(cuMemAlloc_v2(&at, 70 * MIB));
	CHECK(cuMemAlloc_v2(&freed, 4 * MIB));
	fill(at, 70 * MIB, 7);
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuIpcGetMemHandle(&handles[0], at + 5));
	EXPECT(!away() && daemon_counters()->parkable_bytes == 4 * MIB);
	EXPECT(cuIpcOpenMemHandle_v2(&(CUdeviceptr){0}, handles[0], 1) == CUDA_ERROR_INVALID_CONTEXT);
	files = open_files();
	CHECK(cuIpcGetMemHandle(&handles[1], freed));
	EXPECT(open_files() == files);
	CHECK(cuMemFree_v2(freed));
	CHECK(cuMemAlloc_v2(&freed, 4 * MIB));
	EXPECT(park() == DS_PARK_OK && daemon_counters()->parked_bytes == 4 * MIB);
	EXPECT(write(to_child[1], handles, sizeof(handles)) == sizeof(handles));
	EXPECT(read(to_parent[0], &byte, 1) == 1);
	EXPECT(away());
	CHECK(cuMemcpyDtoH_v2(&word, at + 40 * MIB, 4));
	EXPECT(word == (uint32_t)(10 * MIB) * 2654435761U + 8);
	CHECK(cuMemFree_v2(at));
	EXPECT(waitpid(child, &status, 0) == child && !status);
	return 0;
}

int main(int count, char **arguments)
{
	static const struct parked_case cases[] = {
		{"questions", case_questions},
		{"own", case_own},
		{"foreign", case_foreign},
		{"peers", case_peers},
		{"green", case_green},
		{"plain", case_plain},
	};

	/* it forks before there is a context */
	if (count == 2 && !strcmp(arguments[1], "shared"))
		return shared();
	return count == 2 ? parked_main(arguments[1], cases, sizeof(cases) / sizeof(cases[0])) : 2;
}
