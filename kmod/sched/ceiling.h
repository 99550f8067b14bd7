/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TPC ceilings: how many of a GPU's TPCs a channel group's work may use. A cap on one context while it runs, no concurrency of
 * several. Whether a driver does it is seen at the first try on each GPU; where it says no, it is not asked again.
 */
#ifndef DETSHARE_CEILING_H
#define DETSHARE_CEILING_H

#include <linux/types.h>

#include "detshare_uapi.h"

/*
 * Sets the ceiling of a compute channel group, or lifts it (percent 0). *is_set: it is as asked for. Without a compute
 * object and a context share there is nothing to set it on yet: 0, and not *is_set. The NV_STATUS with which the driver refused. From a workqueue.
 */
u32 ds_ceiling_set(u32 gpu, u32 client, u32 tsg, u32 percent, bool *is_set);
/* Is this a refusal that may be none later? */
bool ds_ceiling_again(u32 status);
/* Whether ceilings can be set on this GPU; *status is the driver's no. */
enum detshare_ability ds_ceiling_ability(u32 gpu, u32 *status);
/* The driver is gone. */
void ds_ceiling_forget(void);

#endif
