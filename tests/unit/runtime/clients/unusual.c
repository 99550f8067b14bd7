/* SPDX-License-Identifier: Apache-2.0 */
/* Programs do what they seldom do while their memory is away or lent: `unusual CASE`, with DETSHARE_PARK=1; FAKECUDA_TAKEN names a file. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "parked.h"

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *address, unsigned int flags);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);

#define ILLEGAL_ADDRESS 700
#define LAUNCH_FAILED 719
#define PIECE (32 * MIB)
#define RELEASES 20000U

static CUdeviceptr block;
static CUstream stream;

static void make(void)
{
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&block, 2 * PIECE));
	fill(block, 2 * PIECE, 3);
}

/* The first kernel runs over host memory, and nothing comes home. */
static void lent(void)
{
	make();
	EXPECT(park() == DS_PARK_OK);
	others_have(0);
	others_have(left());
	CHECK(client_mix(stream, block, 1, 1, 0));
	CHECK(cuStreamSynchronize(stream));
	EXPECT(state() == DS_PARK_LENT);
}

static void faults(void)
{
	CUdeviceptr nothing_there;

	CHECK(cuMemAddressReserve(&nothing_there, 2 * MIB, 0, 0, 0));
	CHECK(client_mix(stream, nothing_there, 1, 1, 1));
	EXPECT(cuStreamSynchronize(stream) == ILLEGAL_ADDRESS);
}

/* The program begins anew, as the driver lets it. */
static void recovers(void)
{
	CUcontext again;

	others_have(0);
	CHECK(cuDevicePrimaryCtxReset_v2(0));
	CHECK(cuDevicePrimaryCtxRetain(&again, 0));
	EXPECT(again == context);
	CHECK(cuCtxSetCurrent(context));
	client_kernels();
	make();
	EXPECT(park() == DS_PARK_OK);
	EXPECT(filled(block, 2 * PIECE, 3));
	CHECK(cuMemFree_v2(block));
	CHECK(cuStreamDestroy_v2(stream));
}

/* A capture that begins while memory is lent may allocate, as PyTorch's do. */
static void captures(void)
{
	CUdeviceptr more, base;
	CUgraphExec exec;
	CUgraph graph;
	uint32_t word;
	size_t size;

	make();
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(cuMemAlloc_v2(&more, 4 * MIB));
	CHECK(cuMemGetAddressRange_v2(&base, &size, block + 5));
	EXPECT(base == block && size == 2 * PIECE);
	CHECK(client_mix(stream, block, 1, 1, 4));
	CHECK(cuStreamEndCapture(stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH_v2(&word, block, sizeof(word)));
	EXPECT(word == 7);
}

/* The driver's error is what the program gets, and not a wait without end. */
static void breaks_while_lent(void)
{
	unsigned int type;

	lent();
	faults();
	cuPointerGetAttribute(&type, 2, block);
	EXPECT(cuMemFree_v2(block) == ILLEGAL_ADDRESS);
	recovers();
}

/* The same of a GPU that fails while the memory is away. */
static void breaks_while_away(void)
{
	make();
	EXPECT(park() == DS_PARK_OK && away());
	fakecuda_break(0);
	EXPECT(cuMemFree_v2(block) == LAUNCH_FAILED);
	EXPECT(client_mix(stream, block, 1, 1, 0) == LAUNCH_FAILED);
	recovers();
}

/* A program whose context is beyond repair has no work: nobody waits for it. */
static void breaks_and_lives_on(void)
{
	make();
	CHECK(client_mix(stream, block, 1, 1, 1));
	CHECK(cuStreamSynchronize(stream));
	faults();
	while (__atomic_load_n(&daemon_activity()->slots[0].active, __ATOMIC_SEQ_CST))
		usleep(1000);
}

/* A context beside the primary one, made while the memory is away, finds it there. */
static void another_context(void)
{
	CUcontext other;
	uint32_t word;

	make();
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuCtxCreate_v2(&other, 0, 0));
	client_kernels();
	CHECK(client_mix(NULL, block, 1, 1, 5));
	CHECK(cuMemcpyDtoH_v2(&word, block, sizeof(word)));
	EXPECT(word == 8 && !away());
	EXPECT(park() == DS_PARK_CONTEXT);
}

