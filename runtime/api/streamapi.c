/* SPDX-License-Identifier: Apache-2.0 */
/* Birth, death and attributes of the program's streams; unloading of code. */
#include "context.h"
#include "home.h"
#include "move.h"
#include "primary.h"
#include "resident.h"
#include "room.h"

static void created(CUstream handle, unsigned int flags)
{
	struct ds_device *device = ds_native() || ds_thread.locked ? NULL : ds_device_current();
	struct ds_own own;
	int priority = 0;

	if (!device)
		return;
	/* as the driver clamped it */
	real->cuStreamGetPriority(handle, &priority);
	ds_lock(device);
	if (device->primary) {
		ds_own_begin(&own, device);
		ds_stream_reap(device);
		ds_own_end(&own);
		ds_stream_add(device, handle, flags & CU_STREAM_NON_BLOCKING ? 0 : DS_STREAM_BLOCKING, priority);
	}
	ds_unlock(device);
}

CUresult cuStreamCreate(CUstream *handle, unsigned int flags)
{
	CUresult result = ds_room_own(ds_device_current(), real->cuStreamCreate(handle, flags), real->cuStreamCreate(handle, flags));

	if (result == CUDA_SUCCESS)
		created(*handle, flags);
	return result;
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority)
{
	CUresult result = ds_room_own(ds_device_current(), real->cuStreamCreateWithPriority(handle, flags, priority),
				      real->cuStreamCreateWithPriority(handle, flags, priority));

	if (result == CUDA_SUCCESS)
		created(*handle, flags);
	return result;
}

static CUresult destroy(CUstream handle, CUresult (*next)(CUstream))
{
	struct ds_stream *stream = NULL;
	struct ds_device *device;
	struct ds_own own;

	/* the driver refuses to destroy default streams */
	if ((uintptr_t)handle > (uintptr_t)CU_STREAM_PER_THREAD)
		stream = ds_stream_of(handle, false);
	if (!stream)
		return next(handle);
	/*
	 * The legacy stream goes on waiting for the work of a blocking stream that is gone, and only the driver knows that. Whose memory is away has none,
	 * and at its exit nobody may make room for it.
	 */
	if ((stream->flags & DS_STREAM_BLOCKING) && !(atomic_load(&ds_process.exiting) && atomic_load(&ds_home.now) == DS_HOME_AWAY))
		ds_stream_fetch_home(stream);
	device = stream->device;
	ds_lock(device);
	if (ds_stream_app(stream) == handle) {
		ds_own_begin(&own, device);
		ds_stream_remove(stream, true);
		ds_own_end(&own);
	}
	ds_unlock(device);
	return next(handle);
}

CUresult cuStreamDestroy(CUstream handle)
{
	return destroy(handle, real->cuStreamDestroy);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
	return destroy(handle, real->cuStreamDestroy_v2);
}

/* after the driver took the attribute for the program's own stream */
static void set_mirrors(CUstream handle, bool per_thread, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	struct ds_stream *stream = ds_stream_of(handle, per_thread);

	if (!stream)
		return;
	ds_lock(stream->device);
	stream->attributes = true;
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		stream->priority = value->priority;
	for (unsigned int tier = 1; tier < DS_TIERS; tier++)
		if (stream->mirrors[tier])
			real->cuStreamSetAttribute(stream->mirrors[tier], id, value);
	ds_unlock(stream->device);
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUresult result = real->cuStreamSetAttribute(handle, id, value);

	if (result == CUDA_SUCCESS)
		set_mirrors(handle, false, id, value);
	return result;
}

CUresult cuStreamSetAttribute_ptsz(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUresult result = real->cuStreamSetAttribute_ptsz(handle, id, value);

	if (result == CUDA_SUCCESS)
		set_mirrors(handle, true, id, value);
	return result;
}

/* The mirrors of a stream that got all its attributes from another are made anew with them; the old ones end behind their work. */
static void copied(CUstream handle, bool per_thread)
{
	struct ds_stream *stream = ds_stream_of(handle, per_thread);
	struct ds_own own;

	if (!stream)
		return;
	ds_stream_home(stream);
	ds_lock(stream->device);
	ds_own_begin(&own, stream->device);
	stream->attributes = true;
	real->cuStreamGetPriority(ds_stream_app(stream), &stream->priority);
	ds_stream_strip(stream);
	ds_own_end(&own);
	ds_unlock(stream->device);
	ds_stream_done_quiet(stream);
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	CUresult result = real->cuStreamCopyAttributes(to, from);

	if (result == CUDA_SUCCESS)
		copied(to, false);
	return result;
}

CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from)
{
	CUresult result = real->cuStreamCopyAttributes_ptsz(to, from);

	if (result == CUDA_SUCCESS)
		copied(to, true);
	return result;
}

CUresult cuModuleUnload(CUmodule module)
{
	ds_resident_forget();
	return real->cuModuleUnload(module);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	ds_resident_forget();
	return real->cuLibraryUnload(library);
}
