/* SPDX-License-Identifier: Apache-2.0 */
/* The launch path's slow turns, and what others ask of the gates. */
#ifndef DS_GATE_H
#define DS_GATE_H

#include "state.h"

void ds_host_slow(struct ds_board *board, struct ds_tally *tally);
void ds_gate_slow(struct ds_board *board, struct ds_gate_stream *gate, struct ds_launch *launch);
struct ds_gate_stream *ds_gate_stream_new(struct ds_stream *stream);

/* the tier that the policy wants now */
unsigned int ds_board_tier(struct ds_device *device);
/* the policy wants that tier even while no higher class is active */
bool ds_board_stands(struct ds_device *device, unsigned int tier);
/* A copy to the device is about to be queued: kernels follow, so lower classes begin to stop now. Before the stream is in use. */
void ds_active_soon(struct ds_stream *stream);
/* `stream` (NULL: every stream of the device) has no work left that was there when the waiting call began */
void ds_synced(struct ds_device *device, struct ds_stream *stream);

#endif
