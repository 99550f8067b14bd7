/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is open: control files and those bound to them, the RM clients made on them, and one vCtx per client and GPU.
 *
 * Locks, outermost first:
 *   process->moving	one thread of a process asks whether it may move managed memory (mover.h); held while it waits, never with another above
 *   file->order		one deciding call at a time; held across the driver's call
 *   ds_clients_lock	the list of clients; write to add and remove, read to use somebody
 *			else's client; never held across a driver call
 *   client->tree	objects, payers and vCtxs of one client; short. Two are taken in the
 *			order of their addresses.
 *
 * Who runs when (entity.h, lease.h, bucket.h, class.h, orders.h):
 *   ds_runq.members	the entities of one GPU, held across shutting gates and asking the page tables, never across a call of the
 *			driver. After file->order. Nothing above is taken inside, nor is it taken inside any of those above.
 *   gangs_lock (gangs.h), ds_buckets_lock, a gate's locks, mmap_lock's and page tables' own of the kernel: inside it
 *   orders', holds', classes', tenants' spinlocks; ds_runq.lock: leaves, inside anything, faults included
 * Doorbells (gate.h, gate_impl.h), which also a task without any of the above takes:
 *   gate->shutting	one shutting, arming or sampling of a gate at a time; its doors. After file->order and ds_runq.members, never
 *			below mmap_lock; two never at once
 *   mmap_lock		of the kernel: by who maps, faults or is looked into by a debugger
 *   ds_door_passing()	read, below mmap_lock: a mapping or fault of a file that is no door is in the driver; write, for a moment, after
 *			file->order: a file becomes a door
 *   gate->inserting	read, below mmap_lock: a fault of a door is in the driver, or a debugger writes through it; write, for a
 *			moment, after gate->shutting
 *   gate->calling	spinning; held while an owner is told of a kick, so ds_runq.lock is taken inside
 *   gates_lock, doors_lock, spaces_lock, userd_lock: spinning, leaves
 * counters_lock (bound.h): spinning, a leaf inside anything
 * Who waits at a shut gate holds none of these, nor mmap_lock.
 *
 * Calls of the driver are made from ds_rm_queue and ds_rm_ordered with none of these held; who waits for such a call holds
 * file->order at most, for no work item takes that.
 * A file and its clients vanish when the file is released, so a call on the file may use them
 * without more.
 */
#ifndef DETSHARE_CLIENT_H
#define DETSHARE_CLIENT_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>

#include "bound.h"
#include "events.h"
#include "exports.h"
#include "limit.h"
#include "process.h"
#include "rm/tree.h"

/* /dev/nvidiactl among the driver's minors. */
#define DS_CTL_MINOR 255

struct ds_entity;

struct ds_file {
	struct hlist_node link;
	const struct file *file;	/* a name, not a reference */
	refcount_t refs;		/* one of them as long as the file is open */
	struct mutex order;
	struct list_head clients;	/* ds_client.in_file; guarded by order and ds_clients_lock */
	struct ds_exports exports;
	atomic_t landed;	/* memref.c's of its clients, to be looked at by who has the order */
	/* The file that the driver takes in the place of this one (binding.h), held; set once, guarded by order. */
	struct ds_file *bound;
	bool asked;		/* the driver has said whether it is bound; guarded by order */
	bool astray;		/* bound, to a file that is not known; guarded by order */
};

struct ds_client {
	struct rm_client rm;
	struct mutex tree;
	struct list_head link;		/* all clients */
	struct hlist_node by_handle;	/* clients with this hash; as link */
	struct list_head in_file;
	const void *who;		/* for whom what it makes counts, a name (bound.h); constant */
	struct ds_bound bound;
	struct ds_file *file;
	struct ds_process *process;	/* who made it: who pays */
	struct list_head vctxs;		/* ds_vctx.link; guarded by tree */
	struct list_head memrefs;		/* memref.c's, in flight; guarded by tree */
	unsigned int raws;		/* raw.c's */
	bool partial;			/* older than the module */
	bool mps;
	bool shared;			/* has duplicated a channel group of a client that is not known */
};

/*
 * Each client has one with RM_GPU_NONE, for objects of no GPU; it is shown to people only as long as there is no other.
 */
