/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of ours that another process opens by cuIpcOpenMemHandle. The driver gives no such handle for memory that can leave the GPU, so it is
 * emulated: the handle names a socket of this process, which hands out descriptors of all pieces to processes of the same user that know its
 * secret. What was named stays on the GPU from then on. All between ds_home_enter() and ds_home_leave().
 */
#ifndef DS_SHARE_H
#define DS_SHARE_H

#include "range.h"

/* Another process may have memory of this one from now on, or this one has another's. */
void ds_share_note(void);
/* As cuIpcGetMemHandle. */
CUresult ds_share_name(struct ds_range *range, CUipcMemHandle *handle);
/* The range is about to be freed: nobody opens it any more. */
void ds_share_forget(const struct ds_range *range);
/* whether a process under the library made it for memory of this kind */
bool ds_share_knows(const CUipcMemHandle *handle);
/* As cuIpcOpenMemHandle, in a context of the device that is current, steered or not; opened again it is the same address. */
CUresult ds_share_open(struct ds_device *device, CUcontext context, const CUipcMemHandle *handle, CUdeviceptr *address);
/* As cuIpcCloseMemHandle, of a range with `opened`. */
CUresult ds_share_close(struct ds_range *range);

#endif
