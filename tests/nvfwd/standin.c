// SPDX-License-Identifier: Apache-2.0
/*
 * As much of libcuda as `spin` and `tricks` ask for, on the simulated GPU: so that the claims, and what judges them, are tried where no GPU
 * is. A round of a kernel's work takes 5 ns. Built as libcuda.so.1 by tests/vm/test_claims.py.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "../nvclient/nvclient.h"

#define ROUND_NS 5
#define LOOK_US 500
#define REFUSED 2	/* CUDA_ERROR_OUT_OF_MEMORY */
#define ROUNDS 0	/* of a kernel's parameters */

static struct nv_program program;
static struct nv_channel channel;
static volatile u32 *counter;
static u64 recorded[8];
static u32 events;

/* The simulated GPU cannot write to memory of a program: what has run is written here. */
static void *look(void *nothing)
{
	(void)nothing;
	for (;;) {
		*counter = (u32)nv_finished(&channel);
		usleep(LOOK_US);
	}
	return NULL;
}

int cuInit(unsigned int flags)
{
	(void)flags;
	nv_must_program(&program, 0, NULL);
	nv_must_channel(&channel, &program);
	return nv_schedule(&program, program.tsg, true) ? 999 : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
	(void)flags;
	(void)device;
	*context = &program;
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	return context != &program;
}

int cuMemHostAlloc(void **at, size_t bytes, unsigned int flags)
{
	pthread_t thread;

	(void)flags;
	*at = calloc(1, bytes);
	if (!counter) {
		counter = *at;
		pthread_create(&thread, NULL, look, NULL);
	}
	return 0;
}

int cuMemAlloc_v2(u64 *at, size_t bytes)
{
	struct nv_memory_request ask = { .class = 0x40, .size = bytes };
	u32 handle = 0;

	*at = 0;
	return nv_memory(&program.nv, program.client, program.device, &handle, &ask, at) ? REFUSED : 0;
}

int cuModuleLoadData(void **module, const void *text)
{
	*module = (void *)(uintptr_t)text;
	return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	(void)name;
	*function = module;
	return 0;
}

int cuStreamCreate(void **stream, unsigned int flags)
{
	(void)flags;
	*stream = &channel;
	return 0;
}

int cuEventCreate(void **event, unsigned int flags)
{
	(void)flags;
	*event = &recorded[events++];
	return 0;
}

int cuLaunchKernel(void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int i, unsigned int j, unsigned int k,
		   unsigned int shared, void *stream, void **parameters, void **extra)
{
	struct nv_kernel kernel = { .ns = *(u64 *)parameters[ROUNDS] * ROUND_NS, .sms = 132 };

	(void)function, (void)x, (void)y, (void)z, (void)i, (void)j, (void)k, (void)shared, (void)stream, (void)extra;
	while (!nv_room(&channel))
		usleep(LOOK_US);
	return !nv_submit(&channel, &kernel);
}

int cuEventRecord(void *event, void *stream)
{
	(void)stream;
	*(u64 *)event = channel.submitted;
	return 0;
}

int cuEventSynchronize(void *event)
{
	while (!nv_wait(&channel, *(u64 *)event, 1))
		;
	return 0;
}

int cuStreamSynchronize(void *stream)
{
	(void)stream;
	while (!nv_wait(&channel, channel.submitted, 1))
		;
	while (*counter != (u32)channel.submitted)
		usleep(LOOK_US);
	return 0;
}
