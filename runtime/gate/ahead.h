/* SPDX-License-Identifier: Apache-2.0 */
/* How far a program may run ahead of its GPU: around a launch while board->ahead_ns is a bound. */
#ifndef DS_AHEAD_H
#define DS_AHEAD_H

#include "state.h"

/* after ds_fast_active(), with no stream in use; it may wait */
void ds_ahead_before(struct ds_board *board, struct ds_stream *stream);
void ds_ahead_after(struct ds_board *board, struct ds_launch *launch);
void ds_ahead_gone(struct ds_gate_stream *gate);

#endif
