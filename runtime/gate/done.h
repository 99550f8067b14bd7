/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the program's work on a GPU is done. All under device->lock. */
#ifndef DS_DONE_H
#define DS_DONE_H

#include "state.h"

/* it may have work that nobody has seen the end of */
bool ds_has_work(struct ds_stream *stream);
/* whether a thread that is not the stream's may name it to the driver */
bool ds_askable(struct ds_stream *stream);
/* No stream has work that nobody has seen the end of. Does not ask the driver. */
bool ds_all_done(struct ds_device *device);
/* The same, and asks for each stream that may have work: in the device's context, with relaxed capture mode. */
bool ds_ask_all(struct ds_board *board, uint64_t now);

#endif
