/* SPDX-License-Identifier: Apache-2.0 */
/* The boards of a device, for as long as its context lives. */
#ifndef DS_LIFE_H
#define DS_LIFE_H

#include "state.h"

/* asks the daemon for the boards of this device, under device->lock; false: none, and one line in the log says why */
bool ds_board_attach(struct ds_device *device);
void ds_board_detach(struct ds_device *device);
void ds_board_child(void); /* in the child of a fork */

#endif
