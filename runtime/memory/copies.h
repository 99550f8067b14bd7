/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of grains in the arena, there and back. A copy is kept after the way back, with its digest: the next park copies what has another digest
 * by then. Under the lock of park.c, in the device's context, with nobody inside.
 */
#ifndef DS_COPIES_H
#define DS_COPIES_H

#include "arena.h"
#include "piece.h"

struct ds_copied {
	uint64_t bytes; /* copied */
	uint64_t hash_ns; /* what finding out took */
	uint32_t whole; /* DS_WHOLE_*: why all of it was copied */
};

/*
 * Brings the copies of all that can leave up to date; by copying all of it, where copies are not to be kept. Where that fails, no copy that
 * may be wrong is kept. `stay` has a slot for each grain.
 */
CUresult ds_copies_away(struct ds_device *device, const struct ds_stay *stay, struct ds_copied *copied);
/* These pieces are what their windows are: the copies there are kept, with digests of now. Where the GPU tells none, they are not. */
void ds_copies_learn(struct ds_device *device, const struct ds_stay *stay, struct ds_piece *const *pieces, size_t count);
/* Copies to memory that was made for the way home. */
CUresult ds_copies_home(struct ds_device *device, const struct ds_stay *stay);

#endif
