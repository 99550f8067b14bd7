/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that another process opens: emulated where it can leave the GPU (share.h), else the driver's own. */
#include "context.h"
#include "home.h"
#include "park.h"
#include "share.h"

#define LAZY_PEERS 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which the driver demands */

/* The range is an allocation, or was opened; NULL: the driver knows. */
static struct ds_range *known(CUdeviceptr address)
{
	struct ds_range *range = ds_range_find(address);

	return range && range->reserved ? range : NULL;
}

static CUresult name(CUipcMemHandle *handle, CUdeviceptr address)
{
	struct ds_range *range = known(address);

	if (!range || !handle)
		return real->cuIpcGetMemHandle(handle, address);
	/* what another process has is its to share */
	return range->opened ? CUDA_ERROR_INVALID_VALUE : ds_share_name(range, handle);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	ds_share_note();
	return ds_home_call(name(handle, address));
}

static CUresult open_ours(CUdeviceptr *address, const CUipcMemHandle *handle)
{
	struct ds_device *device;
	CUcontext context;
	CUdevice ordinal;
	CUresult result = real->cuCtxGetDevice(&ordinal);

	if (result != CUDA_SUCCESS)
		return result;
	result = real->cuCtxGetCurrent(&context);
	if (result != CUDA_SUCCESS || ordinal < 0 || ordinal >= DS_MAX_DEVICES)
		return result ? result : CUDA_ERROR_NOT_SUPPORTED;
	device = &ds_devices[ordinal];
	/* of a GPU that was never ours it says nothing yet */
	ds_lock(device);
	device->ordinal = ordinal;
	ds_unlock(device);
	return ds_share_open(device, context, handle, address);
}

static CUresult open_handle(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags,
			    CUresult (*next)(CUdeviceptr *, CUipcMemHandle, unsigned int))
{
	ds_share_note();
	if (ds_thread.locked || !address || !ds_share_knows(handle))
		return next(address, *handle, flags);
	return flags == LAZY_PEERS ? ds_home_call(open_ours(address, handle)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(address, &handle, flags, real->cuIpcOpenMemHandle);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(address, &handle, flags, real->cuIpcOpenMemHandle_v2);
}

static CUresult close_handle(CUdeviceptr address)
{
	struct ds_range *range = known(address);

	if (!range || range->base != address || !range->opened)
		return real->cuIpcCloseMemHandle(address);
	return ds_share_close(range);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	return ds_park_give(close_handle(address));
}

/* ---- events: whoever shares one is not checkpointed by the driver either ---- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	ds_share_note();
	return real->cuIpcGetEventHandle(handle, event);
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	ds_share_note();
	return real->cuIpcOpenEventHandle(event, handle);
}
