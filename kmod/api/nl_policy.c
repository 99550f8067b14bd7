// SPDX-License-Identifier: GPL-2.0-only
/* Made from kmod/detshare.yaml by python -m detshare.tools.genl; do not edit. */
#include "nl_policy.h"

const struct nla_policy detshare_status_get_policy[DETSHARE_A_STATUS_MAX + 1] = {
};

const struct nla_policy detshare_gpu_get_policy[DETSHARE_A_GPU_MAX + 1] = {
};

const struct nla_policy detshare_vctx_get_policy[DETSHARE_A_VCTX_MAX + 1] = {
	[DETSHARE_A_VCTX_PID] = { .type = NLA_U32 },
};

const struct nla_policy detshare_tsg_get_policy[DETSHARE_A_TSG_MAX + 1] = {
	[DETSHARE_A_TSG_PID] = { .type = NLA_U32 },
};

const struct nla_policy detshare_limit_get_policy[DETSHARE_A_LIMIT_MAX + 1] = {
	[DETSHARE_A_LIMIT_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_LIMIT_PID] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_LIMIT_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_LIMIT_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_limit_set_policy[DETSHARE_A_LIMIT_MAX + 1] = {
	[DETSHARE_A_LIMIT_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_LIMIT_PID] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_LIMIT_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_LIMIT_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_LIMIT] = { .type = NLA_U64 },
	[DETSHARE_A_LIMIT_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_limit_del_policy[DETSHARE_A_LIMIT_MAX + 1] = {
	[DETSHARE_A_LIMIT_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_LIMIT_PID] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_LIMIT_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_LIMIT_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_tenant_get_policy[DETSHARE_A_TENANT_MAX + 1] = {
};

const struct nla_policy detshare_tenant_set_policy[DETSHARE_A_TENANT_MAX + 1] = {
	[DETSHARE_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_TENANT_PID] = { .type = NLA_U32 },
};

const struct nla_policy detshare_tenant_del_policy[DETSHARE_A_TENANT_MAX + 1] = {
	[DETSHARE_A_TENANT_NAME] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_TENANT_PID] = { .type = NLA_U32 },
};

const struct nla_policy detshare_sched_get_policy[DETSHARE_A_SCHED_MAX + 1] = {
	[DETSHARE_A_SCHED_PID] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_SCHED_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_SCHED_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_SCHED_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_sched_set_policy[DETSHARE_A_SCHED_MAX + 1] = {
	[DETSHARE_A_SCHED_PID] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_CLASS] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_SCHED_SLICE_US] = { .type = NLA_U64 },
	[DETSHARE_A_SCHED_LEVEL] = NLA_POLICY_MAX(NLA_U32, DETSHARE_LEVEL_HIGH),
	[DETSHARE_A_SCHED_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_SCHED_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_SCHED_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_SCHED_WEIGHT] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_TPC_PERCENT] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_sched_del_policy[DETSHARE_A_SCHED_MAX + 1] = {
	[DETSHARE_A_SCHED_PID] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_SCHED_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_SCHED_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_SCHED_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_class_get_policy[DETSHARE_A_CLASS_MAX + 1] = {
	[DETSHARE_A_CLASS_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_CLASS_NAME] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
};

const struct nla_policy detshare_class_set_policy[DETSHARE_A_CLASS_MAX + 1] = {
	[DETSHARE_A_CLASS_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_CLASS_NAME] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_CLASS_WEIGHT] = { .type = NLA_U32 },
	[DETSHARE_A_CLASS_SLICE_US] = { .type = NLA_U64 },
	[DETSHARE_A_CLASS_LEVEL] = NLA_POLICY_MAX(NLA_U32, DETSHARE_LEVEL_HIGH),
	[DETSHARE_A_CLASS_FLOOR_PERMILLE] = { .type = NLA_U32 },
	[DETSHARE_A_CLASS_TURN_US] = { .type = NLA_U64 },
	[DETSHARE_A_CLASS_TURN_RANK] = { .type = NLA_U32 },
};

const struct nla_policy detshare_class_del_policy[DETSHARE_A_CLASS_MAX + 1] = {
	[DETSHARE_A_CLASS_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_CLASS_NAME] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
};

const struct nla_policy detshare_bucket_get_policy[DETSHARE_A_BUCKET_MAX + 1] = {
	[DETSHARE_A_BUCKET_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_BUCKET_PID] = { .type = NLA_U32 },
	[DETSHARE_A_BUCKET_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_BUCKET_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_BUCKET_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_bucket_set_policy[DETSHARE_A_BUCKET_MAX + 1] = {
	[DETSHARE_A_BUCKET_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_BUCKET_PID] = { .type = NLA_U32 },
	[DETSHARE_A_BUCKET_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_BUCKET_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_BUCKET_RATE_US] = { .type = NLA_U64 },
	[DETSHARE_A_BUCKET_BURST_US] = { .type = NLA_U64 },
	[DETSHARE_A_BUCKET_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_bucket_del_policy[DETSHARE_A_BUCKET_MAX + 1] = {
	[DETSHARE_A_BUCKET_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_BUCKET_PID] = { .type = NLA_U32 },
	[DETSHARE_A_BUCKET_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_BUCKET_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_BUCKET_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_hold_get_policy[DETSHARE_A_HOLD_MAX + 1] = {
	[DETSHARE_A_HOLD_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_HOLD_PID] = { .type = NLA_U32 },
	[DETSHARE_A_HOLD_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_HOLD_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_HOLD_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_hold_set_policy[DETSHARE_A_HOLD_MAX + 1] = {
	[DETSHARE_A_HOLD_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_HOLD_PID] = { .type = NLA_U32 },
	[DETSHARE_A_HOLD_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_HOLD_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_HOLD_GATE] = { .type = NLA_U8 },
	[DETSHARE_A_HOLD_PAUSE] = { .type = NLA_U8 },
	[DETSHARE_A_HOLD_LEASE_MS] = { .type = NLA_U32 },
	[DETSHARE_A_HOLD_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_hold_del_policy[DETSHARE_A_HOLD_MAX + 1] = {
	[DETSHARE_A_HOLD_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_HOLD_PID] = { .type = NLA_U32 },
	[DETSHARE_A_HOLD_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_HOLD_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_HOLD_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_preempt_policy[DETSHARE_A_SCHED_MAX + 1] = {
	[DETSHARE_A_SCHED_PID] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_SCHED_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_SCHED_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_SCHED_START_TIME] = { .type = NLA_U64 },
};

const struct nla_policy detshare_entity_get_policy[DETSHARE_A_ENTITY_MAX + 1] = {
	[DETSHARE_A_ENTITY_PID] = { .type = NLA_U32 },
};

const struct nla_policy detshare_denied_get_policy[DETSHARE_A_DENIED_MAX + 1] = {
	[DETSHARE_A_DENIED_PID] = { .type = NLA_U32 },
};
