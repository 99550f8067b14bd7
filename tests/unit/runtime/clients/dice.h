/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `dice` share: a worker is a thread of the program with objects of its own, and a record of what each of its calls answered. */
#ifndef DICE_H
#define DICE_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "calls.h"
#include "daemon.h"
#include "fakecuda.h"

#define MIB (1UL << 20)
#define KIB (1UL << 10)

CUresult cuEventDestroy_v2(CUevent event);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t size, CUmemoryPool pool, CUstream stream);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *how, CUstream stream);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *how, CUstream stream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes, size_t *which,
			       size_t attributes_count, CUstream stream);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size, CUstream stream);
CUresult cuMemsetD16Async(CUdeviceptr at, unsigned short value, size_t count, CUstream stream);
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr at, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD2D32Async(CUdeviceptr at, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr at);
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr at);
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr at);

enum { BLOCKS = 6, GPUS = 4, HANDLES = 3 };
enum kind { NONE, PLAIN, PITCHED, STREAMED, POOLED, OWN, MANAGED, PINNED, REGISTERED, KINDS };

struct block {
	enum kind kind;
	unsigned int gpu;
	CUdeviceptr at;
	size_t size, asked; /* asked: what the driver was asked for */
	CUmemoryPool pool;
	CUmemGenericAllocationHandle handles[HANDLES];
	unsigned int count;
	size_t each;
	CUgraphExec exec;
};

/* A worker's objects on one GPU; context NULL: none yet. */
struct place {
	CUcontext context;
	CUmodule module;
	CUfunction mix;
	CUstream streams[2];
	CUevent event;
};

struct worker {
	pthread_t thread;
	unsigned int number, seed, gpus, gpu, steps, called;
	bool alone; /* no other thread's calls change what contexts are */
	struct place places[GPUS];
	struct block blocks[BLOCKS];
	CUstream last; /* where the last work is; all else is done */
	char *record;
	size_t length, room;
};

static inline unsigned int dice(struct worker *self, unsigned int sides)
{
	return (unsigned int)rand_r(&self->seed) % sides;
}

__attribute__((format(printf, 2, 3))) static inline void say(struct worker *self, const char *format, ...)
{
	size_t at = self->length;
	va_list list;

	if (self->room - self->length < 512) {
		self->room = self->room ? 2 * self->room : 65536;
		self->record = realloc(self->record, self->room);
	}
	va_start(list, format);
	self->length += (size_t)vsnprintf(self->record + self->length, 512, format, list);
	va_end(list);
	if (getenv("DICE_TELL"))
		fputs(self->record + at, stderr);
}

/* A call, and its answer in the record. */
#define CALL(name, ...)                                                         \
	({                                                                      \
		CUresult call_result = name(__VA_ARGS__);                       \
		say(self, " " #name "=%d", (int)call_result);                   \
		call_result;                                                    \
	})

/* A GPU that others have filled for a while is no answer; for what fits into an empty one. */
#define PATIENT(name, ...)                                                      \
	({                                                                      \
		CUresult call_result;                                           \
		while ((call_result = name(__VA_ARGS__)) == CUDA_ERROR_OUT_OF_MEMORY) \
			usleep(1000);                                           \
		say(self, " " #name "=%d", (int)call_result);                   \
		call_result;                                                    \
	})

static inline struct place *here(struct worker *self)
{
	return &self->places[self->gpu];
}

/* whoever shares memory is not checkpointed by the driver */
static inline bool dice_shares(void)
{
	return !getenv("FAKECUDA_CHECKPOINTS");
}

void dice_settle(struct worker *self);
CUstream dice_stream(struct worker *self);
void dice_enter(struct worker *self, unsigned int gpu);
void dice_make(struct worker *self, struct block *block);
void dice_end(struct worker *self, struct block *block);
void dice_step(struct worker *self);
void dice_more(struct worker *self, struct block *block);

#endif
