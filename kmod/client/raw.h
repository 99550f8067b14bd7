/* SPDX-License-Identifier: GPL-2.0-only */
/* Objects whose controls go to the firmware unread, those of RM_KIND_BINAPI: which they are, for who must know in atomic context. */
#ifndef DETSHARE_RAW_H
#define DETSHARE_RAW_H

#include <linux/types.h>

/* Before the object can be used. -ENOMEM. */
int ds_raw_new(u32 client, u32 object);
/* It died; harmless if it was none. */
void ds_raw_gone(u32 client, u32 object);
/* Any context. */
bool ds_raw_is(u32 client, u32 object);

void ds_raw_exit(void);

#endif
