/* SPDX-License-Identifier: Apache-2.0 */
/* Whose primary context a context is. */
#ifndef DS_PRIMARY_H
#define DS_PRIMARY_H

#include "device.h"

/* the device whose primary context is `context`; NULL: not ours. May attach at the first sight of a context. */
struct ds_device *ds_device_of(CUcontext context);
/* the same for the context that is current in this thread */
struct ds_device *ds_device_current(void);

#endif
