/* SPDX-License-Identifier: Apache-2.0 */
/* Which of our memory lies at an address: one entry for each allocation of ours, and for each mapping of a handle that the program made. */
#ifndef DS_RANGE_H
#define DS_RANGE_H

#include "piece.h"

struct ds_range {
	CUdeviceptr base;
	size_t size; /* as asked for */
	size_t reserved; /* of addresses; 0: the program reserved them */
	uint64_t id; /* never used again */
	CUcontext context; /* whose memory the program takes it for */
	struct ds_device *device;
	uint64_t secret, source; /* of what another process has, see share.h */
	unsigned int opened; /* times; 0: it is no such memory */
	unsigned int count;
	struct ds_piece *pieces[];
};

/* an empty one; NULL: no memory */
struct ds_range *ds_range_new(unsigned int count);
bool ds_range_add(struct ds_range *range); /* false: no memory */
void ds_range_remove(const struct ds_range *range);
/* the one that holds the address, be it behind what was asked for; NULL: none. It lives until it is freed by the program. */
struct ds_range *ds_range_find(CUdeviceptr address);
/* of all, the one with the lowest address from this one on; who goes through them holds them, for other threads free meanwhile */
struct ds_range *ds_range_next(CUdeviceptr from);
/* None is added or removed in between. Nests; nothing that waits for others. */
void ds_range_hold(void);
void ds_range_let_go(void);
void ds_range_reset(void); /* in the child of a fork */

#endif
