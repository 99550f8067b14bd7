/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a job stop together: at a number of collectives that each of them has begun. */
#ifndef DS_MEET_H
#define DS_MEET_H

#include "state.h"

/* A collective is about to be launched. After ds_fast_active(), with no stream in use; it may wait. */
void ds_meet(struct ds_board *board);

#endif
