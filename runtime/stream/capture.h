/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture. */
#ifndef DS_CAPTURE_H
#define DS_CAPTURE_H

#include "cuda.h"

struct ds_device;
struct ds_stream;

/* under device->lock: captures that ended are noticed */
void ds_captures_recount(struct ds_device *device, struct ds_stream *ended);
/* the event was recorded by what is being captured: who waits for it joins */
void ds_capture_note(CUevent event);

#endif
