// SPDX-License-Identifier: GPL-2.0-only
/* What the filter did not let through. */
#include "compat.h"
#include "denials.h"
#include "netlink.h"

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_DENIED_PAD);
}

static int put_denial(struct sk_buff *skb, const struct ds_denial *denial)
{
	int err = nla_put_u32(skb, DETSHARE_A_DENIED_PID, denial->pid) ?:
		  nla_put_string(skb, DETSHARE_A_DENIED_COMM, denial->comm) ?:
		  nla_put_u32(skb, DETSHARE_A_DENIED_COMMAND, denial->command) ?:
		  nla_put_u32(skb, DETSHARE_A_DENIED_REASON, denial->reason) ?:
		  nla_put_u32(skb, DETSHARE_A_DENIED_STATUS, denial->status) ?:
		  put_u64(skb, DETSHARE_A_DENIED_COUNT, denial->count) ?:
		  put_u64(skb, DETSHARE_A_DENIED_LAST, denial->last);

	return !err && denial->vctx ? put_u64(skb, DETSHARE_A_DENIED_VCTX_ID, denial->vctx) : err;
}

int ds_nl_denied_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *pid = ds_dump_attrs(cb)[DETSHARE_A_DENIED_PID];
	struct ds_denial denial;
	void *header;

	for (; ds_denial_at(cb->args[0], &denial); cb->args[0]++) {
		if (pid && nla_get_u32(pid) != denial.pid)
			continue;
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_DENIED_GET);
		if (!header || ds_nl_entry_end(skb, header, put_denial(skb, &denial)))
			break;
	}
	return skb->len;
}
