/* SPDX-License-Identifier: Apache-2.0 */
/* Of `dice`: what is done with memory. */
#include <sys/wait.h>

#include "dice.h"

static struct block *other(struct worker *self, const struct block *block)
{
	struct block *choice = &self->blocks[dice(self, BLOCKS)];

	return choice != block && choice->kind && choice->gpu == self->gpu ? choice : NULL;
}

static void digest(struct worker *self, const void *data, size_t size)
{
	const unsigned char *bytes = data;
	uint64_t sum = 14695981039346656037ULL;

	for (size_t n = 0; n < size; n++)
		sum = (sum ^ bytes[n]) * 1099511628211ULL;
	say(self, " [%zu %016lx]", size, (unsigned long)sum);
}

/* A part that lies in the block: *at is in it, *size at least 4. */
static void part(struct worker *self, const struct block *block, size_t most, CUdeviceptr *at, size_t *size)
{
	size_t from = 4 * (size_t)dice(self, (unsigned int)(block->size / 4));
	size_t left = block->size - from;

	*at = block->at + from;
	*size = 4 * (1 + (size_t)dice(self, (unsigned int)((left < most ? left : most) / 4)));
}

static void reads(struct worker *self, struct block *block)
{
	size_t size;
	CUdeviceptr at;
	void *got;

	part(self, block, dice(self, 4) ? MIB : block->size, &at, &size);
	got = malloc(size);
	if (dice(self, 2)) {
		dice_settle(self);
		CALL(cuMemcpyDtoH_v2, got, at, size);
	} else {
		CALL(cuMemcpyDtoHAsync_v2, got, at, size, dice_stream(self));
		dice_settle(self);
	}
	digest(self, got, size);
	free(got);
}

static void *noise(struct worker *self, size_t size)
{
	uint32_t *words = malloc(size), seed = (uint32_t)dice(self, 1u << 30);

	for (size_t n = 0; n < size / 4; n++)
		words[n] = seed ^ (uint32_t)(n * 2654435761U);
	return words;
}

static void writes(struct worker *self, struct block *block)
{
	size_t size;
	CUdeviceptr at;
	void *data;

	part(self, block, MIB, &at, &size);
	switch (dice(self, 6)) {
	case 0:
		CALL(cuMemsetD8Async, at + 1, (unsigned char)dice(self, 256), size - 1, dice_stream(self));
		break;
	case 1:
		CALL(cuMemsetD16Async, at + 2, (unsigned short)dice(self, 65536), size / 2 - 1, dice_stream(self));
		break;
	case 2:
		CALL(cuMemsetD32Async, at, dice(self, 1u << 30), size / 4, dice_stream(self));
		break;
	case 3:
		CALL(cuMemsetD2D32Async, at, 4 * ((size + 7) / 8), dice(self, 1u << 30), 1, size > 8 ? 2 : 1, dice_stream(self));
		break;
	case 4:
		dice_settle(self);
		CALL(cuMemsetD8Async_ptsz, at, (unsigned char)dice(self, 256), size, NULL);
		self->last = CU_STREAM_PER_THREAD;
		break;
	default:
		data = noise(self, size);
		dice_settle(self);
		CALL(cuMemcpyHtoD_v2, at, data, size);
		free(data);
	}
}

static void copies(struct worker *self, struct block *block)
{
	struct block *to = other(self, block);
	CUdeviceptr from, at;
	size_t size, room, sizes[2], which = 0, width;
	CUdeviceptr tos[2], froms[2];

	if (!to)
		return;
	part(self, block, 2 * MIB, &from, &size);
	part(self, to, size, &at, &room);
	size = room;
	width = size >= 64 ? size / 16 / 4 * 4 : size;
	switch (dice(self, 5)) {
	case 0:
		CALL(cuMemcpyDtoDAsync_v2, at, from, size, dice_stream(self));
		break;
	case 1:
		CALL(cuMemcpyAsync, at, from, size, dice_stream(self));
		break;
	case 2: {
		CUDA_MEMCPY2D how = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = width, .srcXInBytes = 0,
				     .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at, .dstPitch = width, .WidthInBytes = width / 2};

		how.Height = size / width;
		CALL(cuMemcpy2DAsync_v2, &how, dice_stream(self));
		break;
	}
	case 3: {
		CUDA_MEMCPY3D how = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = from, .srcPitch = width, .srcHeight = 1,
				     .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = at, .dstPitch = width, .dstHeight = 1,
				     .WidthInBytes = width, .Height = 1};

		how.Depth = size / width;
		CALL(cuMemcpy3DAsync_v2, &how, dice_stream(self));
		break;
	}
	default: {
		CUmemcpyAttributes attributes = {.srcAccessOrder = 1};

		sizes[0] = (size / 8 + 1) * 4 < size ? (size / 8 + 1) * 4 : size;
		sizes[1] = size - sizes[0];
		tos[0] = at;
		tos[1] = at + sizes[0];
		froms[0] = from;
		froms[1] = from + sizes[0];
		dice_settle(self);
		CALL(cuMemcpyBatchAsync_v2, tos, froms, sizes, sizes[1] ? 2 : 1, &attributes, &which, 1, here(self)->streams[0]);
		self->last = here(self)->streams[0];
	}
	}
}

