/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads do all that programs do with memory, while the daemon parks and fetches in all its ways, host memory is refused or asked back, and others fill the
 * GPU: `storm SEED THREADS STEPS`, on FAKECUDA_DEVICES GPUs; FAKECUDA_TAKEN names a file. Each thread has a model of its own blocks. With STORM_SPOIL one byte of it is wrong.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/wait.h>

#include "parked.h"

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);
CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);

enum { MOST = 5, HANDLES = 3 };
enum kind { PLAIN, PITCHED, POOLED, OWN };

struct block {
	enum kind kind;
	CUdeviceptr at; /* 0: none */
	size_t words;
	uint32_t *model;
	/* of OWN */
	CUmemGenericAllocationHandle handles[HANDLES];
	unsigned int count;
	size_t each, reserved;
	/* launched over and over: the first words times 3 plus 1 */
	CUgraphExec exec;
};

struct worker {
	pthread_t thread;
	CUcontext context;
	CUdevice device;
	CUfunction mix;
	unsigned int seed;
	CUstream streams[2];
	CUevent event;
	struct block blocks[MOST];
};

static _Atomic(unsigned int) working;
static unsigned int steps;

static unsigned int dice(struct worker *self, unsigned int sides)
{
	return (unsigned int)rand_r(&self->seed) % sides;
}

static CUstream stream_of(struct worker *self)
{
	return self->streams[dice(self, 2)];
}

/* One order for the model. */
static void settle(struct worker *self)
{
	for (unsigned int n = 0; n < 2; n++)
		CHECK(cuStreamSynchronize(self->streams[n]));
}

/* A full GPU is the program's business: others have it for a while. */
#define PATIENTLY(call)                                                     \
	do {                                                                \
		CUresult patient;                                           \
                                                                            \
		while ((patient = (call)) == CUDA_ERROR_OUT_OF_MEMORY)      \
			usleep(1000);                                       \
		CHECK(patient);                                             \
	} while (0)

static void own_map(struct worker *self, struct block *block)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, self->device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	block->reserved = block->count * block->each;
	CHECK(cuMemAddressReserve(&block->at, block->reserved, 0, 0, 0));
	for (unsigned int n = 0; n < block->count; n++)
		CHECK(cuMemMap(block->at + n * block->each, block->each, 0, block->handles[n], 0));
	CHECK(cuMemSetAccess(block->at, block->reserved, &access, 1));
}

static void own_unmap(struct block *block)
{
	for (unsigned int n = 0; n < block->count; n++)
		CHECK(cuMemUnmap(block->at + n * block->each, block->each));
	CHECK(cuMemAddressFree(block->at, block->reserved));
}

static void own_make(struct worker *self, struct block *block)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, self->device}};

	block->count = 1 + dice(self, HANDLES);
	block->each = (1 + dice(self, 3)) * 2 * MIB;
	for (unsigned int n = 0; n < block->count; n++)
		PATIENTLY(cuMemCreate(&block->handles[n], block->each, &prop, 0));
	own_map(self, block);
	block->words = block->count * block->each / 4;
}

static void make(struct worker *self, struct block *block)
{
	uint32_t seed = (uint32_t)rand_r(&self->seed);
	size_t pitch;

	memset(block, 0, sizeof(*block));
	block->kind = dice(self, 4);
	block->words = dice(self, 8) ? 64 + dice(self, 700 * KIB) : 8 * KIB * KIB + 64 * KIB;
	switch (block->kind) {
	case PLAIN:
		PATIENTLY(cuMemAlloc_v2(&block->at, block->words * 4));
		break;
	case PITCHED:
		PATIENTLY(cuMemAllocPitch_v2(&block->at, &pitch, 4 * KIB, block->words / KIB + 1, 4));
		EXPECT(pitch == 4 * KIB);
		block->words = (block->words / KIB + 1) * KIB;
		break;
	case POOLED:
		PATIENTLY(cuMemAllocAsync(&block->at, block->words * 4, self->streams[0]));
		break;
	case OWN:
		own_make(self, block);
	}
	block->model = malloc(block->words * 4);
	for (size_t n = 0; n < block->words; n++)
		block->model[n] = seed ^ (uint32_t)(n * 2654435761U);
	settle(self);
	CHECK(cuMemcpyHtoD_v2(block->at, block->model, block->words * 4));
}

static void same(struct worker *self, struct block *block, const char *when)
{
	uint32_t *got = malloc(block->words * 4);

	settle(self);
	CHECK(cuMemcpyDtoH_v2(got, block->at, block->words * 4));
	for (size_t n = 0; n < block->words; n++)
		if (got[n] != block->model[n]) {
			fprintf(stderr, "%s: kind %d, word %zu of %zu: %u is not what was written: %u\n", when, block->kind, n,
				block->words, got[n], block->model[n]);
			exit(1);
		}
	free(got);
}

