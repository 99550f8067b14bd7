/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that asks the driver. */
#ifndef DS_TICKER_H
#define DS_TICKER_H

#include "state.h"

bool ds_ticker_start(struct ds_board *board);

#endif
