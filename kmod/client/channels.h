/* SPDX-License-Identifier: GPL-2.0-only */
/* What a client has of channels, for those who ask the driver about them or have it act on them. */
#ifndef DETSHARE_CHANNELS_H
#define DETSHARE_CHANNELS_H

#include "client.h"

/*
 * Does the process share channel groups with others (MPS)? Who was seen from the beginning shares what others were seen to duplicate; of
 * who is older than the module an MPS object says it. Under ds_clients_lock.
 */
bool ds_shares_groups(const struct ds_process *process);
/* Does the engine itself compute? 0: not known. */
static inline bool ds_engine_computes(u32 engine)
{
	return engine >= NV2080_ENGINE_TYPE_GR0 && engine <= NV2080_ENGINE_TYPE_GR7;
}

/*
 * May this channel or channel group compute? Copy engines share the run list of a graphics engine, so a group of theirs with a graphics or
 * compute object in it may as well; of one that is older than the module the engine is not known. Under client->tree.
 */
static inline bool ds_may_compute(const struct rm_object *object)
{
	return ds_engine_computes(object->engine) || object->flags & RM_OBJECT_WORKED;
}

/* Is it a channel group that may compute, as ds_may_compute() has it? Under client->tree. */
bool ds_tsg_computes(const struct ds_client *client, const struct rm_object *tsg);
/* Is it a channel of the client's own on this GPU that may compute? Under client->tree. */
bool ds_channel_computes(const struct ds_client *client, const struct rm_object *channel, u32 gpu);

#endif
