/* SPDX-License-Identifier: GPL-2.0-only */
/* The compute channels of a run, for those who ask the driver about them or have it act on them. */
#ifndef DETSHARE_CHANNELS_H
#define DETSHARE_CHANNELS_H

#include "run.h"

/* The run's client, with ds_clients_lock held for reading; NULL, and not locked: it has gone. */
struct ds_client *ds_run_client_lock(const struct ds_run *run);
void ds_run_client_unlock(void);
/*
 * Does the process share channel groups with others (MPS)? Who was seen from the beginning shares what others were seen to duplicate; of
 * who is older than the module an MPS object says it. Under ds_clients_lock.
 */
bool ds_shares_groups(const struct ds_process *process);
/* Is it a channel of the client's own on this GPU that may compute? Under client->tree. */
bool ds_channel_computes(const struct ds_client *client, const struct rm_object *channel, u32 gpu);

#endif