/* What the program made by itself is of no context. */
static void outlives_its_context(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base;

	CHECK(cuMemAddressReserve(&base, PIECE, 0, 0, 0));
	CHECK(cuMemCreate(&handle, PIECE, &prop, 0));
	CHECK(cuMemMap(base, PIECE, 0, handle, 0));
	CHECK(cuMemSetAccess(base, PIECE, &access, 1));
	fill(base, PIECE, 9);
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	EXPECT(filled(base, PIECE, 9));
	EXPECT(park() == DS_PARK_OK);
	EXPECT(filled(base, PIECE, 9));
}

/* The program's own parked memory is no room for more of it. */
static void asks_for_room(void)
{
	size_t before, after, total;

	make();
	CHECK(cuMemGetInfo_v2(&before, &total));
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuMemGetInfo_v2(&after, &total));
	EXPECT(after == before && away() && left() == before + 2 * PIECE);
	CHECK(client_mix(stream, block, 1, 1, 0));
	CHECK(cuStreamSynchronize(stream));
	while (daemon_counters()->parked_bytes)
		usleep(200);
	CHECK(cuMemGetInfo_v2(&after, &total));
	EXPECT(after == before);
}

/* What finds no room takes none, not even for a moment: others would be refused. */
static void takes_nothing(void)
{
	CUdeviceptr at;
	size_t used;

	make();
	used = fakecuda_used(0);
	others_have(left() - 2 * PIECE);
	used = fakecuda_used(0);
	fakecuda_peak(0);
	EXPECT(cuMemAlloc_v2(&at, 4 * PIECE) == CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(fakecuda_peak(0) == used);
	EXPECT(park() == DS_PARK_OK);
	others_have(0);
	others_have(left() - PIECE);
	used = fakecuda_used(0);
	fakecuda_peak(0);
	daemon_park(false);
	while (state() != DS_PARK_WAITING)
		usleep(200);
	EXPECT(fakecuda_peak(0) == used);
	others_have(0);
	EXPECT(filled(block, 2 * PIECE, 3));
}

static _Atomic(bool) over;
static _Atomic(unsigned int) rounds;

static void *allocates(void *unused)
{
	CUdeviceptr at[8];

	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	while (!atomic_load(&over)) {
		for (unsigned int n = 0; n < 8; n++)
			CHECK(cuMemAlloc_v2(&at[n], 2 * MIB));
		for (unsigned int n = 0; n < 8; n++)
			CHECK(cuMemFree_v2(at[n]));
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

/* Another GPU gets access, and loses it, while other threads allocate and free. */
static void peers_meanwhile(void)
{
	pthread_t threads[2];
	CUcontext second;

	CHECK(cuDevicePrimaryCtxRetain(&second, 1));
	for (unsigned int n = 0; n < 2; n++)
		pthread_create(&threads[n], NULL, allocates, NULL);
	CHECK(cuCtxSetCurrent(second));
	while (atomic_load(&rounds) < 500) {
		CHECK(cuCtxEnablePeerAccess(context, 0));
		CHECK(cuCtxDisablePeerAccess(context));
	}
	atomic_store(&over, true);
	for (unsigned int n = 0; n < 2; n++)
		pthread_join(threads[n], NULL);
}

enum { HANDLE_THREADS = 4, HANDLE_ROUNDS = 2000 };

static void *maps(void *unused)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base;

	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAddressReserve(&base, 2 * MIB, 0, 0, 0));
	for (unsigned int n = 0; n < HANDLE_ROUNDS; n++) {
		CHECK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
		CHECK(cuMemMap(base, 2 * MIB, 0, handle, 0));
		CHECK(cuMemRelease(handle));
		CHECK(cuMemUnmap(base, 2 * MIB));
	}
	return NULL;
}

/* Memory that its mapping held alone is paid for no longer, whoever makes some at that moment. */
static void pays_for_handles(void)
{
	pthread_t threads[HANDLE_THREADS];

	for (unsigned int n = 0; n < HANDLE_THREADS; n++)
		pthread_create(&threads[n], NULL, maps, NULL);
	for (unsigned int n = 0; n < HANDLE_THREADS; n++)
		pthread_join(threads[n], NULL);
	EXPECT(daemon_counters()->memory_used == 0);
}

static CUmemGenericAllocationHandle to_release;
static pthread_barrier_t both;

static void *releases(void *unused)
{
	for (unsigned int n = 0; n < RELEASES; n++) {
		uint64_t until;

		pthread_barrier_wait(&both);
		for (until = client_ns() + n % 400 * 100; client_ns() < until;)
			;
		CHECK(cuMemRelease(to_release));
		pthread_barrier_wait(&both);
	}
	return unused;
}

/* One thread releases a handle while another unmaps what it has: the memory goes once. */
static void ends_at_both(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr base;
	pthread_t thread;

	CHECK(cuMemAddressReserve(&base, 2 * MIB, 0, 0, 0));
	EXPECT(!pthread_barrier_init(&both, NULL, 2) && !pthread_create(&thread, NULL, releases, NULL));
	for (unsigned int n = 0; n < RELEASES; n++) {
		CHECK(cuMemCreate(&to_release, 2 * MIB, &prop, 0));
		CHECK(cuMemMap(base, 2 * MIB, 0, to_release, 0));
		pthread_barrier_wait(&both);
		CHECK(cuMemUnmap(base, 2 * MIB));
		pthread_barrier_wait(&both);
	}
	EXPECT(!pthread_join(thread, NULL));
}

/* Who asks about other memory, as threads that feed the program do all the time, wakes nobody. */
static void asks_about_the_host(void)
{
	int kinds[] = {2, 4};
	unsigned int type[2];
	void *host, *answers[2];
	CUdeviceptr seen;
	size_t size;

	make();
	CHECK(cuMemHostAlloc(&host, 4096, 0));
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(cuPointerGetAttribute(&type[0], 2, (CUdeviceptr)host));
	answers[0] = &type[1];
	answers[1] = &seen;
	CHECK(cuPointerGetAttributes(2, kinds, answers, (CUdeviceptr)host));
	EXPECT(type[0] == 1 && type[1] == 1 && seen == (CUdeviceptr)host && away());
	/* nor does where an allocation begins and ends */
	CHECK(cuMemGetAddressRange_v2(&seen, &size, block + 5));
	EXPECT(seen == block && size == 2 * PIECE && away());
	CHECK(cuPointerGetAttribute(&type[0], 2, block));
	EXPECT(type[0] == 2 && !away());
}

static _Atomic(bool) asks;

static void *asks_long(void *unused)
{
	unsigned int type;

	(void)unused;
	CHECK(cuCtxSetCurrent(context));
	atomic_store(&asks, true);
	CHECK(cuPointerGetAttribute(&type, 2, block));
	while (1)
		pause();
}

/* A thread that is cancelled while its call waits for the memory's return leaves the others a way. */
static void cancels(void)
{
	CUdeviceptr seen;
	pthread_t thread;
	uint32_t *word;

	CHECK(cuMemHostAlloc((void **)&word, 4096, 2));
	CHECK(cuMemHostGetDevicePointer_v2(&seen, word, 0));
	*word = 0;
	lent();
	CHECK(cuStreamWaitValue32_v2(stream, seen, 1, 1));
	pthread_create(&thread, NULL, asks_long, NULL);
	while (!atomic_load(&asks))
		usleep(100);
	CHECK(pthread_cancel(thread));
	/* it waits for the work by now, if it can be cancelled there */
	usleep(200000);
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	others_have(0);
	CHECK(pthread_join(thread, NULL));
	EXPECT(filled(block, 2 * PIECE, 3));
	CHECK(cuMemFree_v2(block));
}

/* Nobody answers a park's request for host memory: the program goes on meanwhile, and may end. */
static void is_not_answered(void)
{
	uint64_t began;
	CUdeviceptr more;

	make();
	daemon_silent(true);
	daemon_park(true);
	while (!daemon_unheard())
		usleep(100);
	began = client_ns();
	CHECK(cuMemAlloc_v2(&more, 3 * MIB));
	CHECK(client_mix(stream, more, 1, 1, 0));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemFree_v2(more));
	CHECK(cuDevicePrimaryCtxRelease_v2(0));
	/* a request is given up after a minute */
	EXPECT(client_ns() - began < 30000000000ULL);
}