static void end(struct worker *self, struct block *block)
{
	same(self, block, "end");
	if (block->exec)
		CHECK(cuGraphExecDestroy(block->exec));
	if (block->kind == POOLED || (block->kind == PLAIN && dice(self, 4) == 0)) {
		CHECK(cuMemFreeAsync(block->at, stream_of(self)));
	} else if (block->kind == OWN) {
		bool first = dice(self, 2);

		for (unsigned int n = 0; first && n < block->count; n++)
			CHECK(cuMemRelease(block->handles[n]));
		own_unmap(block);
		for (unsigned int n = 0; !first && n < block->count; n++)
			CHECK(cuMemRelease(block->handles[n]));
	} else {
		CHECK(cuMemFree_v2(block->at));
	}
	free(block->model);
	block->at = 0;
}

/* The same memory at another address. */
static void moves(struct worker *self, struct block *block)
{
	if (block->kind != OWN || block->exec)
		return;
	settle(self);
	own_unmap(block);
	own_map(self, block);
}

static void asks(struct block *block, size_t word)
{
	unsigned int type;
	CUdeviceptr base;
	size_t size;

	CHECK(cuPointerGetAttribute(&type, 2, block->at + 4 * word));
	EXPECT(type == 2);
	CHECK(cuMemGetAddressRange_v2(&base, &size, block->at + 4 * word));
	if (block->kind == PLAIN)
		EXPECT(base == block->at && size == block->words * 4);
	if (block->kind == OWN) {
		CUmemGenericAllocationHandle again;

		CHECK(cuMemRetainAllocationHandle(&again, (void *)(block->at + 4 * word)));
		EXPECT(again == block->handles[4 * word / block->each]);
		CHECK(cuMemRelease(again));
	}
}

static void mixed(struct block *block, size_t from, uint32_t a, uint32_t b)
{
	for (size_t n = from; n < from + 512 && n < block->words; n++)
		block->model[n] = block->model[n] * a + b;
}

