/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuCtxSynchronize would end captures of other threads. So a stream of ours waits for what each of the program's streams has, and the thread for
 * that. Captures have no work, and begin under device->lock.
 */
#include "done.h"
#include "quiet.h"

static struct {
	CUstream stream;
	CUevent event;
	uint32_t generation;
} waits[DS_MAX_DEVICES]; /* under device->lock */

static bool ready(struct ds_device *device)
{
	uint32_t generation = atomic_load(&device->generation);
	unsigned int n = (unsigned int)device->ordinal;

	if (waits[n].stream && waits[n].generation == generation)
		return true;
	waits[n].stream = NULL;
	if (real->cuStreamCreate(&waits[n].stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return false;
	if (real->cuEventCreate(&waits[n].event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
		real->cuStreamDestroy_v2(waits[n].stream);
		waits[n].stream = NULL;
		return false;
	}
	waits[n].generation = generation;
	return true;
}

static CUresult behind(struct ds_device *device, CUstream stream)
{
	unsigned int n = (unsigned int)device->ordinal;
	CUresult result = real->cuEventRecord(waits[n].event, stream);

	return result ? result : real->cuStreamWaitEvent(waits[n].stream, waits[n].event, 0);
}

CUresult ds_quiet_wait(struct ds_device *device)
{
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	ds_lock(device);
	if (!ready(device)) {
		ds_unlock(device);
		return real->cuCtxSynchronize();
	}
	for (struct ds_stream *each = device->streams; each && result == CUDA_SUCCESS; each = each->next)
		if (ds_has_work(each) && ds_askable(each))
			result = behind(device, each->cur);
	/* stands behind default streams of other threads, which cannot be named here */
	if (result == CUDA_SUCCESS && !atomic_load(&device->ordered_captures))
		result = behind(device, CU_STREAM_LEGACY);
	stream = waits[device->ordinal].stream;
	ds_unlock(device);
	return result ? result : real->cuStreamSynchronize(stream);
}
