// SPDX-License-Identifier: GPL-2.0-only
#include "channels.h"
#include "guest.h"
#include "sched.h"

struct ds_client *ds_run_client_lock(const struct ds_run *run)
{
	struct ds_client *client;
	struct ds_vctx *vctx;
	bool same = false;

	down_read(&ds_clients_lock);
	client = ds_client_find(run->client);
	if (client && client->process == run->process) {
		mutex_lock(&client->tree);
		vctx = ds_vctx_find(client, run->gpu);
		same = vctx && vctx->run == run;
		mutex_unlock(&client->tree);
	}
	if (same)
		return client;
	up_read(&ds_clients_lock);
	return NULL;
}

void ds_run_client_unlock(void)
{
	up_read(&ds_clients_lock);
}

bool ds_shares_groups(const struct ds_process *process)
{
	const struct ds_client *client;

	if (ds_guest_shares(process))
		return true;
	list_for_each_entry(client, &ds_clients, link)
		if (client->process == process && (client->shared || (client->mps && client->partial)))
			return true;
	return false;
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