static CUresult mix_now(struct worker *self, CUstream stream, struct block *block, size_t from, uint32_t a, uint32_t b)
{
	unsigned int count = block->words - from < 512 ? (unsigned int)(block->words - from) : 512;
	CUdeviceptr to = block->at + 4 * from;
	void *params[] = {&to, &count, &a, &b};

	return cuLaunchKernel(self->mix, 8, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

/* A graph that is kept, and launched again after parks; its capture may allocate. */
static void graph(struct worker *self, struct block *block)
{
	CUstream stream = self->streams[1];
	CUdeviceptr more = 0;
	CUgraph graph;

	settle(self);
	if (!block->exec) {
		CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		if (dice(self, 2))
			PATIENTLY(cuMemAlloc_v2(&more, 2 * MIB));
		CHECK(mix_now(self, stream, block, 0, 3, 1));
		CHECK(cuStreamEndCapture(stream, &graph));
		CHECK(cuGraphInstantiateWithFlags(&block->exec, graph, 0));
		CHECK(cuGraphDestroy(graph));
		if (more)
			CHECK(cuMemFree_v2(more));
	}
	CHECK(cuGraphLaunch(block->exec, stream));
	mixed(block, 0, 3, 1);
}

static void copies(struct worker *self, struct block *block, struct block *other, size_t from)
{
	size_t count = block->words - from;

	if (!other->at || other == block)
		return;
	count = count < other->words ? count : other->words;
	settle(self);
	CHECK(cuMemcpyDtoDAsync_v2(other->at, block->at + 4 * from, 4 * count, stream_of(self)));
	memcpy(other->model, block->model + from, 4 * count);
}

/* In the order of an event, over two streams. */
static void chain(struct worker *self, struct block *block, size_t from)
{
	settle(self);
	CHECK(mix_now(self, self->streams[0], block, from, 7, 2));
	CHECK(cuEventRecord(self->event, self->streams[0]));
	CHECK(cuStreamWaitEvent(self->streams[1], self->event, 0));
	CHECK(mix_now(self, self->streams[1], block, from, 5, 3));
	mixed(block, from, 7, 2);
	mixed(block, from, 5, 3);
}

static void sets(struct worker *self, struct block *block, size_t from)
{
	size_t left = block->words - from, count = left < 3000 ? left : 3000;
	uint32_t value = (uint32_t)rand_r(&self->seed);

	settle(self);
	if (dice(self, 2))
		CHECK(cuMemsetD32Async(block->at + 4 * from, value, count, stream_of(self)));
	else
		CHECK(cuMemsetD32_v2(block->at + 4 * from, value, count));
	/* which returns before it is done */
	CHECK(cuStreamSynchronize(NULL));
	for (size_t n = from; n < from + count; n++)
		block->model[n] = value;
}

static void renew(struct worker *self)
{
	unsigned int n = dice(self, 2);

	CHECK(cuStreamDestroy_v2(self->streams[n]));
	/* captures are of the second one: a copy without a stream breaks those of blocking streams */
	CHECK(cuStreamCreate(&self->streams[n], n || dice(self, 2) ? CU_STREAM_NON_BLOCKING : 0));
}

/* A child has nothing of it, and takes nothing away. */
static void forks(struct worker *self)
{
	bool becomes = dice(self, 2);
	pid_t child = fork();
	int status;

	if (!child && becomes)
		execl("/bin/true", "true", NULL);
	if (!child)
		_exit(cuMemAlloc_v2(&(CUdeviceptr){0}, 2 * MIB) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	EXPECT(waitpid(child, &status, 0) == child && !status);
}

static void step(struct worker *self)
{
	struct block *block = &self->blocks[dice(self, MOST)];
	size_t from;

	if (!block->at) {
		make(self, block);
		return;
	}
	from = dice(self, (unsigned int)block->words);
	switch (dice(self, 13)) {
	case 0:
	case 1:
		end(self, block);
		break;
	case 2:
		same(self, block, "step");
		break;
	case 3:
		moves(self, block);
		break;
	case 4:
		asks(block, from);
		break;
	case 5:
	case 6:
		graph(self, block);
		break;
	case 7:
		copies(self, block, &self->blocks[dice(self, MOST)], from);
		break;
	case 8:
		chain(self, block, from);
		break;
	case 9:
		sets(self, block, from);
		break;
	case 10:
		settle(self);
		renew(self);
		break;
	case 11:
		forks(self);
		break;
	default:
		settle(self);
		CHECK(mix_now(self, stream_of(self), block, from, 9, 4));
		mixed(block, from, 9, 4);
	}
}

static void *works(void *data)
{
	struct worker *self = data;

	CUmodule module;

	CHECK(cuDevicePrimaryCtxRetain(&self->context, self->device));
	CHECK(cuCtxSetCurrent(self->context));
	CHECK(cuModuleLoadData(&module, client_image));
	CHECK(cuModuleGetFunction(&self->mix, module, "mix"));
	CHECK(cuEventCreate(&self->event, CU_EVENT_DISABLE_TIMING));
	for (unsigned int n = 0; n < 2; n++)
		CHECK(cuStreamCreate(&self->streams[n], CU_STREAM_NON_BLOCKING));
	for (unsigned int n = 0; n < steps; n++) {
		step(self);
		usleep(dice(self, 3000));
	}
	for (unsigned int n = 0; n < MOST; n++) {
		if (!self->blocks[n].at)
			continue;
		if (getenv("STORM_SPOIL"))
			self->blocks[n].model[self->blocks[n].words / 2] ^= 1;
		end(self, &self->blocks[n]);
	}
	atomic_fetch_sub(&working, 1);
	return NULL;
}

/* ---- the other side ---- */

static void weather(unsigned int *seed)
{
	struct ds_policy *policy = daemon_policy();

	policy->flags = (unsigned int)rand_r(seed) & (DS_FLAG_LAZY | DS_FLAG_WHOLE | DS_FLAG_LEAVES | DS_FLAG_COMES);
	daemon_arena(rand_r(seed) % 3 ? UINT64_MAX : (uint64_t)(rand_r(seed) % 40) * 2 * MIB);
	others_have(0);
	if (rand_r(seed) % 2)
		others_have(left() - (size_t)(rand_r(seed) % 20) * 2 * MIB);
	if (rand_r(seed) % 8 == 0)
		policy->returns++;
	daemon_tier((unsigned int)rand_r(seed) % 4);
	policy->epoch += 2;
}

int main(int count, char **arguments)
{
	unsigned int seed = count == 4 ? (unsigned int)atoi(arguments[1]) : 1;
	unsigned int threads = count == 4 ? (unsigned int)atoi(arguments[2]) : 1, asked = 0;
	unsigned int gpus = getenv("FAKECUDA_DEVICES") ? (unsigned int)atoi(getenv("FAKECUDA_DEVICES")) : 1;
	struct worker workers[8] = {0};

	steps = count == 4 ? (unsigned int)atoi(arguments[3]) : 1;
	client_start(0);
	atomic_store(&working, threads);
	for (unsigned int n = 0; n < threads; n++) {
		workers[n].seed = seed * 97 + n;
		workers[n].device = (CUdevice)(n % gpus);
		pthread_create(&workers[n].thread, NULL, works, &workers[n]);
	}
	while (atomic_load(&working)) {
		weather(&seed);
		daemon_park(rand_r(&seed) % 3 != 0);
		for (unsigned int n = 0; n < 200 && daemon_counters()->park_ack != daemon_policy()->park && atomic_load(&working); n++)
			usleep(500);
		/* it may wait for room: then there is some */
		others_have(0);
		asked++;
		/* it may end at any time */
		if (getenv("STORM_ASKED") && asked == (unsigned int)atoi(getenv("STORM_ASKED")))
			exit(0);
		usleep((unsigned int)rand_r(&seed) % 8000);
	}
	for (unsigned int n = 0; n < threads; n++)
		pthread_join(workers[n].thread, NULL);
	/* all GPUs have one page here */
	EXPECT(gpus > 1 || (daemon_counters()->parkable_bytes == 0 && daemon_counters()->memory_used == 0));
	printf("asked %u parks %u wakes %u\n", asked, daemon_counters()->parks, daemon_counters()->wakes);
	return 0;
}
