/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guests: clients that have a duplicate of a channel group of another process, or of what is in one. Who manages that process manages
 * what they do.
 */
#ifndef DETSHARE_GUEST_H
#define DETSHARE_GUEST_H

#include <linux/types.h>

#include "rm/abi.h"

struct ds_process;

/* The client has got such a duplicate. -ENOMEM. */
int ds_guest_new(u32 client, u32 object, struct ds_process *host);
/* The object died, or was not made after all; harmless if it was none. host NULL: whoever's. */
void ds_guest_gone(u32 client, u32 object, const struct ds_process *host);
/* Can an object of this kind be used to order about a channel group? */
bool ds_guest_steers(enum rm_kind kind);

/* The first host of the client of which is_meant() is true; what it says. Sleeps if that does. */
bool ds_guest_any(u32 client, bool (*is_meant)(struct ds_process *host));

void ds_guest_exit(void);

#endif
