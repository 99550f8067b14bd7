/* SPDX-License-Identifier: Apache-2.0 */
/* What device.c does with the pool of green contexts. */
#ifndef DS_POOL_H
#define DS_POOL_H

#include "runtime.h"

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

#endif
