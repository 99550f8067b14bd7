/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks after our word, our own bits, and the floor. */
#ifndef DS_KEEPER_H
#define DS_KEEPER_H

#include "state.h"

bool ds_keeper_start(struct ds_board *board);

#endif
