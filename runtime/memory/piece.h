/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of a GPU that can leave it: a handle of at most DS_PIECE_BYTES, mapped at an address that never changes. All between
 * ds_home_enter() and ds_home_leave(), but for who takes the memory away: nobody is inside then.
 */
#ifndef DS_PIECE_H
#define DS_PIECE_H

#include "device.h"
#include "hash.h"

/* RM makes a handle in 33 to 98 us whatever its size (measured): 8 GiB in handles of 2 MiB take 0.5 s, of 32 MiB 0.02 s */
#define DS_PIECE_BYTES (32UL << 20)
/* the driver's granularity for device memory, and what is compared and copied as one */
#define DS_GRAIN_BYTES (2UL << 20)

enum { DS_FRESH_NOT, DS_FRESH_MADE, DS_FRESH_MAPPED };

/* 2 MiB of a piece, and its copy in the arena. */
struct ds_grain {
	struct ds_digest digest; /* of the copy, where `kept` */
	uint32_t slot; /* of the arena */
	bool placed; /* the slot is its own */
	bool kept; /* the copy has that digest: who finds the same on the GPU need not copy again */
	bool hashed, moves; /* in the park that goes on: its digest is known, it is copied */
};

struct ds_piece {
	CUmemGenericAllocationHandle handle; /* the driver's; 0: it is away */
	CUmemAllocationProp prop;
	size_t size;
	size_t asked; /* of it, what the program asked for */
	CUdeviceptr address; /* where it is mapped; 0: nowhere, or more than once */
	struct ds_device *device;
	uint64_t reached; /* bit n: GPU n may read and write it */
	CUmemGenericAllocationHandle host; /* its host memory, see lend.h; 0: none */
	CUdeviceptr window; /* where the GPU always sees that */
	struct ds_grain *grains; /* NULL before its first park */
	unsigned int owners, mappings; /* of a handle that the program made */
	unsigned int number; /* of that handle; 0: it is ours */
	uint8_t fresh; /* DS_FRESH_*: how far its way home is */
	bool stays; /* it cannot leave */
	bool orders; /* SYNC_MEMOPS */
	bool seen; /* the window is mapped */
	bool lent; /* host memory is mapped at its address */
	uint32_t hot; /* when launches named it; 0: they did not */
	uint32_t age; /* of all pieces, which one it was */
	bool counted; /* among what can leave */
	bool leaves; /* in the batch that leaves, or was in the last one */
	struct ds_piece *next, **link;
};

/* The newest of all. Changes under ds_piece_lock(). */
extern struct ds_piece *ds_pieces;
void ds_piece_lock(void);
void ds_piece_unlock(void);

/*
 * In the device's context: whether the GPU has room for so many bytes. Asked before pieces are made one by one: who finds out by the last of them has
 * had all that was left, and others were refused meanwhile.
 */
CUresult ds_piece_room(const struct ds_device *device, size_t bytes);
/* Makes the memory; NULL and *result: the driver refused. */
struct ds_piece *ds_piece_make(struct ds_device *device, size_t size, const CUmemAllocationProp *prop, CUresult *result);
/* Memory of another process, by its descriptor; it stays. */
struct ds_piece *ds_piece_import(struct ds_device *device, size_t size, int fd, CUresult *result);
/* Gives it back and forgets it; it is not mapped. */
void ds_piece_free(struct ds_piece *piece);
/* Whether it can leave now; after each change of address, stays and handle. Who cannot keeps no copies. */
void ds_piece_count(struct ds_piece *piece);
static inline unsigned int ds_piece_grains(const struct ds_piece *piece)
{
	return (unsigned int)(piece->size / DS_GRAIN_BYTES);
}
/* Of grain n: whether its copy serves the next park. Under ds_piece_lock(), or with nobody inside. */
void ds_piece_keep(struct ds_piece *piece, unsigned int n, bool kept);
/* The GPU's part of the arena is gone, and all copies with it. */
void ds_piece_forget(const struct ds_device *device);
/* Of this piece alone, and it has no place there any more. */
void ds_piece_drop(struct ds_piece *piece);
void ds_piece_stay(struct ds_piece *piece);
/* bytes of this GPU that can leave; with what is away */
uint64_t ds_piece_parkable(const struct ds_device *device);
/* of it, what is not on the GPU; under the lock, or with nobody inside */
uint64_t ds_piece_away(const struct ds_device *device);

/* Maps it at its address with the access that it has. On failure it is not mapped. */
CUresult ds_piece_map(struct ds_piece *piece);
/* Gives access to whom `reached` says. */
CUresult ds_piece_access(struct ds_piece *piece);
void ds_piece_reset(void); /* in the child of a fork */

#endif
