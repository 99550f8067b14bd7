/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks after our word, our own bits, and the floor. */
#ifndef DS_WATCHDOG_H
#define DS_WATCHDOG_H

#include "state.h"

bool ds_watchdog_start(struct ds_board *board);

#endif
