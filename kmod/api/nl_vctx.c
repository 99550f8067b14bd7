// SPDX-License-Identifier: GPL-2.0-only
/* Virtual contexts and channel groups. */
#include "channels.h"
#include "client.h"
#include "compat.h"
#include "netlink.h"
#include "orders.h"
#include "memref.h"
#include "rmcall.h"
#include "sched.h"
#include "tenant.h"
#include "uvm.h"

#define TSGS_AT_ONCE 32

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_VCTX_PAD);
}

/* Is it the vCtx on which what belongs to the whole process is shown? Under ds_clients_lock and client->tree. */
static bool first_of_process(const struct ds_vctx *vctx)
{
	const struct ds_client *client;

	list_for_each_entry(client, &ds_clients, link)
		if (client->process == vctx->client->process)
			break;
	return client == vctx->client && vctx->gpu == ds_client_first_gpu(vctx->client);
}

struct sums {
	u64 bytes;
	u32 objects;
	u32 count[RM_KINDS];
};

static void add_vctx(struct sums *sums, struct ds_vctx *vctx)
{
	const struct rm_payer *payer = ds_vctx_payer(vctx);
	unsigned int kind;

	sums->bytes += rm_payer_bytes(payer) + ds_residual_kept(vctx->residual);
	sums->objects += payer->objects;
	for (kind = 0; kind < RM_KINDS; kind++)
		sums->count[kind] += payer->count[kind];
}

/* Under client->tree: the vCtx, and with the client's first GPU what belongs to none. */
static void sum_vctx(struct ds_vctx *vctx, struct sums *sums)
{
	struct ds_client *client = vctx->client;

	memset(sums, 0, sizeof(*sums));
	add_vctx(sums, vctx);
	if (vctx->gpu != RM_GPU_NONE && vctx->gpu == ds_client_first_gpu(client))
		add_vctx(sums, ds_vctx_find(client, RM_GPU_NONE));
}

static int put_process(struct sk_buff *skb, struct ds_client *client)
{
	struct ds_process *process = client->process;
	char comm[TASK_COMM_LEN];
	struct ds_tenant *tenant;
	struct ds_order order;
	int err;

	ds_process_comm(process, comm);
	err = nla_put_u32(skb, DETSHARE_A_VCTX_PID, ds_process_nr(process)) ?:
	      put_u64(skb, DETSHARE_A_VCTX_START_TIME, process->start) ?:
	      nla_put_string(skb, DETSHARE_A_VCTX_COMM, comm);
	if (!err && process->cgroup && cgroup_parent(process->cgroup))
		err = put_u64(skb, DETSHARE_A_VCTX_CGROUP_ID, cgroup_id(process->cgroup));
	tenant = process->tenant;
	if (!err && tenant)
		err = nla_put_string(skb, DETSHARE_A_VCTX_TENANT, tenant->name);
	if (!err && ds_orders_of(process, &order) && order.class[0])
		err = nla_put_string(skb, DETSHARE_A_VCTX_CLASS, order.class);
	return err;
}

static int put_vctx(struct sk_buff *skb, struct ds_vctx *vctx)
{
	struct ds_client *client = vctx->client;
	struct sums sums;
	int err;

	sum_vctx(vctx, &sums);
	err = put_u64(skb, DETSHARE_A_VCTX_VCTX_ID, vctx->id) ?:
	      nla_put_u32(skb, DETSHARE_A_VCTX_CLIENT, client->rm.handle) ?:
	      nla_put_u8(skb, DETSHARE_A_VCTX_PARTIAL, client->partial) ?:
	      put_u64(skb, DETSHARE_A_VCTX_MEMORY_USED, sums.bytes) ?:
	      nla_put_u32(skb, DETSHARE_A_VCTX_TSGS, sums.count[RM_KIND_TSG]) ?:
	      nla_put_u32(skb, DETSHARE_A_VCTX_CHANNELS, sums.count[RM_KIND_CHANNEL]) ?:
	      nla_put_u32(skb, DETSHARE_A_VCTX_CTXSHARES, sums.count[RM_KIND_CTXSHARE]) ?:
	      nla_put_u32(skb, DETSHARE_A_VCTX_USERMODES, sums.count[RM_KIND_USERMODE]) ?:
	      nla_put_u32(skb, DETSHARE_A_VCTX_OBJECTS, sums.objects) ?:
	      put_u64(skb, DETSHARE_A_VCTX_REFUSED, atomic64_read(&vctx->refused)) ?:
	      nla_put_u8(skb, DETSHARE_A_VCTX_MPS, client->mps);
	if (!err && vctx->gpu != RM_GPU_NONE)
		err = nla_put_u32(skb, DETSHARE_A_VCTX_GPU, vctx->gpu);
	return err;
}

static bool asked_for(const struct nlattr *pid, const struct ds_client *client)
{
	return !pid || nla_get_u32(pid) == ds_process_nr(client->process);
}

/* One entry; under ds_limits_lock (for the tenant), ds_clients_lock and client->tree. */
static int put_entry(struct sk_buff *skb, struct netlink_callback *cb, struct ds_vctx *vctx)
{
	struct ds_client *client = vctx->client;
	u64 managed = first_of_process(vctx) ? ds_uvm_managed(client->process) : 0;
	void *header = ds_nl_entry(skb, cb, DETSHARE_CMD_VCTX_GET);
	int err;

	if (!header)
		return -EMSGSIZE;
	err = put_process(skb, client) ?: put_vctx(skb, vctx) ?:
	      put_u64(skb, DETSHARE_A_VCTX_MANAGED, managed);
	return ds_nl_entry_end(skb, header, err);
}

