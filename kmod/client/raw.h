/* SPDX-License-Identifier: GPL-2.0-only */
/* Objects whose controls go to the firmware unread, those of RM_KIND_BINAPI: which they are, for who must know in atomic context. */
#ifndef DETSHARE_RAW_H
#define DETSHARE_RAW_H

#include <linux/types.h>

struct ds_client;

/* Before the object can be used. -ENOMEM; -ENOSPC: the client has so many already. `exists`: it is there, so it is noted however many there are. */
int ds_raw_new(struct ds_client *client, u32 object, bool exists);
/* It died; harmless if it was none. */
void ds_raw_gone(struct ds_client *client, u32 object);
/* Any context. */
bool ds_raw_is(u32 client, u32 object);

int ds_raw_init(void);
void ds_raw_exit(void);

#endif
