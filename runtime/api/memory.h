/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program's calls allocate, counted against the policy's limit. */
#ifndef DS_MEMORY_H
#define DS_MEMORY_H

#include "device.h"
#include "ledger.h"

/* The device that pays for what the current context allocates; NULL: nobody counts. */
struct ds_device *ds_memory_payer(void);
/* False: above the limit, nothing is charged. */
bool ds_memory_charge(struct ds_device *device, size_t bytes);
/* What was charged is recorded, or given back if the driver refused. */
CUresult ds_memory_settle(struct ds_device *device, enum ds_ledger_kind kind, uint64_t key, size_t bytes, CUresult result);
/* A record was taken out: its charge is given back if the driver freed the memory, else it is recorded again. */
CUresult ds_memory_freed(const struct ds_ledger_entry *entry, CUresult result);
void ds_memory_gone(const struct ds_ledger_entry *entry);
struct ds_device *ds_memory_by_ordinal(int ordinal); /* NULL: nobody counts */
/* in bytes; 0: none */
uint64_t ds_memory_limit(struct ds_device *device);
uint64_t ds_memory_used(struct ds_device *device);
uint64_t ds_memory_away(struct ds_device *device); /* of what the program has there, what is in host memory now */

#endif
