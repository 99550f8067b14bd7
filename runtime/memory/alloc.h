/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of the program on memory that can leave the GPU. All between ds_home_enter() and ds_home_leave(). */
#ifndef DS_ALLOC_H
#define DS_ALLOC_H

#include "range.h"

/* smaller ones stay: many share a handle of the driver's own */
#define DS_ALLOC_LEAST (1UL << 20)

/* Whether memory of this GPU can leave: `detshare run --park`, and a driver that can. */
bool ds_alloc_parks(const struct ds_device *device);
/* The program made green contexts of its own: what runs there passes us. */
void ds_alloc_note_green(void);
bool ds_alloc_foreign(void);
/* Whether an allocation of that size in the current context would be ours. */
struct ds_device *ds_alloc_device(size_t bytes);
/* As cuMemAlloc. */
CUresult ds_alloc_make(struct ds_device *device, size_t bytes, CUdeviceptr *address);
/* As cuMemFree: waits for all work of the GPU. The range is one of ours, with reserved addresses. */
CUresult ds_alloc_free(struct ds_range *range);
/* Gives back all of it, mapped or not; it is in no table any more. */
void ds_alloc_unmake(struct ds_range *range);
/* GPU `who` may reach what `device` has and will have, or no more. */
CUresult ds_alloc_peer(struct ds_device *device, CUdevice who, bool on);
/* What the context had went with it: forgets it. */
void ds_alloc_over(CUcontext context);
/* Nobody has access to what the GPU's next context will have. */
void ds_alloc_no_peers(const struct ds_device *device);

#endif
