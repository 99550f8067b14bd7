// SPDX-License-Identifier: GPL-2.0-only
/* Whom a request means, in the attributes of any set. */
#include <linux/cgroup.h>
#include <linux/err.h>

#include "limit.h"
#include "netlink.h"
#include "orders.h"
#include "tenant.h"

static int cgroup_of(struct nlattr *attribute, struct netlink_ext_ack *extack, struct ds_subject *subject)
{
	if (!attribute) {
		NL_SET_ERR_MSG(extack, "no cgroup is named: add the attribute cgroup-id, the inode number of its folder");
		return -EINVAL;
	}
	subject->cgroup = nla_get_u64(attribute);
	if (ds_subject_hold(subject)) {
		NL_SET_ERR_MSG_ATTR(extack, attribute,
				    "no such cgroup: give the inode number of its folder in the cgroup v2 file system");
		return -ENOENT;
	}
	if (cgroup_parent(subject->folder))
		return 0;
	ds_subject_put(subject);
	NL_SET_ERR_MSG_ATTR(extack, attribute, "the root cgroup holds everybody, the system too: name one below it");
	return -EINVAL;
}

static int tenant_of(struct nlattr *attribute, struct netlink_ext_ack *extack, struct ds_subject *subject)
{
	if (!attribute) {
		NL_SET_ERR_MSG(extack, "no tenant is named: add the attribute tenant");
		return -EINVAL;
	}
	mutex_lock(&ds_limits_lock);
	subject->tenant = ds_tenant_find(nla_data(attribute));
	if (subject->tenant)
		ds_subject_hold(subject);
	mutex_unlock(&ds_limits_lock);
	if (subject->tenant)
		return 0;
	NL_SET_ERR_MSG_ATTR(extack, attribute, "no such tenant: make it by tenant-set first");
	return -ENOENT;
}

static int subject_of(struct nlattr **attrs, const struct ds_nl_names *names, bool ended, struct netlink_ext_ack *extack,
		      struct ds_subject *subject)
{
	struct nlattr *kind = attrs[names->kind], *pid = attrs[names->pid], *start = attrs[names->start];

	*subject = (struct ds_subject){ .kind = kind ? nla_get_u32(kind) : DETSHARE_KIND_PID };
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		subject->process = ended ? ds_nl_process_known(pid, start, extack) : ds_nl_process(pid, start, extack);
		return PTR_ERR_OR_ZERO(subject->process);
	case DETSHARE_KIND_CGROUP:
		return cgroup_of(attrs[names->cgroup], extack, subject);
	case DETSHARE_KIND_TENANT:
		return tenant_of(attrs[names->tenant], extack, subject);
	}
	return -EINVAL;
}

int ds_nl_subject(struct nlattr **attrs, const struct ds_nl_names *names, struct netlink_ext_ack *extack,
		  struct ds_subject *subject)
{
	return subject_of(attrs, names, false, extack, subject);
}

int ds_nl_subject_known(struct nlattr **attrs, const struct ds_nl_names *names, struct netlink_ext_ack *extack,
			struct ds_subject *subject)
{
	return subject_of(attrs, names, true, extack, subject);
}

int ds_nl_subject_watched(struct nlattr **attrs, const struct ds_nl_names *names, struct netlink_ext_ack *extack,
			  struct ds_subject *subject)
{
	int err = ds_nl_subject(attrs, names, extack, subject);

	if (err)
		return err;
	err = ds_orders_watch(subject);
	if (!err)
		return 0;
	NL_SET_ERR_MSG(extack,
		       "moves between cgroups cannot be seen in this kernel (tracepoint cgroup_attach_task): name processes or a tenant");
	ds_subject_put(subject);
	return err;
}

int ds_nl_put_subject(struct sk_buff *skb, const struct ds_nl_names *names, const struct ds_subject *subject)
{
	int err = nla_put_u32(skb, names->kind, subject->kind);

	if (err)
		return err;
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return nla_put_u32(skb, names->pid, ds_process_nr(subject->process)) ?:
		       nla_put_u64_64bit(skb, names->start, subject->process->start, names->pad);
	case DETSHARE_KIND_CGROUP:
		return nla_put_u64_64bit(skb, names->cgroup, subject->cgroup, names->pad);
	case DETSHARE_KIND_TENANT:
		return nla_put_string(skb, names->tenant, subject->tenant->name);
	}
	return 0;
}

bool ds_nl_subject_asked(struct nlattr **attrs, const struct ds_nl_names *names, const struct ds_subject *subject)
{
	const struct nlattr *kind = attrs[names->kind], *pid = attrs[names->pid], *start = attrs[names->start];
	const struct nlattr *cgroup = attrs[names->cgroup], *tenant = attrs[names->tenant];

	if (kind && nla_get_u32(kind) != subject->kind)
		return false;
	if (pid && (subject->kind != DETSHARE_KIND_PID || nla_get_u32(pid) != ds_process_nr(subject->process)))
		return false;
	if (start && (subject->kind != DETSHARE_KIND_PID || nla_get_u64(start) != subject->process->start))
		return false;
	if (cgroup && (subject->kind != DETSHARE_KIND_CGROUP || nla_get_u64(cgroup) != subject->cgroup))
		return false;
	return !tenant || (subject->kind == DETSHARE_KIND_TENANT && !strcmp(nla_data(tenant), subject->tenant->name));
}
