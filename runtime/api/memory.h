/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program's calls allocate, counted against the policy's limit. */
#ifndef DS_MEMORY_H
#define DS_MEMORY_H

#include "device.h"

/* The device that pays for what the current context allocates; NULL: nobody counts. */
struct ds_device *ds_memory_payer(void);
/* False: above the limit, nothing is charged. */
bool ds_memory_charge(struct ds_device *device, size_t bytes);
void ds_memory_refund(struct ds_device *device, size_t bytes);
/* in bytes; 0: none */
uint64_t ds_memory_limit(struct ds_device *device);
uint64_t ds_memory_used(struct ds_device *device);

#endif
