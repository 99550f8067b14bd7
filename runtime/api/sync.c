/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that wait for the end of work, or ask for it, and callbacks. */
#include <stdlib.h>

#include "gate.h"
#include "move.h"
#include "primary.h"

/*
 * The legacy stream's end is the end of all blocking streams' work so far: ds_stream_cur() made it wait for those that are away from home. The
 * stream is not kept from moving while this thread waits: what comes meanwhile belongs to other threads.
 */
static CUresult ask(CUstream handle, bool per_thread, CUresult (*next)(CUstream))
{
	struct ds_stream *stream = ds_stream_of(handle, per_thread);
	CUstream actual;
	CUresult result;
	uint64_t mark;

	if (!stream)
		return next(handle);
	actual = ds_stream_ask(stream);
	mark = ds_stream_mark(stream);
	ds_stream_done_quiet(stream);
	result = next(actual);
	if (result == CUDA_SUCCESS) {
		ds_stream_idle(stream, mark);
		ds_synced(stream->device, stream);
	}
	return result;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	return ask(handle, false, real->cuStreamSynchronize);
}

CUresult cuStreamSynchronize_ptsz(CUstream handle)
{
	return ask(handle, true, real->cuStreamSynchronize_ptsz);
}

CUresult cuStreamQuery(CUstream handle)
{
	return ask(handle, false, real->cuStreamQuery);
}

CUresult cuStreamQuery_ptsz(CUstream handle)
{
	return ask(handle, true, real->cuStreamQuery_ptsz);
}

/* The driver's wait for the primary context covers its green contexts. */
CUresult cuCtxSynchronize(void)
{
	struct ds_device *device = ds_native() || ds_thread.locked ? NULL : ds_device_current();
	CUresult result = real->cuCtxSynchronize();

	if (device && result == CUDA_SUCCESS)
		ds_synced(device, NULL);
	return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
	struct ds_device *device = ds_native() || ds_thread.locked ? NULL : ds_device_of(context);
	CUresult result = real->cuCtxSynchronize_v2(context);

	if (device && result == CUDA_SUCCESS)
		ds_synced(device, NULL);
	return result;
}

/* The program's callback gets the program's handle. */
struct callback {
	CUstreamCallback function;
	CUstream app;
	void *data;
};

static void called_back(CUstream stream, CUresult status, void *data)
{
	struct callback callback = *(struct callback *)data;

	(void)stream;
	free(data);
	callback.function(callback.app, status, callback.data);
}

static CUresult add_callback(CUstream handle, bool per_thread, CUstreamCallback function, void *data, unsigned int flags,
			     CUresult (*next)(CUstream, CUstreamCallback, void *, unsigned int))
{
	struct ds_stream *stream = ds_stream_of(handle, per_thread);
	struct callback *callback;
	CUresult result;

	if (!stream || !function)
		return next(handle, function, data, flags);
	callback = malloc(sizeof(*callback));
	if (!callback)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*callback = (struct callback){.function = function, .app = handle, .data = data};
	result = next(ds_stream_cur(stream), called_back, callback, flags);
	ds_stream_done(stream);
	if (result != CUDA_SUCCESS)
		free(callback);
	return result;
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *data, unsigned int flags)
{
	return add_callback(handle, false, function, data, flags, real->cuStreamAddCallback);
}

CUresult cuStreamAddCallback_ptsz(CUstream handle, CUstreamCallback function, void *data, unsigned int flags)
{
	return add_callback(handle, true, function, data, flags, real->cuStreamAddCallback_ptsz);
}
