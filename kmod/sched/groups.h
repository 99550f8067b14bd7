/* SPDX-License-Identifier: GPL-2.0-only */
/* Channel groups and channels that come and go: they have entities, and what is ordered for them. */
#ifndef DETSHARE_GROUPS_H
#define DETSHARE_GROUPS_H

#include "client.h"

/* The driver has made this channel group. Waits for it to get what is ordered. Not under client->tree. */
void ds_tsg_new(struct ds_client *client, u32 handle);
/* The driver has made a channel. Its group may be a duplicate of another client's, or none, so that no group has made the entity. */
void ds_channel_new(struct ds_client *client, u32 handle);
/*
 * A graphics or compute object, or a context share: its channel group can have a ceiling from now on, or needs it there too. As above.
 * true: the group computes, though not by its engine, and was taken in.
 */
bool ds_tsg_part_new(struct ds_client *client, u32 handle);
/* A client that is older than the module was found, with channel groups. Holds only ds_file.order. */
void ds_tsgs_found(struct ds_client *client);

/* From here on runs and channel groups end with what clients lose, and follow what rules say. */
int ds_groups_init(void);

#endif