struct ds_vctx {
	struct list_head link;
	struct ds_payer payer;	/* its payer is client->rm.payer[gpu] */
	struct ds_residual *residual;	/* pays for what lives on without a handle */
	struct ds_client *client;
	struct ds_entity *entity;	/* entity.h; NULL: nothing that could be scheduled was seen. Set under file->order and client->tree */
	u64 id;
	u32 gpu;
	bool device;	/* the client has had a device on this GPU; guarded by client->tree */
	bool lasts;	/* it pays for memory there, with a device or without; under file->order */
	atomic64_t refused;
};

extern struct rw_semaphore ds_clients_lock;
extern struct list_head ds_clients;

/* What is known of a file that the caller keeps open, held; made known if it was not. NULL: no memory. */
struct ds_file *ds_file_get(const struct file *file);
struct ds_file *ds_file_hold(struct ds_file *file);
void ds_file_put(struct ds_file *file);
/* The driver has released the file: all that was on it is gone. */
void ds_file_release(const struct file *file);

/* The client of this file; the caller holds file->order. NULL: none. */
struct ds_client *ds_client_of_file(struct ds_file *file, u32 handle);
/* Any client; the caller holds ds_clients_lock. NULL: none. */
struct ds_client *ds_client_find(u32 handle);

/*
 * The driver has made this client for the current process. The caller holds file->order. ERR_PTR: -ENOMEM; -EDQUOT, there are too many (not of
 * one that is older than the module); it stays unknown.
 */
struct ds_client *ds_client_add(struct ds_file *file, u32 handle, bool partial);
/* The client and all it has are gone. The caller holds the order of its file. */
void ds_client_remove(struct ds_client *client);

/*
 * The vCtx of this client on a GPU, made if need be; the caller holds file->order, and not client->tree.
 * ERR_PTR: -ENOMEM, -ENOSPC (too many limits).
 */
struct ds_vctx *ds_vctx_get(struct ds_client *client, u32 gpu);
/* The same, for memory on that GPU that the client comes to hold; it may have no device there. */
int ds_vctx_lasting(struct ds_client *client, u32 gpu);
/* The device that this vCtx was for was not made: without one before it, it goes. The caller holds file->order, and not client->tree. */
void ds_vctx_unused(struct ds_vctx *vctx);
/* The caller holds client->tree. NULL: none. */
struct ds_vctx *ds_vctx_find(struct ds_client *client, u32 gpu);
/* What events say of it; of use as long as the client is. */
struct ds_event_vctx ds_vctx_event(const struct ds_vctx *vctx);
/* DETSHARE_CMD_TSG_NEW, _GONE. Under client->tree. */
void ds_client_tell_tsg(u8 cmd, struct ds_client *client, const struct rm_object *tsg);
/* Under client->tree. */
bool ds_vctx_shown(const struct ds_vctx *vctx);
/* The GPU that objects of no GPU count for: the client's first one, or RM_GPU_NONE. Under client->tree. */
u32 ds_client_first_gpu(struct ds_client *client);

static inline struct rm_payer *ds_vctx_payer(struct ds_vctx *vctx)
{
	return &vctx->payer.core;
}

/* Locks the trees of two clients, which may be one. */
void ds_trees_lock(struct ds_client *a, struct ds_client *b);
void ds_trees_unlock(struct ds_client *a, struct ds_client *b);

struct ds_subject;
/* Processes with clients that a subject, which is held, means at this moment. */
unsigned int ds_clients_meant(const struct ds_subject *subject);

/* Clients, vCtxs and objects that are known, for status and leak checks. */
struct ds_totals {
	unsigned int files, clients, vctxs;
	u64 objects;
};

void ds_client_totals(struct ds_totals *totals);

/* Who else keeps something of clients, in the order in which they are told. */
enum ds_client_observers {
	DS_OBSERVER_SCHED,	/* runs and channel groups */
	DS_OBSERVER_USERD,	/* what channels say of themselves */
	DS_OBSERVERS
};

struct ds_client_observer {
	/* It is dying. Under client->tree. */
	void (*object_gone)(struct ds_client *client, struct rm_object *object);
	/* It goes, nobody finds it any more; may be NULL. No lock but ds_file.order. */
	void (*vctx_gone)(struct ds_vctx *vctx);
};

/* Each before the first client, and for as long as the module is. */
void ds_client_observe(enum ds_client_observers place, const struct ds_client_observer *observer);

void ds_client_exit(void);

#endif
