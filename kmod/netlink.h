/* SPDX-License-Identifier: GPL-2.0-only */
/* The generic netlink family `detshare`; kmod/detshare.yaml describes it. */
#ifndef DETSHARE_NETLINK_H
#define DETSHARE_NETLINK_H

#include <net/genetlink.h>

#include "detshare_uapi.h"

extern struct genl_family ds_family;

int ds_nl_status_get(struct sk_buff *skb, struct genl_info *info);
int ds_nl_gpu_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_vctx_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_tsg_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_limit_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_limit_set(struct sk_buff *skb, struct genl_info *info);
int ds_nl_limit_del(struct sk_buff *skb, struct genl_info *info);
int ds_nl_tenant_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_tenant_set(struct sk_buff *skb, struct genl_info *info);
int ds_nl_tenant_del(struct sk_buff *skb, struct genl_info *info);
int ds_nl_sched_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_sched_set(struct sk_buff *skb, struct genl_info *info);
int ds_nl_sched_del(struct sk_buff *skb, struct genl_info *info);

struct ds_process;

/*
 * The living process that a request names, held. ERR_PTR and a message: no such attribute, no such process, no memory.
 */
struct ds_process *ds_nl_process(struct nlattr *attribute, struct netlink_ext_ack *extack);

/* An answer to a request: begin, put attributes, end. */
struct sk_buff *ds_nl_answer(struct genl_info *info, void **header);
int ds_nl_answer_end(struct sk_buff *skb, void *header, struct genl_info *info, int err);

/* The header of one entry of a dump; NULL: the buffer is full, go on in the next one. */
void *ds_nl_entry(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd);
/* Takes the entry back if err. Returns err. */
int ds_nl_entry_end(struct sk_buff *skb, void *header, int err);

int ds_netlink_init(void);
void ds_netlink_exit(void);

#endif