static CUresult mix_by(struct worker *self, CUfunction mix, CUstream stream, CUdeviceptr at, uint32_t words)
{
	uint32_t a = 2 * dice(self, 1000) + 1, b = dice(self, 1000);
	void *params[] = {&at, &words, &a, &b};
	CUlaunchConfig config = {.gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
	typeof(&cuLaunchKernel) asked = NULL;
	CUdriverProcAddressQueryResult how;

	switch (dice(self, 3)) {
	case 0:
		return CALL(cuLaunchKernel, mix, 8, 1, 1, 64, 1, 1, 0, stream, params, NULL);
	case 1:
		return CALL(cuLaunchKernelEx, &config, mix, params, NULL);
	default:
		CALL(cuGetProcAddress_v2, "cuLaunchKernel", (void **)&asked, dice(self, 2) ? 13000 : 7000, stream ? dice(self, 3) : 0, &how);
		return asked ? CALL(asked, mix, 8, 1, 1, 64, 1, 1, 0, stream, params, NULL) : CUDA_ERROR_NOT_FOUND;
	}
}

static CUresult mix_on(struct worker *self, CUstream stream, CUdeviceptr at, uint32_t words)
{
	return mix_by(self, here(self)->mix, stream, at, words);
}

static void launches(struct worker *self, struct block *block)
{
	size_t size;
	CUdeviceptr at;

	part(self, block, 2 * KIB, &at, &size);
	mix_on(self, dice_stream(self), at, (uint32_t)(size / 4));
}

/* Kernel, set and copy as nodes or captured, with memory of its own in between; kept, and launched again. */
static void graphs(struct worker *self, struct block *block)
{
	CUstream stream = here(self)->streams[1];
	CUdeviceptr own = 0;
	CUgraph graph;

	dice_settle(self);
	if (!block->exec) {
		bool inner = dice(self, 2), thrice = dice(self, 2);

		CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL + dice(self, 2));
		CALL(cuMemsetD32Async, block->at, dice(self, 1000), 1, stream);
		mix_on(self, stream, block->at, block->size >= 2 * KIB ? 512 : 1);
		if (inner) {
			PATIENT(cuMemAllocAsync, &own, 3 * MIB, stream);
			CALL(cuMemcpyDtoDAsync_v2, own, block->at, 4, stream);
			CALL(cuMemcpyDtoDAsync_v2, block->at, own, 4, stream);
			CALL(cuMemFreeAsync, own, stream);
		}
		CALL(cuStreamEndCapture, stream, &graph);
		CALL(cuGraphInstantiateWithFlags, &block->exec, graph, 0);
		if (thrice)
			CALL(cuGraphUpload, block->exec, stream);
		CALL(cuGraphDestroy, graph);
	}
	PATIENT(cuGraphLaunch, block->exec, stream);
	self->last = stream;
}

static void asks(struct worker *self, struct block *block)
{
	CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
				      CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				      CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
	enum { MOST = sizeof(list) / sizeof(list[0]) };
	uint64_t answers[MOST] = {0};
	void *data[MOST];
	CUdeviceptr at, base = 0;
	size_t size = 0;
	unsigned int on = dice(self, 2);

	part(self, block, MIB, &at, &size);
	for (unsigned int n = 0; n < MOST; n++) {
		uint64_t answer = 0;

		data[n] = &answers[n];
		CALL(cuPointerGetAttribute, &answer, list[n], at);
		if (answer >= block->at && answer <= block->at + block->size)
			say(self, ":+%lu", (unsigned long)(answer - block->at));
		else if (answer == (uint64_t)here(self)->context || answer == (uint64_t)block->pool)
			say(self, ":%s", answer ? "mine" : "0");
		else if (answer < 1UL << 32)
			say(self, ":%lu", (unsigned long)answer);
	}
	CALL(cuPointerGetAttributes, MOST, list, data, at);
	for (unsigned int n = 1; n < 6; n++)
		say(self, ":%ld", n == 2 || n == 3 ? (answers[n] ? (long)(answers[n] - block->at) : -1L) : (long)answers[n]);
	CALL(cuPointerGetAttribute, NULL, list[1], at);
	CALL(cuMemGetAddressRange_v2, &base, &size, at);
	say(self, ":%ld %zu", (long)(base - block->at), size);
	if (block->kind == PLAIN || block->kind == OWN)
		CALL(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->kind == OWN ? block->at : at);
}

