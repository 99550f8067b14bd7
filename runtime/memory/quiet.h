/* SPDX-License-Identifier: Apache-2.0 */
/* The wait that is in cuMemFree: for all work that the GPU has now, and not for what comes meanwhile. */
#ifndef DS_QUIET_H
#define DS_QUIET_H

#include "device.h"

/* In the device's context, without its lock. An error is one that the work left. */
CUresult ds_quiet_wait(struct ds_device *device);

#endif
