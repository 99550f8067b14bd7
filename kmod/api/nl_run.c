// SPDX-License-Identifier: GPL-2.0-only
/* What runs. */
#include "compat.h"
#include "denials.h"
#include "netlink.h"
#include "run.h"

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_RUN_PAD);
}

static int put_rule(struct sk_buff *skb, const struct ds_rule *rule)
{
	int err = 0;

	if (rule->class[0])
		err = nla_put_string(skb, DETSHARE_A_RUN_CLASS, rule->class);
	if (!err && rule->weight)
		err = nla_put_u32(skb, DETSHARE_A_RUN_WEIGHT, rule->weight);
	return err;
}

static int put_gate(struct sk_buff *skb, const struct ds_gate_stats *gate)
{
	return put_u64(skb, DETSHARE_A_RUN_KICKS, gate->kicks) ?:
	       put_u64(skb, DETSHARE_A_RUN_FAULTS, gate->faults) ?:
	       put_u64(skb, DETSHARE_A_RUN_WAITS, gate->waits) ?:
	       put_u64(skb, DETSHARE_A_RUN_WAIT_NS, gate->wait_ns) ?:
	       nla_put_u32(skb, DETSHARE_A_RUN_WAITING, gate->waiting) ?:
	       nla_put_u32(skb, DETSHARE_A_RUN_DOORS, gate->doors) ?:
	       nla_put_u32(skb, DETSHARE_A_RUN_DOORS_UNKNOWN, gate->assumed);
}

static int put_run(struct sk_buff *skb, const struct ds_run_info *run)
{
	int err = put_u64(skb, DETSHARE_A_RUN_VCTX_ID, run->vctx) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_PID, ds_process_nr(run->process)) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_GPU, run->gpu) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_CLIENT, run->client) ?:
		  put_rule(skb, &run->rule) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_STATE, run->state) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_REASONS, run->reasons) ?:
		  put_u64(skb, DETSHARE_A_RUN_IDLE_NS, run->idle_ns) ?:
		  put_gate(skb, &run->gate) ?:
		  put_u64(skb, DETSHARE_A_RUN_USED_US, run->used_us) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_TSGS, run->tsgs) ?:
		  nla_put_u32(skb, DETSHARE_A_RUN_CHANNELS_OFF, run->channels_off) ?:
		  put_u64(skb, DETSHARE_A_RUN_DENIED, ds_denials_of(run->vctx));

	if (!err && run->last_ns)
		err = put_u64(skb, DETSHARE_A_RUN_LAST_KICK, run->last_ns);
	if (!err && run->held_ns)
		err = put_u64(skb, DETSHARE_A_RUN_HELD_SINCE, run->held_ns);
	if (!err && run->tpc_percent)
		err = nla_put_u32(skb, DETSHARE_A_RUN_TPC_PERCENT, run->tpc_percent);
	return err;
}

int ds_nl_run_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *pid = ds_dump_attrs(cb)[DETSHARE_A_RUN_PID];
	struct ds_run_info run;
	void *header;
	int err = 0;

	for (; !err && ds_run_at(cb->args[0], &run); ds_process_put(run.process)) {
		if (!pid || nla_get_u32(pid) == ds_process_nr(run.process)) {
			header = ds_nl_entry(skb, cb, DETSHARE_CMD_RUN_GET);
			err = header ? ds_nl_entry_end(skb, header, put_run(skb, &run)) : -EMSGSIZE;
		}
		if (!err)
			cb->args[0]++;
	}
	return skb->len;
}
