// SPDX-License-Identifier: GPL-2.0-only
#include <linux/capability.h>

#include "compat.h"
#include "events.h"
#include "family.h"
#include "netlink.h"
#include "nl_policy.h"
#include "entity.h"

/*
 * The kernel itself asks for CAP_NET_ADMIN, before it reads a message (GENL_ADMIN_PERM). Pods with the host's network have that one; it is no
 * right over other people's programs.
 */
static int check_rights(const struct sk_buff *skb, struct netlink_ext_ack *extack)
{
	if (netlink_capable(skb, CAP_SYS_ADMIN))
		return 0;
	NL_SET_ERR_MSG(extack, "this takes CAP_SYS_ADMIN in the initial user namespace");
	return -EPERM;
}

static int check_dump(struct netlink_callback *cb)
{
	return check_rights(cb->skb, cb->extack);
}

static int check_do(ds_genl_op *op, struct sk_buff *skb, struct genl_info *info)
{
	return check_rights(skb, info->extack);
}

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
	.start = check_dump, \
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
	DUMP(ENTITY_GET, entity_get, ENTITY, ds_nl_entity_dump),
	DUMP(DENIED_GET, denied_get, DENIED, ds_nl_denied_dump),
};

static const struct genl_multicast_group groups[] = {
	{ .name = DETSHARE_MCGRP_EVENTS, .flags = GENL_MCAST_CAP_NET_ADMIN | GENL_MCAST_CAP_SYS_ADMIN },
	{ .name = DETSHARE_MCGRP_ACTIVITY, .flags = GENL_MCAST_CAP_NET_ADMIN | GENL_MCAST_CAP_SYS_ADMIN },
};

static struct genl_family family = {
	.name = DETSHARE_FAMILY_NAME,
	.version = DETSHARE_FAMILY_VERSION,
	.module = THIS_MODULE,
	/* orders wait for the driver: the kernel's lock of all families is not held meanwhile */
	.parallel_ops = true,
	.pre_doit = check_do,
	.ops = ops,
	.n_ops = ARRAY_SIZE(ops),
	.resv_start_op = 1,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

int ds_netlink_init(void)
{
	int err;

	ds_nl_answer_as(&family);
	err = genl_register_family(&family);
	if (!err)
		ds_events_enable(&family, ds_runqs_stale);
	return err;
}

void ds_netlink_exit(void)
{
	ds_events_disable();
	genl_unregister_family(&family);
}
