/* SPDX-License-Identifier: GPL-2.0-only */
/* Made from kmod/detshare.yaml by python -m detshare.tools.genl; do not edit. */
#ifndef DETSHARE_NL_POLICY_H
#define DETSHARE_NL_POLICY_H

#include <net/netlink.h>
#include "detshare_uapi.h"

/* What a request may carry; every other attribute is refused by strict validation. */
extern const struct nla_policy detshare_status_get_policy[DETSHARE_A_STATUS_MAX + 1];
extern const struct nla_policy detshare_gpu_get_policy[DETSHARE_A_GPU_MAX + 1];
extern const struct nla_policy detshare_vctx_get_policy[DETSHARE_A_VCTX_MAX + 1];
extern const struct nla_policy detshare_tsg_get_policy[DETSHARE_A_TSG_MAX + 1];
extern const struct nla_policy detshare_limit_get_policy[DETSHARE_A_LIMIT_MAX + 1];
extern const struct nla_policy detshare_limit_set_policy[DETSHARE_A_LIMIT_MAX + 1];
extern const struct nla_policy detshare_limit_del_policy[DETSHARE_A_LIMIT_MAX + 1];
extern const struct nla_policy detshare_tenant_get_policy[DETSHARE_A_TENANT_MAX + 1];
extern const struct nla_policy detshare_tenant_set_policy[DETSHARE_A_TENANT_MAX + 1];
extern const struct nla_policy detshare_tenant_del_policy[DETSHARE_A_TENANT_MAX + 1];
extern const struct nla_policy detshare_sched_get_policy[DETSHARE_A_SCHED_MAX + 1];
extern const struct nla_policy detshare_sched_set_policy[DETSHARE_A_SCHED_MAX + 1];
extern const struct nla_policy detshare_sched_del_policy[DETSHARE_A_SCHED_MAX + 1];
extern const struct nla_policy detshare_class_get_policy[DETSHARE_A_CLASS_MAX + 1];
extern const struct nla_policy detshare_class_set_policy[DETSHARE_A_CLASS_MAX + 1];
extern const struct nla_policy detshare_class_del_policy[DETSHARE_A_CLASS_MAX + 1];
extern const struct nla_policy detshare_bucket_get_policy[DETSHARE_A_BUCKET_MAX + 1];
extern const struct nla_policy detshare_bucket_set_policy[DETSHARE_A_BUCKET_MAX + 1];
extern const struct nla_policy detshare_bucket_del_policy[DETSHARE_A_BUCKET_MAX + 1];
extern const struct nla_policy detshare_hold_get_policy[DETSHARE_A_HOLD_MAX + 1];
extern const struct nla_policy detshare_hold_set_policy[DETSHARE_A_HOLD_MAX + 1];
extern const struct nla_policy detshare_hold_del_policy[DETSHARE_A_HOLD_MAX + 1];
extern const struct nla_policy detshare_preempt_policy[DETSHARE_A_SCHED_MAX + 1];
extern const struct nla_policy detshare_entity_get_policy[DETSHARE_A_ENTITY_MAX + 1];
extern const struct nla_policy detshare_denied_get_policy[DETSHARE_A_DENIED_MAX + 1];

#endif
