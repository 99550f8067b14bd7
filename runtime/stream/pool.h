/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts, one per tier; made by a helper thread. */
#ifndef DS_POOL_H
#define DS_POOL_H

#include "device.h"

/* under device->lock: an empty pool, also after one was closed and emptied; false: no memory */
bool ds_pool_open(struct ds_device *device);
/* no further green context is made; waits for the one in the making. Without device->lock. */
void ds_pool_close(struct ds_device *device);
/* under device->lock, closed: green contexts are destroyed. Their streams are gone. */
void ds_pool_empty(struct ds_device *device);
/* waits at most `ns` until a tier is ready or cannot be made */
void ds_pool_wait(struct ds_device *device, unsigned int tier, uint64_t ns);
/* at exit: waits a moment for the helper thread, so that it is not inside the driver when that ends */
void ds_pool_settle(struct ds_device *device);

/* all three: of a tier that is ready; tier 0 gives the primary context and all SMs */
CUcontext ds_pool_ctx(struct ds_device *device, unsigned int tier);
unsigned int ds_pool_sms(struct ds_device *device, unsigned int tier);
/* a new non-blocking stream there; NULL: refused, and said so in the log. Destroyed by cuStreamDestroy_v2. */
CUstream ds_pool_stream(struct ds_device *device, unsigned int tier, int priority);
/* whether its helper thread is at work, in the driver */
bool ds_pool_busy(struct ds_device *device);
/* the policy has (perhaps) tiers that do not exist yet: make them in the background. Does not wait. */
void ds_pool_wish(struct ds_device *device);
/* work of the tier goes where it shall: it is ready, is the whole GPU, or cannot be made and never will be */
bool ds_pool_settled(struct ds_device *device, unsigned int tier);

static inline bool ds_pool_ready(struct ds_device *device, unsigned int tier)
{
	return atomic_load_explicit(&device->ready, memory_order_acquire) >> tier & 1;
}

#endif
