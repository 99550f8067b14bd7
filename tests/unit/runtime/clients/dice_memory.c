/* SPDX-License-Identifier: Apache-2.0 */
/* Of `dice`: memory of all kinds comes and goes. */
#include "dice.h"

void dice_settle(struct worker *self)
{
	if (self->last)
		CALL(cuStreamSynchronize, self->last);
	self->last = NULL;
}

/* The next work's stream; it follows what was before. */
CUstream dice_stream(struct worker *self)
{
	CUstream choice[] = {here(self)->streams[0], here(self)->streams[1], CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
	CUstream stream = choice[dice(self, 4)];

	if (self->last && self->last != stream && dice(self, 2)) {
		CALL(cuEventRecord, here(self)->event, self->last);
		CALL(cuStreamWaitEvent, stream, here(self)->event, 0);
	} else if (self->last != stream) {
		dice_settle(self);
	}
	self->last = stream;
	return stream;
}

/* Work and questions are of this GPU from now on. */
void dice_enter(struct worker *self, unsigned int gpu)
{
	extern const char client_image[];
	struct place *place = &self->places[gpu];

	if (self->gpu != gpu)
		dice_settle(self);
	self->gpu = gpu;
	if (place->context) {
		CALL(cuCtxSetCurrent, place->context);
		return;
	}
	PATIENT(cuDevicePrimaryCtxRetain, &place->context, (CUdevice)gpu);
	CALL(cuCtxSetCurrent, place->context);
	CALL(cuModuleLoadData, &place->module, client_image);
	CALL(cuModuleGetFunction, &place->mix, place->module, "mix");
	CALL(cuStreamCreate, &place->streams[0], dice(self, 2) ? CU_STREAM_NON_BLOCKING : 0);
	CALL(cuStreamCreate, &place->streams[1], CU_STREAM_NON_BLOCKING);
	CALL(cuEventCreate, &place->event, dice(self, 2) ? CU_EVENT_DISABLE_TIMING : 0);
}

static size_t size_of(struct worker *self)
{
	static const size_t edges[] = {4, 4 * KIB, MIB - 4, MIB, MIB + 4, 2 * MIB - 4, 2 * MIB, 2 * MIB + 4, 32 * MIB, 33 * MIB + 8};

	return dice(self, 3) ? 4 * (size_t)(1 + dice(self, 900 * KIB)) : edges[dice(self, 10)];
}

static void own_map(struct worker *self, struct block *block)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)block->gpu}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	unsigned long long flags = 9;

	PATIENT(cuMemAddressReserve, &block->at, block->size, 0, 0, 0);
	for (unsigned int n = 0; n < block->count; n++)
		PATIENT(cuMemMap, block->at + n * block->each, block->each, 0, block->handles[n], 0);
	if (dice(self, 2))
		PATIENT(cuMemMap, block->at, block->each, 0, block->handles[0], 0);
	PATIENT(cuMemSetAccess, block->at, block->size, &access, 1);
	CALL(cuMemGetAccess, &flags, &access.location, block->at + block->size - 4);
	say(self, " access %llu", flags);
}

static void own_unmap(struct worker *self, struct block *block)
{
	CALL(cuMemAddressFree, block->at, block->size);
	for (unsigned int n = 0; n < block->count; n++)
		CALL(cuMemUnmap, block->at + n * block->each, block->each);
	CALL(cuMemUnmap, block->at, block->each);
	CALL(cuMemAddressFree, block->at, block->size);
}

static void own_make(struct worker *self, struct block *block)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = dice(self, 2) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)block->gpu}};

	block->count = 1 + dice(self, HANDLES);
	block->each = (1 + dice(self, 3)) * 2 * MIB;
	block->size = block->count * block->each;
	CALL(cuMemCreate, &block->handles[0], block->each + 4, &prop, 0);
	for (unsigned int n = 0; n < block->count; n++)
		PATIENT(cuMemCreate, &block->handles[n], block->each, &prop, 0);
	own_map(self, block);
}

