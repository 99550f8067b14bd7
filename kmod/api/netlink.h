/* SPDX-License-Identifier: GPL-2.0-only */
/* The commands of the family (family.h), and what they take requests and make answers with. */
#ifndef DETSHARE_NETLINK_H
#define DETSHARE_NETLINK_H

#include <net/genetlink.h>

#include "detshare_uapi.h"

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

int ds_nl_class_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_class_set(struct sk_buff *skb, struct genl_info *info);
int ds_nl_class_del(struct sk_buff *skb, struct genl_info *info);
int ds_nl_bucket_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_bucket_set(struct sk_buff *skb, struct genl_info *info);
int ds_nl_bucket_del(struct sk_buff *skb, struct genl_info *info);
int ds_nl_hold_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_hold_set(struct sk_buff *skb, struct genl_info *info);
int ds_nl_hold_del(struct sk_buff *skb, struct genl_info *info);
int ds_nl_preempt(struct sk_buff *skb, struct genl_info *info);
int ds_nl_entity_dump(struct sk_buff *skb, struct netlink_callback *cb);
int ds_nl_denied_dump(struct sk_buff *skb, struct netlink_callback *cb);

struct ds_process;
struct ds_subject;

/* Where an attribute set says whom it means. */
struct ds_nl_names {
	int pad, kind, pid, start, cgroup, tenant;
};

/* Whom a request means, held (subject.h); without a kind, a process. On error there is a message, and nothing is held. */
int ds_nl_subject(struct nlattr **attrs, const struct ds_nl_names *names, struct netlink_ext_ack *extack,
		  struct ds_subject *subject);
/* The same, but a process may have ended: what stands for it stands for who goes on with its clients. */
int ds_nl_subject_known(struct nlattr **attrs, const struct ds_nl_names *names, struct netlink_ext_ack *extack,
			struct ds_subject *subject);
/* As ds_nl_subject(), for what is to hold from now on for everybody who belongs to it. */
int ds_nl_subject_watched(struct nlattr **attrs, const struct ds_nl_names *names, struct netlink_ext_ack *extack,
			  struct ds_subject *subject);
int ds_nl_put_subject(struct sk_buff *skb, const struct ds_nl_names *names, const struct ds_subject *subject);
/* Does the request of a dump, which may name any of the attributes, mean this one? */
bool ds_nl_subject_asked(struct nlattr **attrs, const struct ds_nl_names *names, const struct ds_subject *subject);

/* -EOPNOTSUPP and a message: the driver can only be observed. */
int ds_nl_check_driver(struct netlink_ext_ack *extack);
/* The attributes `mechanism` of the status. */
int ds_nl_put_mechanisms(struct sk_buff *skb, enum detshare_mode mode);
/* The error of something that waited for the driver; says what -ETIMEDOUT means. */
int ds_nl_done(int err, struct netlink_ext_ack *extack);
/* Names of tenants and classes have no spaces and no control characters. */
bool ds_nl_name_is_good(const char *name);

/*
 * The living process that a request names, held; `start`: the attribute with its start, NULL: any. ERR_PTR and a message: no such
 * attribute, no such process, no memory.
 */
struct ds_process *ds_nl_process(struct nlattr *pid, struct nlattr *start, struct netlink_ext_ack *extack);
/* The same; if none that lives is meant, one that has ended. */
struct ds_process *ds_nl_process_known(struct nlattr *pid, struct nlattr *start, struct netlink_ext_ack *extack);

/* Whose commands these are; before the first one. */
void ds_nl_answer_as(const struct genl_family *family);

/* An answer to a request: begin, put attributes, end. */
struct sk_buff *ds_nl_answer(struct genl_info *info, void **header);
int ds_nl_answer_end(struct sk_buff *skb, void *header, struct genl_info *info, int err);

/* The header of one entry of a dump; NULL: the buffer is full, go on in the next one. */
void *ds_nl_entry(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd);
/* Takes the entry back if err. Returns err. */
int ds_nl_entry_end(struct sk_buff *skb, void *header, int err);

#endif
