/* SPDX-License-Identifier: GPL-2.0-only */
/* Objects that the driver freed with another one, by a tie between them that nobody saw. */
#ifndef DETSHARE_LOST_H
#define DETSHARE_LOST_H

#include "client.h"

/* Has the driver nothing of this kind by this handle? If it does not say, it has. As the calls of rmcall.h. */
bool ds_lost(u32 client, u32 handle, enum rm_kind kind);
/*
 * The driver has freed a VA space, or else an object that nobody saw made: what it freed with that leaves the tree. The caller holds file->order,
 * so nothing is made meanwhile.
 */
void ds_lost_drop(struct ds_client *client, bool space);

#endif
