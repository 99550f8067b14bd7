/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that leaves the GPU and comes back: `parked CASE`, with DETSHARE_PARK=1. */
#include <stdatomic.h>
#include <sys/wait.h>

#include "client.h"

#define MIB (1UL << 20)
#define KIB (1UL << 10)

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count, const CUdevResource *whole, CUdevResource *rest,
				     unsigned int flags, unsigned int least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned int count);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority);
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned int flags);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);

static size_t found; /* on the GPU at the start */

static size_t on_gpu(void)
{
	size_t left, total;

	CHECK(cuMemGetInfo_v2(&left, &total));
	return total - left - found;
}

/* What green contexts take is there. */
static void settled(void)
{
	client_pool();
	found = 0;
	found = on_gpu();
}

static uint32_t park(void)
{
	daemon_park(true);
	return daemon_park_wait();
}

static bool away(void)
{
	return daemon_counters()->park_state == DS_PARK_AWAY;
}

static void fill(CUdeviceptr at, size_t bytes, uint32_t seed)
{
	uint32_t *words = malloc(bytes);

	for (size_t n = 0; n < bytes / 4; n++)
		words[n] = (uint32_t)n * 2654435761U + seed;
	CHECK(cuMemcpyHtoD_v2(at, words, bytes));
	free(words);
}

static bool filled(CUdeviceptr at, size_t bytes, uint32_t seed)
{
	uint32_t *words = malloc(bytes);
	bool same = true;

	CHECK(cuMemcpyDtoH_v2(words, at, bytes));
	for (size_t n = 0; n < bytes / 4 && same; n++)
		same = words[n] == (uint32_t)n * 2654435761U + seed;
	free(words);
	return same;
}

/* Memory leaves, the next launch fetches it, addresses and contents are what they were. */
static void case_round(void)
{
	CUdeviceptr large, odd, small;
	uint32_t word;
	size_t before;

	CHECK(cuMemAlloc_v2(&large, 70 * MIB));
	CHECK(cuMemAlloc_v2(&odd, MIB + 12));
	CHECK(cuMemAlloc_v2(&small, 4096));
	EXPECT(daemon_counters()->parkable_bytes == 72 * MIB);
	fill(large, 70 * MIB, 1);
	fill(odd, MIB + 12, 2);
	fill(small, 4096, 3);
	before = on_gpu();
	EXPECT(park() == DS_PARK_OK);
	EXPECT(away() && daemon_counters()->parked_bytes == 72 * MIB && daemon_counters()->arena_bytes == 72 * MIB);
	EXPECT(before - on_gpu() == 72 * MIB);
	/* what asks for nothing leaves it there */
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuCtxSynchronize());
	EXPECT(away());
	CHECK(client_mix(NULL, large + 33 * MIB, 1, 2, 5));
	EXPECT(!away() && daemon_counters()->wakes == 1 && daemon_counters()->parked_bytes == 0);
	CHECK(cuMemcpyDtoH_v2(&word, large + 33 * MIB, 4));
	EXPECT(word == (uint32_t)(33 * MIB / 4) * 2654435761U * 2 + 2 + 5);
	word = (uint32_t)(33 * MIB / 4) * 2654435761U + 1;
	CHECK(cuMemcpyHtoD_v2(large + 33 * MIB, &word, 4));
	EXPECT(filled(large, 70 * MIB, 1) && filled(odd, MIB + 12, 2) && filled(small, 4096, 3));
	EXPECT(on_gpu() == before);
	/* the daemon fetches it, without a call of the program */
	EXPECT(park() == DS_PARK_OK && away());
	daemon_park(false);
	EXPECT(daemon_park_wait() == DS_PARK_OK && !away() && on_gpu() == before && daemon_counters()->wakes == 1);
	EXPECT(filled(large, 70 * MIB, 1) && filled(odd, MIB + 12, 2));
	EXPECT(daemon_arenas() == 1); /* it is kept */
	CHECK(cuMemFree_v2(large));
	CHECK(cuMemFree_v2(odd));
	EXPECT(daemon_counters()->parkable_bytes == 0);
	EXPECT(park() == DS_PARK_NOTHING);
}

static CUdeviceptr place;
static CUstream stream;

