/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that asks the driver. */
#ifndef DS_POLLER_H
#define DS_POLLER_H

#include "state.h"

bool ds_poller_start(struct ds_board *board);

#endif