/* Calls that are wrong for this memory, or at all. */
static void wrongs(struct worker *self, struct block *block)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)self->gpu};
	CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle = 0;
	unsigned long long flags = 0;
	CUdeviceptr at = 0;
	CUipcMemHandle name;
	size_t pitch;

	switch (dice(self, 9)) {
	case 0:
		CALL(cuMemAlloc_v2, &at, 0);
		CALL(cuMemAlloc_v2, &at, 1UL << 40);
		CALL(cuMemAlloc_v2, &at, SIZE_MAX);
		CALL(cuMemAlloc_v2, &at, SIZE_MAX - MIB);
		CALL(cuMemAlloc_v2, NULL, 2 * MIB);
		break;
	case 1:
		CALL(cuMemAllocPitch_v2, &at, &pitch, 4 * KIB, 1UL << 30, 4);
		CALL(cuMemAllocPitch_v2, &at, &pitch, 4 * KIB, 4 * KIB, 3);
		CALL(cuMemAllocPitch_v2, &at, NULL, 4 * KIB, 4 * KIB, 4);
		CALL(cuMemAllocManaged, &at, MIB, 7);
		break;
	case 2:
		if (block->kind != OWN) {
			CALL(cuMemUnmap, block->at, block->size);
			CALL(cuMemUnmap, block->at, (block->size + 2 * MIB - 1) & ~(2 * MIB - 1));
			CALL(cuMemSetAccess, block->at, (block->size + 2 * MIB - 1) & ~(2 * MIB - 1), &access, 1);
			CALL(cuMemAddressFree, block->at, (block->size + 2 * MIB - 1) & ~(2 * MIB - 1));
			CALL(cuMemRetainAllocationHandle, &handle, (void *)block->at);
		}
		break;
	case 3:
		if (block->kind == OWN)
			CALL(cuMemGetAccess, &flags, &location, block->at + block->size - 8);
		break;
	case 4:
		CALL(cuMemRelease, 0);
		CALL(cuMemMap, block->at & ~(2 * MIB - 1), 2 * MIB, 0, 0, 0);
		CALL(cuMemFreeHost, (void *)8);
		CALL(cuMemFree_v2, 0);
		CALL(cuMemFree_v2, 64);
		break;
	case 5:
		if (dice_shares() && CALL(cuIpcGetMemHandle, &name, block->at) == CUDA_SUCCESS)
			CALL(cuIpcOpenMemHandle_v2, &at, name, 1);
		CALL(cuIpcCloseMemHandle, block->at);
		break;
	case 6: /* of no context */
		dice_settle(self);
		CALL(cuCtxSetCurrent, NULL);
		CALL(cuMemAlloc_v2, &at, 2 * MIB);
		CALL(cuMemAllocPitch_v2, &at, &pitch, 4 * KIB, KIB, 4);
		CALL(cuMemGetAddressRange_v2, &at, &pitch, block->at);
		CALL(cuCtxSynchronize);
		CALL(cuCtxSetCurrent, here(self)->context);
		break;
	case 7: /* in a capture of this thread alone */
		dice_settle(self);
		CALL(cuStreamBeginCapture_v2, here(self)->streams[1], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
		if (block->kind != PINNED)
			CALL(cuMemFree_v2, block->at);
		CALL(cuStreamEndCapture, here(self)->streams[1], &(CUgraph){NULL});
		break;
	default:
		CALL(cuPointerGetAttribute, &at, 9999, block->at);
		CALL(cuPointerSetAttribute, &flags, 2, block->at);
		CALL(cuPointerSetAttribute, NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->at);
		CALL(cuMemGetAddressRange_v2, NULL, NULL, block->at);
	}
}

