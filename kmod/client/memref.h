/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * GPU memory that lives on without the handle by which a program got it: the driver duplicated it for itself, for a mapping of UVM,
 * an exported descriptor, a DMA buffer or a fabric object. A memref keeps such memory charged to whoever the handle's client
 * charges, until the driver lets go of its duplicate. As long as the handle lives too, an account pays once.
 *
 * Some duplicates are made without ds_file.order held, so the handle may be freed and made anew while the driver looks it up.
 * A memref in flight therefore keeps whatever dies by that handle, and if anything did, whoever has or gets the order looks again:
 * the charge is never less than what the driver keeps, and exactly that if nobody frees a handle while duplicating it.
 *
 * Locks: client->tree, then a memref's, then a residual's, then those of the core.
 */
#ifndef DETSHARE_MEMREF_H
#define DETSHARE_MEMREF_H

#include <linux/list.h>
#include <linux/types.h>

#include "process.h"
#include "rm/tree.h"

struct ds_client;
struct ds_file;

/* Who pays for the memrefs of a vCtx; outlives it as long as there are any. */
struct ds_residual;

/* ERR_PTR: as ds_payer_add(). The caller holds no lock but ds_file.order. */
struct ds_residual *ds_residual_make(struct ds_process *process, u32 gpu);
void ds_residual_put(struct ds_residual *residual);

struct ds_memref;

/*
 * Holds what the object has now. The caller holds the order of the client's file and client->tree. NULL: it has no GPU memory;
 * ERR_PTR(-ENOMEM).
 */
struct ds_memref *ds_memref_object(struct ds_client *client, struct rm_object *object);
/* The same for memory that the tree does not know, in bytes. */
struct ds_memref *ds_memref_bytes(struct ds_client *client, u32 gpu, u64 bytes);
/*
 * The driver is about to duplicate this handle, and order is not held: in flight from here to ds_memref_landed() or ds_memref_drop().
 * NULL: a client that is not followed; ERR_PTR(-ENOMEM).
 */
struct ds_memref *ds_memref_begin(u32 client, u32 handle);
/* In flight: may the handle have come to name something else since ds_memref_begin()? */
bool ds_memref_odd(const struct ds_memref *memref);
/* The driver has it. */
void ds_memref_landed(struct ds_memref *memref);
/* Lets go of the file's order; looks at what landed meanwhile and is odd. The caller holds the file, and nothing else. */
void ds_memrefs_unlock(struct ds_file *file);
/* The driver has let go of it, or never had it. NULL: nothing. Sleeps, but waits for no driver call. */
void ds_memref_drop(struct ds_memref *memref);

/*
 * The memory held, if it is held as one: lent as long as the memref is not dropped. NULL: unknown. gpu and class of the object that
 * was pinned.
 */
struct rm_memory *ds_memref_memory(struct ds_memref *memref, u32 *gpu, u32 *class);

/* Does it hold memory of somebody who has a limit? */
bool ds_memref_limited(struct ds_memref *memref);

/* An object dies. Under client->tree. */
void ds_memrefs_keep(struct ds_client *client, struct rm_object *object);
/* The client has lost all its objects. The caller holds ds_clients_lock for writing. */
void ds_memrefs_orphan(struct ds_client *client);

/* Bytes on this GPU that memrefs alone keep. */
u64 ds_memrefs_kept(u32 gpu);
/* The same for one residual. */
u64 ds_residual_kept(struct ds_residual *residual);
/* Memrefs that exist, for leak checks. */
unsigned int ds_memref_count(void);

#endif
