// SPDX-License-Identifier: GPL-2.0-only
#include "channels.h"
#include "sharer.h"

bool ds_shares_groups(const struct ds_process *process)
{
	const struct ds_client *client;

	if (ds_sharer_shares(process))
		return true;
	list_for_each_entry(client, &ds_clients, link)
		if (client->process == process && (client->shared || (client->mps && client->partial)))
			return true;
	return false;
}

bool ds_tsg_computes(const struct ds_client *client, const struct rm_object *tsg)
{
	return tsg->kind == RM_KIND_TSG && ds_may_compute(tsg);
}

bool ds_channel_computes(const struct ds_client *client, const struct rm_object *channel, u32 gpu)
{
	const struct rm_object *parent;

	if (channel->kind != RM_KIND_CHANNEL || channel->gpu != gpu || channel->flags & RM_OBJECT_DUP)
		return false;
	parent = rm_tree_parent(&client->rm, channel);
	if (parent && parent->kind == RM_KIND_TSG)
		return ds_tsg_computes(client, parent);
	return ds_may_compute(channel);
}
