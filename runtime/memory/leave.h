/* SPDX-License-Identifier: Apache-2.0 */
/* The first steps of a park: host memory for all, and copies there. Under the lock of park.c; DS_PARK_OK, or why not. */
#ifndef DS_LEAVE_H
#define DS_LEAVE_H

#include "device.h"

/* for what can leave now; the program goes on */
uint32_t ds_leave_room(void);
/* once nobody is inside */
uint32_t ds_leave_copy(void);
/* What there is host memory for; DS_PARK_ARENA: nothing. */
uint32_t ds_leave_some(void);
/* whether some is still there */
bool ds_leave_rest(void);
/* whether memory that leaves now is to come back lazily */
bool ds_leave_lazy(const struct ds_device *device);

#endif
