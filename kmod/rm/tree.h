/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The RM objects of one client (hClient), as the driver has them, and the GPU
 * memory behind them.
 *
 * Locking: the caller holds a lock of his own per client around every
 * function that takes a struct rm_client, and both clients' locks where two
 * are taken. Only shared memory (struct rm_memory) is touched by several
 * clients; memory.c guards it by a mutex of its own, taken last. Functions
 * that take or drop memory may sleep.
 *
 * The driver is right: insert what it made after it made it, and if the tree
 * knows the handle already, the old object is gone and its subtree with it.
 *
 * Cost: find, insert and dup O(1), free O(objects that die). Pointers to
 * objects stay valid until the object dies.
 */
#ifndef DETSHARE_RM_TREE_H
#define DETSHARE_RM_TREE_H

#include "decode.h"
#include "quota.h"

#define RM_GPUS 32
#define RM_GPU_NONE 32		/* belongs to no GPU: the client and what hangs off it */
#define RM_GPU_INHERIT 255	/* as the parent */

#define RM_OBJECT_GHOST 0x01	/* never seen made: known as somebody's parent only */
#define RM_OBJECT_DUP 0x02
#define RM_OBJECT_DYING 0x04	/* within a free: taken out of the table */
#define RM_OBJECT_WORKED 0x08	/* a TSG or channel below which a graphics or compute object was made; what was launched by it outlives it */

struct rm_memory;

/* One cache line. Read-only for callers, but for priv. */
struct rm_object {
	u32 handle;		/* 0: this place is free */
	u32 class;
	u32 index : 24;
	u32 gpu : 8;		/* 0..RM_GPUS-1 or RM_GPU_NONE */
	u16 engine;		/* NV2080_ENGINE_TYPE_*, 0xffff if above that */
	u8 kind;		/* enum rm_kind */
	u8 flags;
	u64 bytes;		/* GPU memory charged for it alone; 0 if memory is set */
	struct rm_memory *memory;	/* shared with other objects or files, or NULL */
	void *priv;		/* the caller's */
	/* indices, 0: none */
	u32 parent, child, next, prev;
	u32 bases, dependants;
};

struct rm_slot;
struct rm_edge;
struct rm_client;

/*
 * Called once for each object that dies, children before their parents, when
 * it is out of the table already. Handle, class, kind, gpu, bytes, memory and
 * priv are still as they were; its charge goes right after. May not call back
 * into this client's tree.
 */
typedef void (*rm_dying_fn)(struct rm_client *client, struct rm_object *object);

struct rm_client {
	u32 handle;		/* hClient */
	u32 objects;		/* living, the client's own object and ghosts included */
	u32 count[RM_KINDS];
	/*
	 * Who pays on each GPU, [RM_GPU_NONE] for objects of none (the client's
	 * own object counts nowhere). The caller sets an entry before the first
	 * object there and clears it only when none is left. NULL: nothing is
	 * counted or charged there.
	 */
	struct rm_payer *payer[RM_GPUS + 1];
	void *priv;		/* the caller's */
	/* the rest is tree.c's and handles.c's */
	rm_dying_fn dying;
	const struct rm_abi *abi;
	struct rm_slot *slots;
	u64 hash_key;
	u32 hash_bits;
	struct rm_object **chunks;
	u32 chunks_room;
	u32 chunks_used;
	u32 free_object;	/* list by next */
	u32 free_objects;
	struct rm_edge *edges;
	u32 edges_room;
	u32 edges_used;
	u32 free_edge;
	u32 free_edges;
	u32 reserved;		/* insertions promised */
};

/* -ENOMEM, or 0: the client's own object is in the tree, on no GPU. dying may be NULL. */
int rm_client_init(struct rm_client *client, const struct rm_abi *abi, u32 handle,
		   rm_dying_fn dying);

/* Frees every object (dying is called for each) and the tables. */
void rm_client_destroy(struct rm_client *client);

/*
 * Promises that one rm_tree_insert() will not fail, however late it comes:
 * call it before the driver, so that nothing exists that the tree lacks.
 * -ENOMEM: refuse the call. Each promise is used up by one insert, or given
 * back. -ENOSPC: the client has 2^23 objects.
 */
