// SPDX-License-Identifier: GPL-2.0-only
/* Holds by order. */
#include "compat.h"
#include "hold.h"
#include "netlink.h"

static const struct ds_nl_names names = {
	.pad = DETSHARE_A_HOLD_PAD,
	.kind = DETSHARE_A_HOLD_KIND,
	.pid = DETSHARE_A_HOLD_PID,
	.start = DETSHARE_A_HOLD_START_TIME,
	.cgroup = DETSHARE_A_HOLD_CGROUP_ID,
	.tenant = DETSHARE_A_HOLD_TENANT,
};

/* What was asked for, or stands. */
struct wish {
	bool gate, pause;
	u32 lease_ms;
};

static int put_hold(struct sk_buff *skb, const struct ds_subject *subject, const struct wish *wish,
		    const struct ds_hold_result *result)
{
	return ds_nl_put_subject(skb, &names, subject) ?:
	       nla_put_u8(skb, DETSHARE_A_HOLD_GATE, wish->gate) ?:
	       nla_put_u8(skb, DETSHARE_A_HOLD_PAUSE, wish->pause) ?:
	       nla_put_u32(skb, DETSHARE_A_HOLD_LEASE_MS, wish->lease_ms) ?:
	       nla_put_u32(skb, DETSHARE_A_HOLD_VCTXS, result->entities) ?:
	       nla_put_u32(skb, DETSHARE_A_HOLD_GATED, result->gated) ?:
	       nla_put_u32(skb, DETSHARE_A_HOLD_PAUSED, result->paused);
}

static int put_result(struct sk_buff *skb, const struct ds_hold_result *result)
{
	int err = nla_put_u32(skb, DETSHARE_A_HOLD_FAILED, result->failed) ?:
		  nla_put_u64_64bit(skb, DETSHARE_A_HOLD_GATE_NS, result->gate_ns, DETSHARE_A_HOLD_PAD) ?:
		  nla_put_u64_64bit(skb, DETSHARE_A_HOLD_PAUSE_NS, result->pause_ns, DETSHARE_A_HOLD_PAD);

	if (!err && result->status)
		err = nla_put_u32(skb, DETSHARE_A_HOLD_STATUS, result->status);
	if (!err && result->why)
		err = nla_put_string(skb, DETSHARE_A_HOLD_WHY, result->why);
	return err;
}

int ds_nl_hold_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = ds_dump_attrs(cb);
	struct ds_hold_info hold;
	struct wish wish;
	void *header;
	int err = 0;

	for (; !err && ds_hold_at(cb->args[0], &hold); ds_subject_put(&hold.subject)) {
		if (ds_nl_subject_asked(attrs, &names, &hold.subject)) {
			wish = (struct wish){ hold.gate, hold.pause, hold.left_ms };
			header = ds_nl_entry(skb, cb, DETSHARE_CMD_HOLD_GET);
			err = header ? ds_nl_entry_end(skb, header, put_hold(skb, &hold.subject, &wish, &hold.result)) :
				       -EMSGSIZE;
		}
		if (!err)
			cb->args[0]++;
	}
	return skb->len;
}

static int wish_of(struct genl_info *info, struct wish *wish)
{
	struct nlattr *gate = info->attrs[DETSHARE_A_HOLD_GATE], *pause = info->attrs[DETSHARE_A_HOLD_PAUSE];
	struct nlattr *lease = info->attrs[DETSHARE_A_HOLD_LEASE_MS];

	*wish = (struct wish){
		.gate = gate && nla_get_u8(gate),
		.pause = pause && nla_get_u8(pause),
		.lease_ms = lease ? nla_get_u32(lease) : DETSHARE_LEASE_MS,
	};
	if ((gate && nla_get_u8(gate) > 1) || (pause && nla_get_u8(pause) > 1)) {
		NL_SET_ERR_MSG(info->extack, "gate and pause are 0 or 1");
		return -ERANGE;
	}
	if (!wish->gate && !wish->pause) {
		NL_SET_ERR_MSG(info->extack, "hold how? add gate 1, pause 1 or both; to let go use hold-del");
		return -EINVAL;
	}
	if (!wish->lease_ms || wish->lease_ms > DETSHARE_LEASE_MAX_MS) {
		NL_SET_ERR_MSG_ATTR(info->extack, lease,
				    "lease-ms is 1 to 3600000, one hour: ask again before it ends to hold longer");
		return -ERANGE;
	}
	return 0;
}

static int answer(struct genl_info *info, const struct ds_subject *subject, const struct wish *wish,
		  const struct ds_hold_result *result)
{
	struct sk_buff *skb;
	void *header;

	skb = ds_nl_answer(info, &header);
	return skb ? ds_nl_answer_end(skb, header, info,
				      put_hold(skb, subject, wish, result) ?: put_result(skb, result)) : -ENOMEM;
}

int ds_nl_hold_set(struct sk_buff *request, struct genl_info *info)
{
	struct ds_hold_result result = { 0 };
	struct ds_subject subject;
	struct wish wish;
	int err;

	err = wish_of(info, &wish) ?: ds_nl_check_driver(info->extack) ?:
	      ds_nl_subject_watched(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_nl_done(ds_hold_set(&subject, wish.gate, wish.pause, wish.lease_ms, &result), info->extack);
	if (err == -EOPNOTSUPP && result.why && info->extack)
		info->extack->_msg = result.why;
	if (!err)
		err = answer(info, &subject, &wish, &result);
	ds_subject_put(&subject);
	return err;
}

int ds_nl_hold_del(struct sk_buff *request, struct genl_info *info)
{
	static const struct wish none;
	struct ds_hold_result result = { 0 };
	struct ds_subject subject;
	int err;

	err = ds_nl_subject_known(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_nl_done(ds_hold_del(&subject, &result), info->extack);
	if (err == -ENOENT)
		NL_SET_ERR_MSG(info->extack, "nobody ordered it to be held, or the lease is over: hold-get lists holds, entity-get says what else may hold it");
	else if (!err)
		err = answer(info, &subject, &none, &result);
	ds_subject_put(&subject);
	return err;
}
