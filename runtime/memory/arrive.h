/* SPDX-License-Identifier: Apache-2.0 */
/* The way home. Under the lock of park.c, with nobody inside. */
#ifndef DS_ARRIVE_H
#define DS_ARRIVE_H

#include "arena.h"
#include "piece.h"

/*
 * Each GPU has a stream for what it is to get: memory of the program's own may have left in an earlier context. What belongs to no context comes home
 * here. OUT_OF_MEMORY: not now, as on a GPU without room.
 */
CUresult ds_arrive_ready(void);
/* It is away, and its device needs memory for it. */
static inline bool ds_arrive_lacks(const struct ds_piece *piece)
{
	return !piece->handle && !piece->host && piece->device->primary;
}

/* Whether the GPUs seem to have room for all that. */
CUresult ds_arrive_room(void);
/*
 * In parts (DS_FLAG_COMES), in the device's context: some pieces come home, and their host memory goes. false: it is not asked for, or the GPU has
 * no room for one.
 */
bool ds_arrive(struct ds_device *device, struct ds_stay *stay);

#endif
