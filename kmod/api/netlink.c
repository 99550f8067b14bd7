// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>

#include "driver.h"
#include "events.h"
#include "netlink.h"
#include "nl_policy.h"
#include "process.h"
#include "run.h"

#define DO(number, name, set, handler) { \
	.cmd = DETSHARE_CMD_##number, \
	.flags = GENL_ADMIN_PERM, \
	.policy = detshare_##name##_policy, \
	.maxattr = DETSHARE_A_##set##_MAX, \
	.doit = handler, \
}

#define DUMP(number, name, set, handler) { \
	.cmd = DETSHARE_CMD_##number, \
	.flags = GENL_ADMIN_PERM, \
	.policy = detshare_##name##_policy, \
	.maxattr = DETSHARE_A_##set##_MAX, \
	.dumpit = handler, \
}

static const struct genl_ops ops[] = {
	DO(STATUS_GET, status_get, STATUS, ds_nl_status_get),
	DUMP(GPU_GET, gpu_get, GPU, ds_nl_gpu_dump),
	DUMP(VCTX_GET, vctx_get, VCTX, ds_nl_vctx_dump),
	DUMP(TSG_GET, tsg_get, TSG, ds_nl_tsg_dump),
	DUMP(LIMIT_GET, limit_get, LIMIT, ds_nl_limit_dump),
	DO(LIMIT_SET, limit_set, LIMIT, ds_nl_limit_set),
	DO(LIMIT_DEL, limit_del, LIMIT, ds_nl_limit_del),
	DUMP(TENANT_GET, tenant_get, TENANT, ds_nl_tenant_dump),
	DO(TENANT_SET, tenant_set, TENANT, ds_nl_tenant_set),
	DO(TENANT_DEL, tenant_del, TENANT, ds_nl_tenant_del),
	DUMP(SCHED_GET, sched_get, SCHED, ds_nl_sched_dump),
	DO(SCHED_SET, sched_set, SCHED, ds_nl_sched_set),
	DO(SCHED_DEL, sched_del, SCHED, ds_nl_sched_del),
	DUMP(CLASS_GET, class_get, CLASS, ds_nl_class_dump),
	DO(CLASS_SET, class_set, CLASS, ds_nl_class_set),
	DO(CLASS_DEL, class_del, CLASS, ds_nl_class_del),
	DUMP(BUCKET_GET, bucket_get, BUCKET, ds_nl_bucket_dump),
	DO(BUCKET_SET, bucket_set, BUCKET, ds_nl_bucket_set),
	DO(BUCKET_DEL, bucket_del, BUCKET, ds_nl_bucket_del),
	DUMP(HOLD_GET, hold_get, HOLD, ds_nl_hold_dump),
	DO(HOLD_SET, hold_set, HOLD, ds_nl_hold_set),
	DO(HOLD_DEL, hold_del, HOLD, ds_nl_hold_del),
	DO(PREEMPT, preempt, SCHED, ds_nl_preempt),
	DUMP(RUN_GET, run_get, RUN, ds_nl_run_dump),
	DUMP(DENIED_GET, denied_get, DENIED, ds_nl_denied_dump),
};

static const struct genl_multicast_group groups[] = {
	{ .name = DETSHARE_MCGRP_EVENTS, .flags = GENL_MCAST_CAP_NET_ADMIN },
	{ .name = DETSHARE_MCGRP_ACTIVITY, .flags = GENL_MCAST_CAP_NET_ADMIN },
};

struct genl_family ds_family = {
	.name = DETSHARE_FAMILY_NAME,
	.version = DETSHARE_FAMILY_VERSION,
	.module = THIS_MODULE,
	/* orders wait for the driver: the kernel's lock of all families is not held meanwhile */
	.parallel_ops = true,
	.ops = ops,
	.n_ops = ARRAY_SIZE(ops),
	.resv_start_op = 1,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

static struct ds_process *find_process(u32 pid, u64 start, bool ended)
{
	struct ds_process *process;

	if (!pid || pid > PID_MAX_LIMIT)
		return ERR_PTR(-ESRCH);
	process = ds_process_get(pid);
	if (!IS_ERR(process) && start && process->start != start) {
		ds_process_put(process);
		process = ERR_PTR(-ESRCH);
	}
	return ended && PTR_ERR_OR_ZERO(process) == -ESRCH ? ds_process_get_ended(pid, start) : process;
}

static struct ds_process *named_process(struct nlattr *pid, struct nlattr *start, bool ended, struct netlink_ext_ack *extack)
{
	struct ds_process *process;

	if (!pid) {
		NL_SET_ERR_MSG(extack, "no process is named: add the attribute pid");
		return ERR_PTR(-EINVAL);
	}
	process = find_process(nla_get_u32(pid), start ? nla_get_u64(start) : 0, ended);
	if (PTR_ERR_OR_ZERO(process) == -ESRCH)
		NL_SET_ERR_MSG_ATTR(extack, pid,
				    "no such process: it ended, or the number is that of a thread or of another pid namespace");
	return process;
}

struct ds_process *ds_nl_process(struct nlattr *pid, struct nlattr *start, struct netlink_ext_ack *extack)
{
	return named_process(pid, start, false, extack);
}

struct ds_process *ds_nl_process_known(struct nlattr *pid, struct nlattr *start, struct netlink_ext_ack *extack)
{
	return named_process(pid, start, true, extack);
}

int ds_nl_check_driver(struct netlink_ext_ack *extack)
{
	struct ds_driver_status driver;

	ds_driver_status(&driver);
	if (driver.mode != DETSHARE_MODE_OBSERVE)
		return 0;
	NL_SET_ERR_MSG(extack,
		       "the loaded driver can only be observed (see the kernel log): nobody can be limited, ordered or held");
	return -EOPNOTSUPP;
}

bool ds_nl_name_is_good(const char *name)
{
	const char *c;

	for (c = name; *c; c++)
		if (*c <= ' ' || *c == 0x7f)
			return false;
	return c != name;
}

struct sk_buff *ds_nl_answer(struct genl_info *info, void **header)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);

	if (!skb)
		return NULL;
	*header = genlmsg_put_reply(skb, info, &ds_family, 0, info->genlhdr->cmd);
	if (!*header) {
		nlmsg_free(skb);
		return NULL;
	}
	return skb;
}

int ds_nl_answer_end(struct sk_buff *skb, void *header, struct genl_info *info, int err)
{
	if (err) {
		nlmsg_free(skb);
		return err;
	}
	genlmsg_end(skb, header);
	return genlmsg_reply(skb, info);
}

void *ds_nl_entry(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd)
{
	return genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &ds_family,
			   NLM_F_MULTI, cmd);
}

int ds_nl_entry_end(struct sk_buff *skb, void *header, int err)
{
	if (err)
		genlmsg_cancel(skb, header);
	else
		genlmsg_end(skb, header);
	return err;
}

int ds_netlink_init(void)
{
	int err = genl_register_family(&ds_family);

	if (!err)
		ds_events_enable(&ds_family, ds_lanes_stale);
	return err;
}

void ds_netlink_exit(void)
{
	ds_events_disable();
	genl_unregister_family(&ds_family);
}
