/* SPDX-License-Identifier: Apache-2.0 */
/* What higher folders do when contexts and streams come and go. Each may be NULL. */
#ifndef DS_LIFECYCLE_H
#define DS_LIFECYCLE_H

#include <stdbool.h>

#include "list.h"

struct ds_device;
struct ds_stream;

/* `static const struct ds_lifecycle x = {...}; DS_LIST_ADD(ds_lifecycles, x);` */
struct ds_lifecycle {
	/* a primary context was seen first, under device->lock; false: the device stays native, and the log says why */
	bool (*context_new)(struct ds_device *device);
	void (*context_ready)(struct ds_device *device); /* after that, without the lock */
	/* The context is about to end: nothing that the GPU is to wait for stays closed. Without device->lock. */
	void (*context_ends)(struct ds_device *device);
	void (*context_gone)(struct ds_device *device); /* then, with all streams at home: gives back what it has there */
	void (*context_last)(struct ds_device *device); /* then, in the context and under device->lock, with all mirrors and green contexts gone */
	/* Then it is no more, and what it had is freed. Without device->lock; a context that somebody else retained does not come here. */
	void (*context_over)(struct ds_device *device);
	void (*stream_gone)(struct ds_stream *stream); /* under device->lock; its memory serves other streams later */
	void (*child)(void); /* in the child of a fork, where nothing of the driver's is ours */
};

bool ds_life_context_new(struct ds_device *device);
void ds_life_context_ready(struct ds_device *device);
void ds_life_context_ends(struct ds_device *device);
void ds_life_context_gone(struct ds_device *device);
void ds_life_context_last(struct ds_device *device);
void ds_life_context_over(struct ds_device *device);
void ds_life_stream_gone(struct ds_stream *stream);
void ds_life_child(void);

#endif
