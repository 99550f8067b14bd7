/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Handle -> index, for one client: open addressing, linear probing, at most
 * three quarters full, no tombstones. A tenant chooses its handles, so the
 * hash has a random key per client: it cannot be made to collide.
 */
#ifndef DETSHARE_RM_HANDLES_H
#define DETSHARE_RM_HANDLES_H

#include "tree.h"

struct rm_slot {
	u32 handle;
	u32 index;	/* 0: empty */
};

int rm_handles_init(struct rm_client *client);
void rm_handles_destroy(struct rm_client *client);

/* Room for n handles in all. -ENOMEM leaves the table as it was. */
int rm_handles_reserve(struct rm_client *client, u32 n);


/* 0: not there. */
u32 rm_handles_find(const struct rm_client *client, u32 handle);

/* The handle is not there, and room was reserved. */
void rm_handles_insert(struct rm_client *client, u32 handle, u32 index);

void rm_handles_remove(struct rm_client *client, u32 handle);

#endif /* DETSHARE_RM_HANDLES_H */