int ds_nl_vctx_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *pid = ds_dump_attrs(cb)[DETSHARE_A_VCTX_PID];
	struct ds_client *client;
	struct ds_vctx *vctx;
	long at = 0;
	int err = 0;

	if (!cb->args[0])
		ds_limits_refresh();
	mutex_lock(&ds_limits_lock);
	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link) {
		if (err)
			break;
		if (!asked_for(pid, client))
			continue;
		mutex_lock(&client->tree);
		list_for_each_entry(vctx, &client->vctxs, link) {
			if (at++ < cb->args[0] || !ds_vctx_shown(vctx))
				continue;
			err = put_entry(skb, cb, vctx);
			if (err)
				break;
			cb->args[0] = at;
		}
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	mutex_unlock(&ds_limits_lock);
	return skb->len;
}

/* ---- channel groups ---------------------------------------------------------- */

struct tsg {
	u64 vctx;
	u32 pid, client, handle, gpu, engine, channels;
	struct ds_tsg_state state;
	bool computes;
};

static u32 count_channels(struct ds_client *client, const struct rm_object *tsg)
{
	const struct rm_object *child;
	u32 count = 0;

	for (child = rm_tree_child(&client->rm, tsg); child; child = rm_tree_sibling(&client->rm, child))
		count += child->kind == RM_KIND_CHANNEL;
	return count;
}

static void describe(struct tsg *tsg, struct ds_client *client, const struct rm_object *object)
{
	struct ds_vctx *vctx = ds_vctx_find(client, object->gpu);

	*tsg = (struct tsg){
		.vctx = vctx ? vctx->id : 0,
		.pid = ds_process_nr(client->process),
		.client = client->rm.handle,
		.handle = object->handle,
		.gpu = object->gpu,
		.engine = object->engine,
		.channels = count_channels(client, object),
		.computes = ds_tsg_computes(client, object),
	};
	ds_sched_state(object, &tsg->state);
}

/* Channel groups from the skip-th on. */
static unsigned int collect(const struct nlattr *pid, long skip, struct tsg *tsgs)
{
	struct ds_client *client;
	struct rm_object *object;
	unsigned int count = 0;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link) {
		if (!asked_for(pid, client))
			continue;
		mutex_lock(&client->tree);
		for (object = NULL; count < TSGS_AT_ONCE &&
				    (object = rm_tree_next(&client->rm, object));)
			if (object->kind == RM_KIND_TSG && skip-- <= 0)
				describe(&tsgs[count++], client, object);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return count;
}

static int put_tsg(struct sk_buff *skb, const struct tsg *tsg)
{
	u64 slice;
	int err;

	err = nla_put_u64_64bit(skb, DETSHARE_A_TSG_VCTX_ID, tsg->vctx, DETSHARE_A_TSG_PAD) ?:
	      nla_put_u32(skb, DETSHARE_A_TSG_PID, tsg->pid) ?:
	      nla_put_u32(skb, DETSHARE_A_TSG_CLIENT, tsg->client) ?:
	      nla_put_u32(skb, DETSHARE_A_TSG_HANDLE, tsg->handle) ?:
	      nla_put_u32(skb, DETSHARE_A_TSG_ENGINE, tsg->engine) ?:
	      nla_put_u8(skb, DETSHARE_A_TSG_COMPUTE, tsg->computes) ?:
	      nla_put_u32(skb, DETSHARE_A_TSG_CHANNELS, tsg->channels) ?:
	      nla_put_u8(skb, DETSHARE_A_TSG_MANAGED, tsg->state.managed);
	if (!err && tsg->gpu != RM_GPU_NONE)
		err = nla_put_u32(skb, DETSHARE_A_TSG_GPU, tsg->gpu);
	if (!err && tsg->state.level >= 0)
		err = nla_put_u32(skb, DETSHARE_A_TSG_LEVEL, tsg->state.level);
	if (!err && tsg->state.slice_before)
		err = nla_put_u64_64bit(skb, DETSHARE_A_TSG_SLICE_BEFORE_US, tsg->state.slice_before,
					DETSHARE_A_TSG_PAD);
	if (!err && !ds_rm_get_slice(tsg->client, tsg->handle, &slice))
		err = nla_put_u64_64bit(skb, DETSHARE_A_TSG_SLICE_US, slice, DETSHARE_A_TSG_PAD);
	return err;
}

int ds_nl_tsg_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *pid = ds_dump_attrs(cb)[DETSHARE_A_TSG_PID];
	struct tsg *tsgs = kcalloc(TSGS_AT_ONCE, sizeof(*tsgs), GFP_KERNEL);
	unsigned int count, i;
	void *header;

	if (!tsgs)
		return -ENOMEM;
	count = collect(pid, cb->args[0], tsgs);
	for (i = 0; i < count; i++) {
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_TSG_GET);
		if (!header || ds_nl_entry_end(skb, header, put_tsg(skb, &tsgs[i])))
			break;
		cb->args[0]++;
	}
	kfree(tsgs);
	return skb->len;
}