int rm_tree_reserve(struct rm_client *client);
void rm_tree_unreserve(struct rm_client *client);

struct rm_insert {
	u32 handle;
	u32 parent;		/* handle; unknown ones become ghosts below the client */
	u32 class;
	u32 engine;
	u32 gpu;		/* index, RM_GPU_NONE or RM_GPU_INHERIT */
	u8 flags;		/* RM_OBJECT_DUP */
	u64 bytes;		/* charged to the payer of that GPU already */
	/*
	 * Instead of bytes: the object takes over one hold of client->payer[gpu],
	 * of that very payer. Hold for it, and name its GPU here.
	 */
	struct rm_memory *memory;
	const u32 *deps;	/* handles; unknown ones are ignored */
	unsigned int n_deps;	/* at most RM_DEPS_MAX */
	void *priv;
};

/*
 * Uses up one promise of rm_tree_reserve(). An object that has this handle
 * already dies first, with all below it. NULL: handle 0 or the client's own,
 * which are no objects (a root class makes a client); the bytes or the hold
 * that came with it are given back.
 */
struct rm_object *rm_tree_insert(struct rm_client *client, const struct rm_insert *insert);

/* NULL: not in the tree. Ghosts are found too. */
struct rm_object *rm_tree_find(const struct rm_client *client, u32 handle);

/*
 * RM_FREE of a handle: it dies with its children and all that depend on them.
 * Returns how many died; 0: the tree does not know it (the driver says NV_OK
 * to that). The client's own handle empties the tree.
 */
u32 rm_tree_free(struct rm_client *client, u32 handle);

/* All objects one after the other, NULL begins and ends; order of no meaning. */
struct rm_object *rm_tree_next(const struct rm_client *client,
			       const struct rm_object *object);

/* NULL: none. The client's own object has no parent. */
struct rm_object *rm_tree_parent(const struct rm_client *client,
				 const struct rm_object *object);
/* Children, the youngest first. */
struct rm_object *rm_tree_child(const struct rm_client *client,
				const struct rm_object *object);
struct rm_object *rm_tree_sibling(const struct rm_client *client,
				  const struct rm_object *object);

/* Is there a compute object on a channel of this TSG (or channel)? */
bool rm_tree_computes(const struct rm_client *client, const struct rm_object *object);

/* GPU memory behind an object, shared or not. */
u64 rm_object_bytes(const struct rm_object *object);

/* ---- memory that several objects, clients or files hold (memory.c) ------ */

/*
 * Physical memory lives until its last hold is dropped. Each account pays for
 * it once, however many of its payers hold it how often.
 *
 * Dup: rm_memory_share() of the source object, rm_memory_hold() for the
 * destination's payer before the call (refuse the call if that is refused);
 * after it insert with .memory, or rm_memory_drop(). A UVM range, an exported
 * file or a dma-buf holds memory in the same way, without an object.
 */

/*
 * Makes the object's memory sharable and lends it out: *memory is valid while
 * the object lives or a hold exists. -ENOMEM; -ENOENT: it has no GPU memory
 * (then a dup of it has none either).
 */
int rm_memory_share(struct rm_client *client, struct rm_object *object,
		    struct rm_memory **memory);

/*
 * One more hold for this payer (NULL: nobody pays for it). 0; -ENOMEM: an
 * account has no room (*refuser, may be NULL, names it) or the kernel has no
 * memory (*refuser is NULL). Takes the mutex; needs no client's lock, but the
 * payer's accounts must not change meanwhile.
 */
int rm_memory_hold(struct rm_memory *memory, struct rm_payer *payer,
		   struct rm_account **refuser);
/* The same past every limit: for what the driver has done already. */
int rm_memory_hold_force(struct rm_memory *memory, struct rm_payer *payer);
void rm_memory_drop(struct rm_memory *memory, struct rm_payer *payer);

u64 rm_memory_bytes(const struct rm_memory *memory);

#endif /* DETSHARE_RM_TREE_H */