static void by_launch(void) { CHECK(client_mix(stream, place, 4, 1, 0)); }
static void by_copy(void) { uint32_t word; CHECK(cuMemcpyDtoHAsync_v2(&word, place, 4, stream)); CHECK(cuStreamSynchronize(stream)); }
static void by_sync_copy(void) { uint32_t word; CHECK(cuMemcpyDtoH_v2(&word, place, 4)); }
static void by_set(void) { CHECK(cuMemsetD32Async(place + 64, 7, 4, stream)); CHECK(cuStreamSynchronize(stream)); }
static void by_alloc(void) { CUdeviceptr more; CHECK(cuMemAlloc_v2(&more, 2 * MIB)); CHECK(cuMemFree_v2(more)); }
static void by_small_alloc(void) { CUdeviceptr more; CHECK(cuMemAlloc_v2(&more, 64)); CHECK(cuMemFree_v2(more)); }
static void by_question(void) { unsigned int type; CHECK(cuPointerGetAttribute(&type, 2, place)); EXPECT(type == 2); }
static void by_graph(void)
{
	CUgraph graph;

	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(client_mix(stream, place, 4, 1, 0));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphDestroy(graph));
}
static void by_new_stream(void)
{
	CUstream other;

	CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	EXPECT(away());
	CHECK(client_mix(other, place, 4, 1, 0));
	CHECK(cuStreamSynchronize(other));
	CHECK(cuStreamDestroy_v2(other));
}

/* Each kind of call that needs memory fetches it, and only then goes on. */
static void case_wakes(void)
{
	static void (*const calls[])(void) = {by_launch, by_copy, by_sync_copy, by_set, by_alloc, by_small_alloc, by_question, by_graph,
					      by_new_stream};

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 5 * MIB));
	fill(place, 5 * MIB, 9);
	for (unsigned int n = 0; n < sizeof(calls) / sizeof(calls[0]); n++) {
		EXPECT(park() == DS_PARK_OK && away());
		calls[n]();
		EXPECT(!away() && daemon_counters()->wakes == n + 1);
	}
	CHECK(cuMemsetD32_v2(place + 64, 0, 4));
	EXPECT(filled(place + 128, 1024, 32 * 2654435761U + 9));
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuMemFree_v2(place));
	EXPECT(!away());
}

/* What the program sees of an address is what it sees of memory that cannot leave. */
static void case_questions(void)
{
	CUdeviceptr pointers[2], base, start;
	unsigned long long id[2];
	size_t size, length;
	CUcontext whose;
	unsigned int type, yes = 1;

	CHECK(cuMemAlloc_v2(&pointers[0], 3 * MIB + 4));
	CHECK(cuMemAlloc_v2(&pointers[1], 3 * MIB + 4));
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
	CHECK(cuMemFree_v2(pointers[0]));
	EXPECT(cuMemFree_v2(pointers[0]) == CUDA_ERROR_INVALID_VALUE);
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

/* Whatever refuses a park leaves all as it was. */
static void case_refused(void)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 8 * MIB));
	fill(at, 8 * MIB, 6);
	daemon_arena(4 * MIB);
	EXPECT(park() == DS_PARK_ARENA && !away() && on_gpu() == 8 * MIB);
	EXPECT(filled(at, 8 * MIB, 6));
	daemon_arena(8 * MIB);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(park() == DS_PARK_CAPTURE && !away());
	CHECK(client_mix(stream, at, 1, 1, 0));
	CHECK(cuStreamEndCapture(stream, &(CUgraph){NULL}));
	EXPECT(park() == DS_PARK_OK && away());
	EXPECT(filled(at, 8 * MIB, 6));
}

static void *writes_later(void *word)
{
	usleep(200000);
	__atomic_store_n((uint32_t *)word, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* What runs is waited for; the program's next launch waits for the park and fetches its memory. */
static void case_busy(void)
{
	pthread_t thread;
	uint32_t *word;
	CUdeviceptr at, seen;

	CHECK(cuMemAlloc_v2(&at, 4 * MIB));
	fill(at, 4 * MIB, 6);
	CHECK(cuMemHostAlloc((void **)&word, 4096, 2));
	CHECK(cuMemHostGetDevicePointer_v2(&seen, word, 0));
	*word = 0;
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamWaitValue32_v2(stream, seen, 1, 1));
	CHECK(client_mix(stream, at, 4, 3, 1));
	daemon_park(true);
	while (daemon_counters()->park_state != DS_PARK_LEAVING)
		usleep(100);
	pthread_create(&thread, NULL, writes_later, word);
	CHECK(client_mix(stream, at, 4, 5, 2));
	EXPECT(__atomic_load_n(word, __ATOMIC_SEQ_CST) == 1 && daemon_counters()->parks == 1);
	EXPECT(daemon_park_wait() == DS_PARK_OK);
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemsetD32_v2(at, 0, 0));
	{
		uint32_t got[2];

		CHECK(cuMemcpyDtoH_v2(got, at + 12, sizeof(got)));
		EXPECT(got[0] == ((3 * 2654435761U + 6) * 3 + 1) * 5 + 2 && got[1] == 4 * 2654435761U + 6);
	}
	pthread_join(thread, NULL);
	/* and what never ends ends the park */
	*word = 0;
	CHECK(cuStreamWaitValue32_v2(stream, seen, 1, 1));
	EXPECT(park() == DS_PARK_BUSY && !away());
	*word = 1;
	CHECK(cuStreamSynchronize(stream));
}

