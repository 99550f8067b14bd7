/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"
#include "device.h"
#include "entry.h"
#include "thread.h"

void ds_contexts_changed(void)
{
	if (atomic_fetch_add(&ds_process.contexts, 1) == UINT32_MAX)
		atomic_fetch_add(&ds_process.contexts, 1);
}

void ds_own_begin(struct ds_own *own, struct ds_device *device)
{
	own->pushed = false;
	own->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	real->cuThreadExchangeStreamCaptureMode(&own->mode);
	if (ds_context_current() == device->primary)
		return;
	own->pushed = real->cuCtxPushCurrent_v2(device->primary) == CUDA_SUCCESS;
	ds_context_changed();
}

void ds_own_end(struct ds_own *own)
{
	CUcontext popped;

	if (own->pushed) {
		real->cuCtxPopCurrent_v2(&popped);
		ds_context_changed();
	}
	real->cuThreadExchangeStreamCaptureMode(&own->mode);
}

CUcontext ds_context_current(void)
{
	uint32_t contexts = atomic_load_explicit(&ds_process.contexts, memory_order_acquire);
	CUcontext context = NULL;

	if (ds_likely(ds_thread.known == contexts))
		return ds_thread.current;
	ds_thread.known = 0;
	if (real->cuCtxGetCurrent(&context) != CUDA_SUCCESS)
		return NULL;
	if (atomic_load_explicit(&ds_process.unseen, memory_order_relaxed))
		return context;
	ds_thread.current = context;
	ds_thread.legacy = ds_thread.per_thread = NULL;
	ds_thread.known = contexts;
	return context;
}

void ds_context_unseen(void)
{
	atomic_store(&ds_process.unseen, true);
	ds_contexts_changed();
}
