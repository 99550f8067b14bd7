/* SPDX-License-Identifier: Apache-2.0 */
/* The way home. Under the lock of park.c, with nobody inside. */
#ifndef DS_ARRIVE_H
#define DS_ARRIVE_H

#include "arena.h"

/* Each GPU has a stream for what it is to get: memory of the program's own may have left in an earlier context. */
bool ds_arrive_ready(void);
/*
 * In parts (DS_FLAG_COMES), in the device's context: some pieces come home, and their host memory goes. false: it is not asked for, or the GPU has
 * no room for one.
 */
bool ds_arrive(struct ds_device *device, struct ds_stay *stay);

#endif
