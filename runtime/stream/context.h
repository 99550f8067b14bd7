/* SPDX-License-Identifier: Apache-2.0 */
/* The context that is current in a thread. */
#ifndef DS_CONTEXT_H
#define DS_CONTEXT_H

#include <stdbool.h>

#include "cuda.h"

struct ds_device;

/* the driver's answer; remembered until a call that may change it. NULL: none */
CUcontext ds_context_current(void);
/* from now on it may change in ways that we do not see: the driver is asked each time */
void ds_context_unseen(void);
/* a context came or went: what threads remember of theirs is void */
void ds_contexts_changed(void);

/* Around calls of our own that make or destroy objects or ask for states: the device's context is current, and no capture of the
 * program is broken by them. Nests. */
struct ds_own {
	CUstreamCaptureMode mode;
	bool pushed;
};
void ds_own_begin(struct ds_own *own, struct ds_device *device);
void ds_own_end(struct ds_own *own);

#endif
