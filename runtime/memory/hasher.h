/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of grains, made by the GPU that they lie on. Under the lock of park.c, in the device's context. */
#ifndef DS_HASHER_H
#define DS_HASHER_H

#include "device.h"
#include "hash.h"

/*
 * Digests of `count` grains, when their content does not change: by a kernel in the stream, which has ended. DS_WHOLE_NOT, or why there are none;
 * the log says more.
 */
uint32_t ds_hasher_run(struct ds_device *device, CUstream stream, const CUdeviceptr *grains, size_t count, struct ds_digest *digests);
/* As the reference says it, of a copy of a grain. */
void ds_hasher_reference(const void *copy, struct ds_digest *digest);
/* The GPU's differs from the reference's: it is not asked again in this context. */
void ds_hasher_wrong(struct ds_device *device);
/* The context is about to end. */
void ds_hasher_ends(struct ds_device *device);
void ds_hasher_reset(void); /* in the child of a fork */

#endif
