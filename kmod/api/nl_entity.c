// SPDX-License-Identifier: GPL-2.0-only
/* What entities. */
#include "compat.h"
#include "denials.h"
#include "netlink.h"
#include "entity.h"

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_ENTITY_PAD);
}

static int put_rule(struct sk_buff *skb, const struct ds_rule *rule)
{
	int err = 0;

	if (rule->class[0])
		err = nla_put_string(skb, DETSHARE_A_ENTITY_CLASS, rule->class);
	if (!err && rule->weight)
		err = nla_put_u32(skb, DETSHARE_A_ENTITY_WEIGHT, rule->weight);
	return err;
}

static int put_gate(struct sk_buff *skb, const struct ds_gate_stats *gate)
{
	return put_u64(skb, DETSHARE_A_ENTITY_KICKS, gate->kicks) ?:
	       put_u64(skb, DETSHARE_A_ENTITY_FAULTS, gate->faults) ?:
	       put_u64(skb, DETSHARE_A_ENTITY_WAITS, gate->waits) ?:
	       put_u64(skb, DETSHARE_A_ENTITY_WAIT_NS, gate->wait_ns) ?:
	       nla_put_u32(skb, DETSHARE_A_ENTITY_WAITING, gate->waiting) ?:
	       nla_put_u32(skb, DETSHARE_A_ENTITY_DOORS, gate->doors) ?:
	       nla_put_u32(skb, DETSHARE_A_ENTITY_DOORS_UNKNOWN, gate->assumed);
}

static int put_entity(struct sk_buff *skb, const struct ds_entity_info *entity)
{
	int err = put_u64(skb, DETSHARE_A_ENTITY_VCTX_ID, entity->vctx) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_PID, ds_process_nr(entity->process)) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_GPU, entity->gpu) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_CLIENT, entity->client) ?:
		  put_rule(skb, &entity->rule) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_STATE, entity->state) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_REASONS, entity->reasons) ?:
		  put_u64(skb, DETSHARE_A_ENTITY_IDLE_NS, entity->idle_ns) ?:
		  put_gate(skb, &entity->gate) ?:
		  put_u64(skb, DETSHARE_A_ENTITY_USED_US, entity->used_us) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_TSGS, entity->tsgs) ?:
		  nla_put_u32(skb, DETSHARE_A_ENTITY_CHANNELS_OFF, entity->channels_off) ?:
		  put_u64(skb, DETSHARE_A_ENTITY_DENIED, ds_denials_of(entity->vctx));

	if (!err && entity->last_ns)
		err = put_u64(skb, DETSHARE_A_ENTITY_LAST_KICK, entity->last_ns);
	if (!err && entity->held_ns)
		err = put_u64(skb, DETSHARE_A_ENTITY_HELD_SINCE, entity->held_ns);
	if (!err && entity->tpc_percent)
		err = nla_put_u32(skb, DETSHARE_A_ENTITY_TPC_PERCENT, entity->tpc_percent);
	return err;
}

int ds_nl_entity_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *pid = ds_dump_attrs(cb)[DETSHARE_A_ENTITY_PID];
	struct ds_entity_info entity;
	void *header;
	int err = 0;

	for (; !err && ds_entity_at(cb->args[0], &entity); ds_process_put(entity.process)) {
		if (!pid || nla_get_u32(pid) == ds_process_nr(entity.process)) {
			header = ds_nl_entry(skb, cb, DETSHARE_CMD_ENTITY_GET);
			err = header ? ds_nl_entry_end(skb, header, put_entity(skb, &entity)) : -EMSGSIZE;
		}
		if (!err)
			cb->args[0]++;
	}
	return skb->len;
}