static _Atomic(bool) through;

static void *launches(void *unused)
{
	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	CHECK(client_mix(stream, place, 4, 1, 0));
	CHECK(cuStreamSynchronize(stream));
	atomic_store(&through, true);
	return NULL;
}

/* A full GPU: the program waits, and loses nothing. */
static void case_full(void)
{
	const char *path = getenv("FAKECUDA_TAKEN");
	FILE *file;
	pthread_t thread;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 100 * MIB));
	fill(place, 100 * MIB, 8);
	EXPECT(park() == DS_PARK_OK);
	file = fopen(path, "w");
	/* two of its four pieces would fit */
	fprintf(file, "%lu", (80UL << 30) - found - 70 * MIB);
	fclose(file);
	daemon_park(false);
	pthread_create(&thread, NULL, launches, NULL);
	while (daemon_counters()->park_state != DS_PARK_WAITING)
		usleep(100);
	usleep(20000);
	EXPECT(!atomic_load(&through) && on_gpu() == (80UL << 30) - found - 70 * MIB && daemon_counters()->parked_bytes == 100 * MIB);
	unlink(path);
	pthread_join(thread, NULL);
	EXPECT(daemon_park_wait() == DS_PARK_OK);
	EXPECT(filled(place, 100 * MIB, 8));
}

/* A paused program stays away, whatever it launches, until it is let go. */
static void case_held(void)
{
	uint32_t *word = &daemon_activity()->slots[0].word;
	pthread_t thread;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&place, 2 * MIB));
	fill(place, 2 * MIB, 8);
	EXPECT(park() == DS_PARK_OK);
	daemon_policy()->lease_ns = UINT64_MAX;
	__atomic_fetch_or(word, DS_HELD, __ATOMIC_SEQ_CST);
	pthread_create(&thread, NULL, launches, NULL);
	usleep(100000);
	EXPECT(away() && !atomic_load(&through));
	__atomic_fetch_and(word, ~DS_HELD, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	EXPECT(filled(place, 2 * MIB, 8));
}

/* The context ends while its memory is away; the next one starts with none of it. */
static void case_ends(void)
{
	size_t first = found;
	CUdeviceptr at;

	for (unsigned int round = 0; round < 3; round++) {
		CHECK(cuMemAlloc_v2(&at, 40 * MIB));
		fill(at, 40 * MIB, round);
		EXPECT(park() == DS_PARK_OK && on_gpu() == 0);
		CHECK(round == 1 ? cuDevicePrimaryCtxReset_v2(0) : cuDevicePrimaryCtxRelease_v2(0));
		CHECK(cuDevicePrimaryCtxRetain(&context, 0));
		if (round == 1)
			CHECK(cuDevicePrimaryCtxRelease_v2(0)); /* the reset took no reference */
		CHECK(cuCtxSetCurrent(context));
		client_kernels();
		settled();
		EXPECT(found == first);
		/* nothing waits */
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		CHECK(cuStreamSynchronize(stream));
	}
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

/* A green context of the program's own, made while the memory is away, finds it there. */
static void case_green(void)
{
	CUdevResource all, group;
	CUdevResourceDesc desc;
	unsigned int groups = 1;
	CUgreenCtx green;
	CUdeviceptr at;

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
}

static void case_off(void)
{
	CUdeviceptr at;

	CHECK(cuMemAlloc_v2(&at, 2 * MIB));
	EXPECT(daemon_counters()->parkable_bytes == 0);
	EXPECT(park() == DS_PARK_OFF);
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
	CHECK(cuIpcGetMemHandle(&handles[1], freed));
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
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"round", case_round}, {"wakes", case_wakes}, {"questions", case_questions}, {"own", case_own},
		{"refused", case_refused}, {"busy", case_busy}, {"full", case_full}, {"held", case_held},
		{"ends", case_ends}, {"foreign", case_foreign}, {"green", case_green}, {"peers", case_peers}, {"off", case_off},
	};

	if (count == 2 && !strcmp(arguments[1], "shared"))
		return shared();
	client_start(0);
	settled();
	for (unsigned int n = 0; count == 2 && n < sizeof(cases) / sizeof(cases[0]); n++)
		if (!strcmp(arguments[1], cases[n].name)) {
			cases[n].run();
			return 0;
		}
	return 2;
}
