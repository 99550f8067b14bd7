/* SPDX-License-Identifier: Apache-2.0 */
/* No work of the program begins, and what there is ends. Under the lock of park.c. */
#ifndef DS_SETTLE_H
#define DS_SETTLE_H

#include "device.h"

/*
 * Of GPUs whose context is managed now and does not end, the one after `device`; NULL: the first, or none. Who holds the lock of park.c keeps that
 * context: its end has left the board, and waits for the lock.
 */
struct ds_device *ds_managed(struct ds_device *device);
#define ds_each_managed(device) for ((device) = ds_managed(NULL); (device); (device) = ds_managed(device))

/* NULL: it has none. Asked once each: the end of a context takes the board away meanwhile, and what was had stays mapped. */
static inline struct ds_board *ds_board_of(const struct ds_device *device)
{
	return __atomic_load_n(&device->board, __ATOMIC_ACQUIRE);
}

static inline struct ds_counters *ds_counters_of(const struct ds_device *device)
{
	const struct ds_pages *pages = __atomic_load_n(&device->pages, __ATOMIC_ACQUIRE);

	return pages ? pages->counters : NULL;
}

#define ds_each_counted(device, counters) ds_each_managed(device) if (((counters) = ds_counters_of(device)))

/* From now on who needs memory waits. */
void ds_settle_stop(void);
/* Whether the GPU has no work of ours now; some may come. */
bool ds_settle_idle(struct ds_device *device);
/* DS_PARK_OK once no GPU has work of ours and nobody is inside; else why that did not come about. */
uint32_t ds_settle(void);
/* The driver answers with an error that stays: a context is beyond repair. No work runs, and no capture goes on. */
bool ds_settle_lost(void);

#endif