static void peers(struct worker *self, struct block *block)
{
	unsigned int gpu = (self->gpu + 1) % self->gpus, home = self->gpu;
	struct block *to = NULL;
	CUdeviceptr from, at;
	size_t size, room;

	for (unsigned int n = 0; n < BLOCKS && gpu != home; n++)
		if (self->blocks[n].kind && self->blocks[n].gpu == gpu)
			to = &self->blocks[n];
	if (!to)
		return;
	part(self, block, MIB, &from, &size);
	part(self, to, size, &at, &room);
	if (self->alone && dice(self, 2)) {
		CALL(cuCtxSetCurrent, self->places[home].context);
		if (dice(self, 4))
			PATIENT(cuCtxEnablePeerAccess, self->places[gpu].context, 0);
		else
			CALL(cuCtxDisablePeerAccess, self->places[gpu].context);
	}
	if (dice(self, 2))
		CALL(cuMemcpyPeerAsync, at, self->places[gpu].context, from, self->places[home].context, room, dice_stream(self));
	else
		CALL(cuMemcpyAsync, at, from, room, dice_stream(self));
}

static void contexts(struct worker *self)
{
	CUcontext got = NULL;
	CUdevice device = -1;

	dice_settle(self);
	CALL(cuCtxPushCurrent_v2, here(self)->context);
	CALL(cuCtxGetDevice, &device);
	CALL(cuCtxPopCurrent_v2, &got);
	say(self, " %d %d", device, got == here(self)->context);
	CALL(cuCtxPopCurrent_v2, &got);
	CALL(cuCtxPopCurrent_v2, &got);
	CALL(cuCtxGetCurrent, &got);
	CALL(cuCtxSetCurrent, here(self)->context);
}

static void renews(struct worker *self)
{
	struct place *place = here(self);

	dice_settle(self);
	CALL(cuStreamDestroy_v2, place->streams[0]);
	CALL(cuStreamCreateWithPriority, &place->streams[0], dice(self, 2), -(int)dice(self, 3));
	CALL(cuEventQuery, place->event);
	CALL(cuEventDestroy_v2, place->event);
	CALL(cuEventCreate, &place->event, 0);
}

static void forks(struct worker *self)
{
	bool becomes = dice(self, 2);
	pid_t child = fork();
	int status = 0;

	if (!child && becomes)
		execl("/bin/true", "true", NULL);
	if (!child)
		_exit(cuMemAlloc_v2(&(CUdeviceptr){0}, 2 * MIB) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	waitpid(child, &status, 0);
	say(self, " child %d", status);
}

/* A context of its own, on any GPU, reaches the block. */
static void beside(struct worker *self, struct block *block)
{
	size_t size = block->size < MIB ? block->size : MIB;
	unsigned int gpu = dice(self, self->gpus);
	extern const char client_image[];
	CUcontext other = NULL;
	CUdeviceptr at = 0;
	CUmodule module;
	CUfunction mix;
	void *got;

	dice_settle(self);
	CALL(cuCtxCreate_v2, &other, 0, (CUdevice)gpu);
	PATIENT(cuMemAlloc_v2, &at, size);
	if (dice(self, 2))
		CALL(cuMemcpyPeer, at, other, block->at, here(self)->context, size);
	else
		CALL(cuMemcpyDtoD_v2, at, block->at, size);
	got = malloc(size);
	CALL(cuMemcpyDtoH_v2, got, at, size);
	digest(self, got, size);
	free(got);
	if (gpu != block->gpu && (block->kind == PLAIN || block->kind == PITCHED)) {
		PATIENT(cuCtxEnablePeerAccess, here(self)->context, 0);
		CALL(cuModuleLoadData, &module, client_image);
		CALL(cuModuleGetFunction, &mix, module, "mix");
		mix_by(self, mix, CU_STREAM_LEGACY, block->at, 1);
		CALL(cuCtxSynchronize);
	}
	CALL(cuMemFree_v2, at);
	CALL(cuCtxDestroy_v2, other);
	CALL(cuCtxSetCurrent, here(self)->context);
}

void dice_step(struct worker *self)
{
	static void (*const deeds[])(struct worker *, struct block *) = {
		reads, reads, writes, writes, copies, copies, launches, launches, graphs, asks, wrongs, peers, dice_end};
	struct block *block = &self->blocks[dice(self, BLOCKS)];
	unsigned int what;

	say(self, "\n%u.%u gpu %u block %ld %d:", self->number, self->called++, self->gpu, (long)(block - self->blocks), (int)block->kind);
	if (block->kind && block->gpu != self->gpu)
		dice_enter(self, block->gpu);
	if (!block->kind) {
		dice_enter(self, dice(self, self->gpus));
		dice_make(self, block);
		return;
	}
	if (getenv("DICE_MORE") && dice(self, 2)) {
		dice_more(self, block);
		return;
	}
	what = dice(self, 60);
	if (what == 0)
		forks(self);
	else if (what < 3)
		renews(self);
	else if (what < 5)
		contexts(self);
	else if (what < 7)
		beside(self, block);
	else
		deeds[dice(self, sizeof(deeds) / sizeof(deeds[0]))](self, block);
}
