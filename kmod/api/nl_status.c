// SPDX-License-Identifier: GPL-2.0-only
/* What is in force, and the GPUs. */
#include <linux/module.h>

#include "ceiling.h"
#include "client.h"
#include "closed.h"
#include "compat.h"
#include "denials.h"
#include "driver.h"
#include "events.h"
#include "gate.h"
#include "gpu.h"
#include "hook.h"
#include "runq.h"
#include "lease.h"
#include "netlink.h"
#include "memref.h"
#include "entity.h"
#include "stats.h"

static int put_hook(const char *name, void *data)
{
	return nla_put_string(data, DETSHARE_A_STATUS_HOOK, name);
}

static int put_lapse(const char *lapse, void *data)
{
	return nla_put_string(data, DETSHARE_A_STATUS_LAPSE, lapse);
}

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_STATUS_PAD);
}

int ds_nl_status_get(struct sk_buff *request, struct genl_info *info)
{
	struct ds_driver_status driver;
	struct ds_totals totals;
	struct ds_stats stats;
	struct sk_buff *skb;
	void *header;
	int err;

	skb = ds_nl_answer(info, &header);
	if (!skb)
		return -ENOMEM;
	ds_driver_status(&driver);
	ds_client_totals(&totals);
	ds_stats_sum(&stats);
	err = nla_put_string(skb, DETSHARE_A_STATUS_MODULE_VERSION, THIS_MODULE->version) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_ABI, driver.abi) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_MODE, driver.mode) ?:
	      nla_put_u8(skb, DETSHARE_A_STATUS_SHIELD, driver.shield) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_GPUS, ds_gpu_count()) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_VCTXS, totals.vctxs) ?:
	      put_u64(skb, DETSHARE_A_STATUS_OBJECTS, totals.objects) ?:
	      put_u64(skb, DETSHARE_A_STATUS_CALLS, stats.calls) ?:
	      put_u64(skb, DETSHARE_A_STATUS_REFUSED, stats.refused) ?:
	      put_u64(skb, DETSHARE_A_STATUS_EVENTS_LOST, ds_events_lost()) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_INFLIGHT, ds_hook_count_inside()) ?:
	      put_u64(skb, DETSHARE_A_STATUS_DENIED, ds_denials_total()) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_HOLDS, ds_hold_count()) ?:
	      nla_put_u32(skb, DETSHARE_A_STATUS_WAITING, ds_gates_waiting()) ?:
	      nla_put_u8(skb, DETSHARE_A_STATUS_FAIL_CLOSED, ds_closed_asked()) ?:
	      put_u64(skb, DETSHARE_A_STATUS_CLOSED, stats.closed) ?:
	      ds_closed_each_lapse(put_lapse, skb);
	if (!err && driver.version[0])
		err = nla_put_string(skb, DETSHARE_A_STATUS_DRIVER_VERSION, driver.version);
	if (!err)
		err = ds_driver_each_hook(put_hook, skb);
	if (!err)
		err = ds_nl_put_mechanisms(skb, driver.mode);
	return ds_nl_answer_end(skb, header, info, err);
}

/* Bytes charged and vCtxs on a GPU. */
static void sum_gpu(u32 gpu, u64 *used, u32 *vctxs)
{
	struct ds_client *client;
	struct ds_vctx *vctx;

	*used = ds_memrefs_kept(gpu);
	*vctxs = 0;
	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link) {
		mutex_lock(&client->tree);
		vctx = ds_vctx_find(client, gpu);
		if (vctx) {
			*used += rm_payer_bytes(ds_vctx_payer(vctx));
			(*vctxs)++;
		}
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
}

static int put_gpu(struct sk_buff *skb, u32 at, const struct ds_gpu *gpu)
{
	struct ds_rotation_info turn;
	u32 vctxs, status = 0;
	enum detshare_ability ceiling = ds_ceiling_ability(at, &status);
	u64 used;
	int err;

	sum_gpu(at, &used, &vctxs);
	ds_runq_tell(at, &turn);
	err = nla_put_u32(skb, DETSHARE_A_GPU_GPU, at) ?:
	      nla_put_u64_64bit(skb, DETSHARE_A_GPU_USED, used, DETSHARE_A_GPU_PAD) ?:
	      nla_put_u32(skb, DETSHARE_A_GPU_VCTXS, vctxs) ?:
	      nla_put_u32(skb, DETSHARE_A_GPU_CEILING, ceiling) ?:
	      nla_put_u32(skb, DETSHARE_A_GPU_TURN_MODE, turn.mode);
	if (!err && turn.vctx)
		err = nla_put_u64_64bit(skb, DETSHARE_A_GPU_TURN_VCTX, turn.vctx, DETSHARE_A_GPU_PAD) ?:
		      nla_put_u32(skb, DETSHARE_A_GPU_TURN_PID, turn.pid) ?:
		      nla_put_u64_64bit(skb, DETSHARE_A_GPU_TURN_LEFT_MS, turn.left_ms, DETSHARE_A_GPU_PAD);
	if (!err && ceiling == DETSHARE_ABILITY_ABSENT)
		err = nla_put_u32(skb, DETSHARE_A_GPU_CEILING_STATUS, status);
	if (!err && gpu->uuid[0])
		err = nla_put_string(skb, DETSHARE_A_GPU_UUID, gpu->uuid);
	if (!err && gpu->total)
		err = nla_put_u64_64bit(skb, DETSHARE_A_GPU_TOTAL, gpu->total, DETSHARE_A_GPU_PAD);
	return err;
}

int ds_nl_gpu_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct ds_gpu gpu;
	void *header;

	for (; cb->args[0] < RM_GPUS; cb->args[0]++) {
		if (!ds_gpu_get(cb->args[0], &gpu))
			continue;
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_GPU_GET);
		if (!header || ds_nl_entry_end(skb, header, put_gpu(skb, cb->args[0], &gpu)))
			break;
	}
	return skb->len;
}