static void pool_make(struct worker *self, struct block *block)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)block->gpu}};
	cuuint64_t keep = dice(self, 2) ? UINT64_MAX : 0, used = 0;
	CUstream stream = dice_stream(self);

	CALL(cuMemPoolCreate, &block->pool, &props);
	CALL(cuMemPoolSetAttribute, block->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
	PATIENT(cuMemAllocFromPoolAsync, &block->at, block->size, block->pool, stream);
	CALL(cuMemPoolTrimTo, block->pool, 0);
	CALL(cuMemPoolGetAttribute, block->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	say(self, " used %lu", (unsigned long)used);
}

void dice_make(struct worker *self, struct block *block)
{
	size_t pitch = 0, width;
	void *host = NULL;
	CUstream stream;

	memset(block, 0, sizeof(*block));
	block->kind = 1 + dice(self, KINDS - 1);
	block->gpu = self->gpu;
	block->size = block->asked = size_of(self);
	switch (block->kind) {
	case PLAIN:
		PATIENT(cuMemAlloc_v2, &block->at, block->size);
		break;
	case PITCHED:
		width = 4 * (1 + dice(self, 2000));
		PATIENT(cuMemAllocPitch_v2, &block->at, &pitch, width, block->size / width + 1, 4);
		block->size = block->asked = pitch * (block->size / width + 1);
		say(self, " pitch %zu", pitch);
		break;
	case STREAMED:
		stream = dice_stream(self);
		PATIENT(cuMemAllocAsync, &block->at, block->size, stream);
		break;
	case POOLED:
		pool_make(self, block);
		break;
	case OWN:
		own_make(self, block);
		block->asked = block->each;
		break;
	case MANAGED:
		PATIENT(cuMemAllocManaged, &block->at, block->size, CU_MEM_ATTACH_GLOBAL);
		break;
	case PINNED:
		CALL(cuMemHostAlloc, &host, block->size, 0);
		CALL(cuMemHostGetDevicePointer_v2, &block->at, host, 0);
		break;
	default:
		block->size = block->asked = (block->size + 4095) & ~4095UL;
		host = aligned_alloc(4096, block->size);
		PATIENT(cuMemHostRegister_v2, host, block->size, 0);
		PATIENT(cuMemHostRegister_v2, host, block->size, 0);
		block->at = (CUdeviceptr)host;
	}
	CALL(cuMemsetD8Async, block->at, (unsigned char)dice(self, 256), block->size, dice_stream(self));
}

static void own_end(struct worker *self, struct block *block)
{
	bool first = dice(self, 2);
	int fd = -1;

	for (unsigned int n = 0; first && n < block->count; n++)
		CALL(cuMemRelease, block->handles[n]);
	/* it lives by its mapping */
	if (first) {
		CALL(cuMemRetainAllocationHandle, &block->handles[0], (void *)(block->at + 4));
		if (dice_shares() &&
		    CALL(cuMemExportToShareableHandle, &fd, block->handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS)
			close(fd);
		CALL(cuMemRelease, block->handles[0]);
	}
	own_unmap(self, block);
	for (unsigned int n = 0; !first && n < block->count; n++)
		CALL(cuMemRelease, block->handles[n]);
}

/* Frees that are none come first. */
void dice_end(struct worker *self, struct block *block)
{
	dice_settle(self);
	if (block->exec)
		CALL(cuGraphExecDestroy, block->exec);
	if (block->size > 4)
		CALL(cuMemFree_v2, block->at + 4);
	if (block->size > 4 && dice(self, 2))
		CALL(cuMemFreeAsync, block->at + block->size - 4, here(self)->streams[0]);
	switch (block->kind) {
	case PINNED:
		CALL(cuMemFree_v2, block->at);
		CALL(cuMemFreeHost, (void *)block->at);
		break;
	case REGISTERED:
		CALL(cuMemFreeHost, (void *)block->at);
		CALL(cuMemHostUnregister, (void *)block->at);
		CALL(cuMemHostUnregister, (void *)block->at);
		free((void *)block->at);
		break;
	case OWN:
		CALL(cuMemFree_v2, block->at);
		own_end(self, block);
		break;
	default:
		CALL(cuMemHostUnregister, (void *)block->at);
		CALL(cuMemFreeHost, (void *)block->at);
		if (block->kind != MANAGED && dice(self, 2)) {
			CUstream stream = dice_stream(self);

			CALL(cuMemFreeAsync, block->at, stream);
			dice_settle(self);
		} else {
			CALL(cuMemFree_v2, block->at);
		}
	}
	if (block->pool) {
		cuuint64_t used = 9;

		CALL(cuMemPoolGetAttribute, block->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
		say(self, " used %lu", (unsigned long)used);
		CALL(cuMemPoolDestroy, block->pool);
	}
	block->kind = NONE;
}
