/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that the GPU can map (HOST_NUMA), a handle for each piece and of its size. It has a window, addresses where it is always mapped: a
 * park copies the piece there. While the piece is away its host memory is mapped at the piece's own address too: lent, so that the program
 * can run over it at once, and pieces come home later. Under the lock of park.c.
 */
#ifndef DS_LEND_H
#define DS_LEND_H

#include "arena.h"
#include "piece.h"

/* Windows for all pieces of this GPU that can leave and have none. false: `why`; they leave as without. In the device's context. */
bool ds_lend_ready(struct ds_device *device, char *why, size_t room);
/* The piece's memory has left its address. */
void ds_lend(struct ds_piece *piece);
/* These pieces are what their windows are, before anybody is let in. */
typedef void (*ds_learn_fn)(struct ds_device *device, const struct ds_stay *stay, struct ds_piece *const *pieces, size_t count);
/*
 * Brings at most so many bytes of lent pieces home, at least one piece: those first that launches named, then the oldest. Nothing uses them. `learn`: the
 * program may have written to them, so what is known of their copies is found out anew; NULL: it has not. OUT_OF_MEMORY: all is as it was.
 */
CUresult ds_lend_home(struct ds_device *device, const struct ds_stay *stay, uint64_t most, ds_learn_fn learn);
/* whether some are not home, of a GPU (NULL: of any) */
bool ds_lend_any(const struct ds_device *device);
/* whether those can all be reached; NULL: of all GPUs */
bool ds_lend_all(const struct ds_device *device);
/* What the program is about to launch names memory. */
void ds_lend_name(CUfunction function, void **params, void **extra);
/* Gives a piece's window and host memory back. */
void ds_lend_drop(struct ds_piece *piece);
void ds_lend_drop_all(const struct ds_device *device);
/* host memory of this GPU's pieces */
uint64_t ds_lend_bytes(const struct ds_device *device);
void ds_lend_reset(void); /* in the child of a fork */

#endif
