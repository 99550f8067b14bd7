/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of a GPU that can leave it: a handle of at most DS_PIECE_BYTES, mapped at an address that never changes. All between
 * ds_home_enter() and ds_home_leave(), but for who takes the memory away: nobody is inside then.
 */
#ifndef DS_PIECE_H
#define DS_PIECE_H

#include "device.h"

/* RM makes a handle in 33 to 98 us whatever its size (measured): 8 GiB in handles of 2 MiB take 0.5 s, of 32 MiB 0.02 s */
#define DS_PIECE_BYTES (32UL << 20)
/* the driver's granularity for device memory */
#define DS_GRAIN_BYTES (2UL << 20)

enum { DS_FRESH_NOT, DS_FRESH_MADE, DS_FRESH_MAPPED };

struct ds_piece {
	CUmemGenericAllocationHandle handle; /* the driver's; 0: it is away */
	CUmemAllocationProp prop;
	size_t size;
	size_t asked; /* of it, what the program asked for */
	CUdeviceptr address; /* where it is mapped; 0: nowhere, or more than once */
	struct ds_device *device;
	uint64_t reached; /* bit n: GPU n may read and write it */
	uint64_t place; /* of its copy in the arena */
	unsigned int owners, mappings; /* of a handle that the program made */
	unsigned int number; /* of that handle; 0: it is ours */
	uint8_t fresh; /* DS_FRESH_*: how far its way home is */
	bool stays; /* it cannot leave */
	bool orders; /* SYNC_MEMOPS */
	bool counted; /* among what can leave */
	struct ds_piece *next, **link;
};

/* The newest of all. Changes under ds_piece_lock(). */
extern struct ds_piece *ds_pieces;
void ds_piece_lock(void);
void ds_piece_unlock(void);

/* Makes the memory; NULL and *result: the driver refused. */
struct ds_piece *ds_piece_make(struct ds_device *device, size_t size, const CUmemAllocationProp *prop, CUresult *result);
/* Memory of another process, by its descriptor; it stays. */
struct ds_piece *ds_piece_import(struct ds_device *device, size_t size, int fd, CUresult *result);
/* Gives it back and forgets it; it is not mapped. */
void ds_piece_free(struct ds_piece *piece);
/* Whether it can leave now; after each change of address, stays and handle. */
void ds_piece_count(struct ds_piece *piece);
void ds_piece_stay(struct ds_piece *piece);
/* bytes of this GPU that can leave; with what is away */
uint64_t ds_piece_parkable(const struct ds_device *device);

/* Maps it at its address with the access that it has. On failure it is not mapped. */
CUresult ds_piece_map(struct ds_piece *piece);
/* Gives access to whom `reached` says. */
CUresult ds_piece_access(struct ds_piece *piece);
void ds_piece_reset(void); /* in the child of a fork */

#endif
