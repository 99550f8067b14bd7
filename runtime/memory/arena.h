/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that what leaves a GPU goes to, for each GPU of the process: the daemon's, pinned here. It is slots of DS_GRAIN_BYTES, in extents of
 * DS_EXTENT_SLOTS at most, each of which is given back by itself. A slot's number is its extent's times DS_EXTENT_SLOTS, and its place there. Under
 * the lock of park.c.
 */
#ifndef DS_MEMORY_ARENA_H
#define DS_MEMORY_ARENA_H

#include "device.h"

#define DS_EXTENT_SLOTS 16U

struct ds_extent {
	char *map; /* NULL: it was given back */
	uint32_t slots;
	bool pinned;
};

struct ds_stay {
	struct ds_extent *extents;
	unsigned int count; /* of extents, with those that were given back */
	uint32_t slots; /* of all of them */
	CUstream stream; /* of all copies: one behind the other */
	CUevent home; /* behind the last copy, or what else read the GPU's memory */
	uint32_t generation; /* of the context that stream and event belong to */
};

/* In the device's context. NULL: there is no room for so many bytes, or no stream, and `why` says why. */
struct ds_stay *ds_arena_need(struct ds_device *device, size_t bytes, char *why, size_t room);
/* As much of so many bytes as there is now. */
void ds_arena_some(struct ds_device *device, size_t bytes, char *why, size_t room);
/* Gives back each extent that no copy lies in. In the device's context. */
void ds_arena_trim(struct ds_device *device);
/* The same without host memory: stream and event alone. */
struct ds_stay *ds_arena_stream(struct ds_device *device, char *why, size_t room);
/* how much host memory it has, in the counters */
void ds_arena_show(struct ds_device *device);
/* the one of this context; NULL: none was needed yet */
struct ds_stay *ds_arena_of(const struct ds_device *device);
/* numbers of slots end before */
static inline uint32_t ds_arena_end(const struct ds_stay *stay)
{
	return stay->count * DS_EXTENT_SLOTS;
}

static inline bool ds_arena_has(const struct ds_stay *stay, uint32_t slot)
{
	const struct ds_extent *extent = &stay->extents[slot / DS_EXTENT_SLOTS];

	return extent->map && slot % DS_EXTENT_SLOTS < extent->slots;
}

/* Where a slot lies; it and *follow others are side by side. */
char *ds_arena_at(const struct ds_stay *stay, uint32_t slot, uint32_t *follow);
/*
 * Gives all of it back, with the copies that are there. In the device's context. ds_arena_returned() follows, there too: the driver may wait for all work
 * of the program as it unpins, and work may wait for a call of the program's that wants the lock of park.c. So it does not hold that.
 */
void ds_arena_return(struct ds_device *device, struct ds_stay *gone);
void ds_arena_returned(struct ds_stay *gone);
/* Its stream and event go, in their context. */
void ds_arena_quits(struct ds_device *device);
/* The context is about to end; in it, without that lock. */
void ds_arena_ends(struct ds_device *device);
/* It is gone; `keep` what lies there. */
void ds_arena_over(struct ds_device *device, bool keep);
void ds_arena_reset(void); /* in the child of a fork */

#endif
