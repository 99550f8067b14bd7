/* SPDX-License-Identifier: Apache-2.0 */
/* A way home in parts (DS_FLAG_COMES). Under the lock of park.c, in the device's context, with nobody inside. */
#ifndef DS_ARRIVE_H
#define DS_ARRIVE_H

#include "arena.h"

/* Some pieces come home, and their host memory goes. false: it is not asked for, or the GPU has no room for one. */
bool ds_arrive(struct ds_device *device, struct ds_stay *stay);

#endif
