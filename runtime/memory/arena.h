/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that what leaves a GPU goes to, one piece for each GPU of the process: the daemon's, pinned here. Under the lock of park.c. */
#ifndef DS_MEMORY_ARENA_H
#define DS_MEMORY_ARENA_H

#include "device.h"

struct ds_stay {
	char *map; /* NULL: none */
	size_t size;
	bool pinned;
	CUstream stream; /* of all copies: one behind the other */
	CUevent home; /* behind the last copy to the GPU */
	uint32_t generation; /* of the context that stream and event belong to */
};

/* In the device's context. NULL: there is no room for so many bytes, or no stream, and `why` says why. */
struct ds_stay *ds_arena_need(struct ds_device *device, size_t bytes, char *why, size_t room);
/* the one of this context; NULL: none was needed yet */
struct ds_stay *ds_arena_of(const struct ds_device *device);
/* The context is about to end; in it. */
void ds_arena_ends(struct ds_device *device);
/* It is gone; `keep` what lies there. */
void ds_arena_over(struct ds_device *device, bool keep);
void ds_arena_reset(void); /* in the child of a fork */

#endif
