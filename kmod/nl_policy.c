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
};

const struct nla_policy detshare_limit_set_policy[DETSHARE_A_LIMIT_MAX + 1] = {
	[DETSHARE_A_LIMIT_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_LIMIT_PID] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_LIMIT_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_LIMIT_GPU] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_LIMIT] = { .type = NLA_U64 },
};

const struct nla_policy detshare_limit_del_policy[DETSHARE_A_LIMIT_MAX + 1] = {
	[DETSHARE_A_LIMIT_KIND] = NLA_POLICY_MAX(NLA_U32, DETSHARE_KIND_TENANT),
	[DETSHARE_A_LIMIT_PID] = { .type = NLA_U32 },
	[DETSHARE_A_LIMIT_CGROUP_ID] = { .type = NLA_U64 },
	[DETSHARE_A_LIMIT_TENANT] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_LIMIT_GPU] = { .type = NLA_U32 },
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
};

const struct nla_policy detshare_sched_set_policy[DETSHARE_A_SCHED_MAX + 1] = {
	[DETSHARE_A_SCHED_PID] = { .type = NLA_U32 },
	[DETSHARE_A_SCHED_CLASS] = { .type = NLA_NUL_STRING, .len = DETSHARE_NAME_MAX },
	[DETSHARE_A_SCHED_SLICE_US] = { .type = NLA_U64 },
	[DETSHARE_A_SCHED_LEVEL] = NLA_POLICY_MAX(NLA_U32, DETSHARE_LEVEL_HIGH),
};

const struct nla_policy detshare_sched_del_policy[DETSHARE_A_SCHED_MAX + 1] = {
	[DETSHARE_A_SCHED_PID] = { .type = NLA_U32 },
};
