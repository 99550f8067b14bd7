/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs share: checked driver calls, one context, kernels of the stand-in. They are linked against libcuda as programs are. */
#ifndef CLIENT_H
#define CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "daemon.h"
#include "fakecuda.h"

/* what it wraps */
#include "real.h"

/* what the library does not wrap */
CUresult cuInit(unsigned int flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuMemHostAlloc(void **address, size_t size, unsigned int flags);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamGetPriority(CUstream stream, int *priority);
CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value);
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventQuery(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuGraphDestroy(CUgraph graph);

#define CHECK(call)                                                                                              \
	do {                                                                                                     \
		CUresult check_result = (call);                                                                  \
		if (check_result != CUDA_SUCCESS) {                                                              \
			fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, check_result);         \
			exit(1);                                                                                 \
		}                                                                                                \
	} while (0)

#define EXPECT(condition)                                                                                        \
	do {                                                                                                     \
		if (!(condition)) {                                                                              \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                  \
			exit(1);                                                                                 \
		}                                                                                                \
	} while (0)

extern CUcontext context;
extern CUfunction mix, census, nothing;
extern const char client_image[]; /* of those kernels */

/* daemon, context, kernels; tier is the policy's from the start */
void client_start(unsigned int tier);
/* the kernels again, in the context that is current */
void client_kernels(void);
/* dst = dst * a + b on `count` words */
CUresult client_mix(CUstream stream, CUdeviceptr to, unsigned int count, unsigned int a, unsigned int b);
/* number of different SMs that a grid of 264 blocks ran on, measured in the stream */
unsigned int client_census(CUstream stream, bool per_thread);
/* waits until the streams' tiers can be moved to */
void client_pool(void);
uint64_t client_ns(void);

#endif
