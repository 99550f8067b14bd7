/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sharers: clients that have a duplicate of a channel group of another process, or of what is in one, from whomever they have it: who
 * duplicates from a sharer is a sharer of the same hosts. Who manages a host manages what they do.
 */
#ifndef DETSHARE_SHARER_H
#define DETSHARE_SHARER_H

#include <linux/types.h>

#include "rm/abi.h"

struct ds_process;

/*
 * The client of `process` is about to get such a duplicate. Calls on its file follow each other, so that all of its that is asked for is
 * of one call. ds_sharer_new(): of an object of the host. ds_sharer_copy(): of an object of the client `from`, with whatever that one is a
 * sharer of: which of its objects will turn out to be duplicated nobody knows yet. -ENOMEM; -ENOSPC: it has so many already.
 */
int ds_sharer_new(u32 client, struct ds_process *process, struct ds_process *host);
int ds_sharer_copy(u32 client, struct ds_process *process, u32 from);
/* Changes whenever the client becomes the sharer of one more. */
u32 ds_sharer_count(u32 client);
/* What was asked for was made with this handle, 0: not made. `group`: a whole channel group, which both have in common now. */
void ds_sharer_settle(u32 client, struct ds_process *process, u32 object, bool group);
/* The object died; harmless if it was none. */
void ds_sharer_gone(u32 client, const struct ds_process *process, u32 object);
/* Has it a channel group in common with another process, as host or as sharer? */
bool ds_sharer_shares(const struct ds_process *process);
/* Can an object of this kind be used to order about a channel group? */
bool ds_sharer_steers(enum rm_kind kind);

/* The first host of the client of which is_meant() is true; what it says. Sleeps if that does. */
bool ds_sharer_any(u32 client, bool (*is_meant)(struct ds_process *host));

void ds_sharer_exit(void);

#endif