/* Lent memory that the driver maps at neither place: the program waits for it, and finds it. */
static void is_mapped_nowhere(void)
{
	uint32_t word;

	for (unsigned int round = 0; round < 3; round++) {
		lent();
		others_have(0);
		fakecuda_refuse(400);
		for (unsigned int n = 0; n < 200 && state() != DS_PARK_HOME; n++) {
			CHECK(client_mix(stream, block + PIECE + 4 * n, 1, 1, 1));
			CHECK(client_mix(stream, block, 1, 1, 1));
			CHECK(cuStreamSynchronize(stream));
			usleep(1000);
		}
		fakecuda_refuse(0);
		CHECK(cuMemcpyDtoH_v2(&word, block + PIECE, sizeof(word)));
		EXPECT(word == (uint32_t)(PIECE / 4) * 2654435761U + 4);
		CHECK(cuMemFree_v2(block));
		CHECK(cuStreamDestroy_v2(stream));
	}
}

/* Host memory is given back while another GPU has work that waits for a call of the program's: the call waits for nothing. */
static void gives_back_beside_work(void)
{
	CUstream waits, writes;
	CUcontext other;
	void *word;

	make();
	CHECK(cuDevicePrimaryCtxRetain(&other, 1));
	CHECK(cuCtxSetCurrent(other));
	CHECK(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemHostAlloc(&word, 4096, 0));
	*(uint32_t *)word = 0;
	EXPECT(park() == DS_PARK_OK);
	daemon_park(false);
	EXPECT(daemon_park_wait() == DS_PARK_OK);
	CHECK(cuStreamWaitValue32_v2(waits, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
	daemon_policy()->returns++;
	EXPECT(park() == DS_PARK_BUSY);
	CHECK(cuStreamWriteValue32_v2(writes, (CUdeviceptr)word, 1, 0));
	CHECK(cuStreamSynchronize(waits));
	while (__atomic_load_n(&daemon_counters()->returned, __ATOMIC_ACQUIRE) != daemon_policy()->returns)
		usleep(200);
	CHECK(cuCtxSetCurrent(context));
	EXPECT(filled(block, 2 * PIECE, 3));
}

/* An event that another process may have is told as memory is. */
static void named_event(void)
{
	CUipcEventHandle handle;
	CUevent event;

	CHECK(cuEventCreate(&event, 2 | 4));
	EXPECT(!daemon_counters()->shares);
	cuIpcGetEventHandle(&handle, event);
	EXPECT(daemon_counters()->shares);
}

int main(int count, char **words)
{
	static const struct parked_case cases[] = {
		{"captures", captures},
		{"breaks", breaks_while_lent},
		{"breaks-away", breaks_while_away},
		{"lives", breaks_and_lives_on},
		{"context", another_context},
		{"outlives", outlives_its_context},
		{"room", asks_for_room},
		{"nothing", takes_nothing},
		{"peers", peers_meanwhile},
		{"handles", pays_for_handles},
		{"both", ends_at_both},
		{"event", named_event},
		{"gives-back", gives_back_beside_work},
		{"host", asks_about_the_host},
		{"cancels", cancels},
		{"unanswered", is_not_answered},
		{"nowhere", is_mapped_nowhere},
	};

	return parked_main(count > 1 ? words[1] : "", cases, sizeof(cases) / sizeof(cases[0]));
}
