// SPDX-License-Identifier: GPL-2.0-only
/* Limits and tenants. */
#include <linux/cgroup.h>
#include <linux/err.h>

#include "compat.h"
#include "hold.h"
#include "limit.h"
#include "netlink.h"
#include "orders.h"
#include "sched.h"
#include "tenant.h"

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_LIMIT_PAD);
}

static int put_limit(struct sk_buff *skb, const struct ds_limit_info *limit)
{
	const struct ds_subject *subject = &limit->subject;
	int err;

	err = nla_put_u32(skb, DETSHARE_A_LIMIT_KIND, subject->kind) ?:
	      put_u64(skb, DETSHARE_A_LIMIT_LIMIT, limit->limit) ?:
	      put_u64(skb, DETSHARE_A_LIMIT_USED, limit->used) ?:
	      put_u64(skb, DETSHARE_A_LIMIT_PEAK, limit->peak) ?:
	      put_u64(skb, DETSHARE_A_LIMIT_REFUSED, limit->refused);
	if (!err && limit->gpu != DS_ALL_GPUS)
		err = nla_put_u32(skb, DETSHARE_A_LIMIT_GPU, limit->gpu);
	if (err)
		return err;
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return nla_put_u32(skb, DETSHARE_A_LIMIT_PID, ds_process_nr(subject->process)) ?:
		       put_u64(skb, DETSHARE_A_LIMIT_START_TIME, subject->process->start);
	case DETSHARE_KIND_CGROUP:
		return put_u64(skb, DETSHARE_A_LIMIT_CGROUP_ID, subject->cgroup);
	case DETSHARE_KIND_TENANT:
		return nla_put_string(skb, DETSHARE_A_LIMIT_TENANT, subject->tenant->name);
	}
	return 0;
}

/*
 * What a request names, with `ended` also a process that has; its process is held, its tenant stays while ds_limits_lock is held, which
 * the caller holds.
 */
static int subject_of(struct nlattr **attrs, bool ended, struct netlink_ext_ack *extack, struct ds_subject *subject)
{
	struct nlattr *name = attrs[DETSHARE_A_LIMIT_TENANT];
	struct nlattr *cgroup = attrs[DETSHARE_A_LIMIT_CGROUP_ID];
	struct nlattr *pid = attrs[DETSHARE_A_LIMIT_PID], *start = attrs[DETSHARE_A_LIMIT_START_TIME];

	*subject = (struct ds_subject){ 0 };
	if (!attrs[DETSHARE_A_LIMIT_KIND]) {
		NL_SET_ERR_MSG(extack, "whose limit? add the attribute kind: pid, cgroup or tenant");
		return -EINVAL;
	}
	subject->kind = nla_get_u32(attrs[DETSHARE_A_LIMIT_KIND]);
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		subject->process = ended ? ds_nl_process_known(pid, start, extack) : ds_nl_process(pid, start, extack);
		return PTR_ERR_OR_ZERO(subject->process);
	case DETSHARE_KIND_CGROUP:
		if (!cgroup) {
			NL_SET_ERR_MSG(extack, "no cgroup is named: add the attribute cgroup-id, the inode number of its folder");
			return -EINVAL;
		}
		subject->cgroup = nla_get_u64(cgroup);
		return 0;
	case DETSHARE_KIND_TENANT:
		if (!name) {
			NL_SET_ERR_MSG(extack, "no tenant is named: add the attribute tenant");
			return -EINVAL;
		}
		subject->tenant = ds_tenant_find(nla_data(name));
		if (subject->tenant)
			return 0;
		NL_SET_ERR_MSG_ATTR(extack, name, "no such tenant: make it by tenant-set first");
		return -ENOENT;
	}
	return -EINVAL;
}

static int gpu_of(struct nlattr **attrs, struct netlink_ext_ack *extack, u32 *gpu)
{
	*gpu = DS_ALL_GPUS;
	if (!attrs[DETSHARE_A_LIMIT_GPU])
		return 0;
	*gpu = nla_get_u32(attrs[DETSHARE_A_LIMIT_GPU]);
	if (*gpu < RM_GPUS)
		return 0;
	NL_SET_ERR_MSG_ATTR(extack, attrs[DETSHARE_A_LIMIT_GPU], "no such GPU: gpu-get lists those in use");
	return -ERANGE;
}

static int limit_of(struct nlattr **attrs, struct netlink_ext_ack *extack, u64 *limit)
{
	struct nlattr *attribute = attrs[DETSHARE_A_LIMIT_LIMIT];

	if (!attribute) {
		NL_SET_ERR_MSG(extack, "how much? add the attribute limit, in bytes");
		return -EINVAL;
	}
	*limit = nla_get_u64(attribute);
	if (!*limit) {
		NL_SET_ERR_MSG_ATTR(extack, attribute,
				    "limit 0 would refuse every allocation for ever; to take a limit away use limit-del");
		return -EINVAL;
	}
	if (*limit > DS_LIMIT_MAX) {
		NL_SET_ERR_MSG_ATTR(extack, attribute, "limit is above 2^63-1 bytes; to take a limit away use limit-del");
		return -ERANGE;
	}
	return 0;
}

/* A cgroup that is to get a limit must exist; one that is to lose it may be gone. */
static int check_cgroup(u64 id, struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	struct cgroup *cgroup = cgroup_get_from_id(id);
	bool root;

	if (IS_ERR_OR_NULL(cgroup)) {
		NL_SET_ERR_MSG_ATTR(extack, attribute,
				    "no such cgroup: give the inode number of its folder in the cgroup v2 file system");
		return -ENOENT;
	}
	root = !cgroup_parent(cgroup);
	cgroup_put(cgroup);
	if (root) {
		NL_SET_ERR_MSG_ATTR(extack, attribute, "the root cgroup cannot be limited: name one below it");
		return -EINVAL;
	}
	return 0;
}

int ds_nl_limit_set(struct sk_buff *request, struct genl_info *info)
{
	struct netlink_ext_ack *extack = info->extack;
	struct ds_limit_info limit;
	struct ds_subject subject;
	struct sk_buff *skb;
	void *header;
	u64 bytes;
	u32 gpu;
	int err;

	ds_limits_refresh();
	err = limit_of(info->attrs, extack, &bytes) ?: gpu_of(info->attrs, extack, &gpu) ?:
	      ds_nl_check_driver(extack);
	if (err)
		return err;
	skb = ds_nl_answer(info, &header);
	if (!skb)
		return -ENOMEM;
	mutex_lock(&ds_limits_lock);
	err = subject_of(info->attrs, false, extack, &subject);
	if (!err && subject.kind == DETSHARE_KIND_CGROUP)
		err = check_cgroup(subject.cgroup, info->attrs[DETSHARE_A_LIMIT_CGROUP_ID], extack);
	if (err)
		goto unlock;
	err = ds_limit_set(&subject, gpu, bytes, &limit);
	if (err == -ENOSPC)
		NL_SET_ERR_MSG(extack, "a process would have more than 8 limits at once: take away one of its cgroups' limits");
	if (!err)
		err = put_limit(skb, &limit);
	ds_process_put(subject.process);
unlock:
	mutex_unlock(&ds_limits_lock);
	return ds_nl_answer_end(skb, header, info, err);
}

int ds_nl_limit_del(struct sk_buff *request, struct genl_info *info)
{
	struct ds_subject subject;
	u32 gpu;
	int err;

	ds_limits_refresh();
	err = gpu_of(info->attrs, info->extack, &gpu);
	if (err)
		return err;
	mutex_lock(&ds_limits_lock);
	err = subject_of(info->attrs, true, info->extack, &subject);
	if (!err) {
		err = ds_limit_del(&subject, gpu);
		if (err)
			NL_SET_ERR_MSG(info->extack, "there is no such limit: limit-get lists those in force");
		ds_process_put(subject.process);
	}
	mutex_unlock(&ds_limits_lock);
	return err;
}

/* Does the dump's request, which may name any of these attributes, mean this limit? */
static bool asked_for(struct nlattr **attrs, const struct ds_limit_info *limit)
{
	const struct ds_subject *subject = &limit->subject;

	if (attrs[DETSHARE_A_LIMIT_KIND] && nla_get_u32(attrs[DETSHARE_A_LIMIT_KIND]) != subject->kind)
		return false;
	if (attrs[DETSHARE_A_LIMIT_PID] &&
	    (subject->kind != DETSHARE_KIND_PID ||
	     nla_get_u32(attrs[DETSHARE_A_LIMIT_PID]) != ds_process_nr(subject->process)))
		return false;
	if (attrs[DETSHARE_A_LIMIT_START_TIME] &&
	    (subject->kind != DETSHARE_KIND_PID ||
	     nla_get_u64(attrs[DETSHARE_A_LIMIT_START_TIME]) != subject->process->start))
		return false;
	if (attrs[DETSHARE_A_LIMIT_CGROUP_ID] &&
	    (subject->kind != DETSHARE_KIND_CGROUP ||
	     nla_get_u64(attrs[DETSHARE_A_LIMIT_CGROUP_ID]) != subject->cgroup))
		return false;
	if (attrs[DETSHARE_A_LIMIT_TENANT] &&
	    (subject->kind != DETSHARE_KIND_TENANT ||
	     strcmp(nla_data(attrs[DETSHARE_A_LIMIT_TENANT]), subject->tenant->name)))
		return false;
	return !attrs[DETSHARE_A_LIMIT_GPU] || nla_get_u32(attrs[DETSHARE_A_LIMIT_GPU]) == limit->gpu;
}

int ds_nl_limit_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = ds_dump_attrs(cb);
	struct ds_limit_info limit;
	void *header;

	if (!cb->args[0])
		ds_limits_refresh();
	mutex_lock(&ds_limits_lock);
	for (; ds_limit_at(cb->args[0], &limit); cb->args[0]++) {
		if (!asked_for(attrs, &limit))
			continue;
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_LIMIT_GET);
		if (!header || ds_nl_entry_end(skb, header, put_limit(skb, &limit)))
			break;
	}
	mutex_unlock(&ds_limits_lock);
	return skb->len;
}

/* ---- tenants --------------------------------------------------------------- */

static int put_member(pid_t pid, void *data)
{
	return nla_put_u32(data, DETSHARE_A_TENANT_PID, pid);
}

/* Members that do not fit into the message are left out (`whole`: -EMSGSIZE instead): their number is the tenant's choice. */
static int put_tenant(struct sk_buff *skb, const struct ds_tenant *tenant, bool whole)
{
	int err;

	err = nla_put_string(skb, DETSHARE_A_TENANT_NAME, tenant->name) ?:
	      nla_put_u64_64bit(skb, DETSHARE_A_TENANT_USED, ds_payers_used(tenant),
				DETSHARE_A_TENANT_PAD);
	if (err)
		return err;
	err = ds_tenant_each(tenant, put_member, skb);
	return whole ? err : 0;
}

int ds_nl_tenant_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct ds_tenant *tenant;
	void *header;
	int err = 0;

	mutex_lock(&ds_limits_lock);
	while (!err && (tenant = ds_tenant_at(cb->args[0]))) {
		/* one that does not fit behind others gets a message of its own */
		bool whole = skb->len;

		header = ds_nl_entry(skb, cb, DETSHARE_CMD_TENANT_GET);
		err = header ? ds_nl_entry_end(skb, header, put_tenant(skb, tenant, whole)) : -EMSGSIZE;
		if (!err)
			cb->args[0]++;
	}
	mutex_unlock(&ds_limits_lock);
	return skb->len;
}

static int name_of(struct genl_info *info, const char **name)
{
	struct nlattr *attribute = info->attrs[DETSHARE_A_TENANT_NAME];

	if (!attribute) {
		NL_SET_ERR_MSG(info->extack, "no tenant is named: add the attribute name");
		return -EINVAL;
	}
	*name = nla_data(attribute);
	if (ds_nl_name_is_good(*name))
		return 0;
	NL_SET_ERR_MSG_ATTR(info->extack, attribute,
			    "the name of a tenant has 1 to 63 bytes, without spaces and control characters");
	return -EINVAL;
}

int ds_nl_tenant_set(struct sk_buff *request, struct genl_info *info)
{
	struct ds_process *process = NULL;
	struct ds_tenant *tenant;
	struct sk_buff *skb;
	const char *name;
	void *header;
	bool known;
	int err;

	err = name_of(info, &name) ?: ds_tenants_watch();
	if (err)
		return err;
	if (info->attrs[DETSHARE_A_TENANT_PID]) {
		process = ds_nl_process(info->attrs[DETSHARE_A_TENANT_PID], NULL, info->extack);
		if (IS_ERR(process))
			return PTR_ERR(process);
	}
	skb = ds_nl_answer(info, &header);
	if (!skb) {
		ds_process_put(process);
		return -ENOMEM;
	}
	mutex_lock(&ds_limits_lock);
	known = ds_tenant_find(name);
	tenant = ds_tenant_make(name);
	err = PTR_ERR_OR_ZERO(tenant);
	if (!err && process) {
		err = ds_tenant_take(tenant, process);
		if (err == -ENOSPC)
			NL_SET_ERR_MSG(info->extack, "the process would have more than 8 limits at once");
		if (err && !known)
			ds_tenant_remove(tenant);
	}
	if (!err)
		err = put_tenant(skb, tenant, false);
	mutex_unlock(&ds_limits_lock);
	/* and so does whom its order, its bucket or a hold means */
	if (!err && process)
		ds_sched_follow(process);
	ds_process_put(process);
	return ds_nl_answer_end(skb, header, info, err);
}

/* Orders, buckets and holds end with their tenant; sleeps, so under no lock. */
static void desert(const char *name)
{
	struct ds_subject subject = { .kind = DETSHARE_KIND_TENANT };

	mutex_lock(&ds_limits_lock);
	subject.tenant = ds_tenant_find(name);
	if (subject.tenant)
		ds_subject_hold(&subject);
	mutex_unlock(&ds_limits_lock);
	if (!subject.tenant)
		return;
	ds_orders_del(&subject);
	ds_hold_desert(&subject);
	ds_subject_put(&subject);
}

int ds_nl_tenant_del(struct sk_buff *request, struct genl_info *info)
{
	struct ds_process *process = NULL;
	struct ds_tenant *tenant;
	const char *name;
	int err;

	err = name_of(info, &name);
	if (err)
		return err;
	if (info->attrs[DETSHARE_A_TENANT_PID]) {
		process = ds_nl_process(info->attrs[DETSHARE_A_TENANT_PID], NULL, info->extack);
		if (IS_ERR(process))
			return PTR_ERR(process);
	}
	if (!process)
		desert(name);
	mutex_lock(&ds_limits_lock);
	tenant = ds_tenant_find(name);
	if (!tenant) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[DETSHARE_A_TENANT_NAME], "no such tenant: tenant-get lists them");
		err = -ENOENT;
	} else if (!process) {
		ds_tenant_remove(tenant);
	} else if (ds_tenant_of(process) != tenant) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[DETSHARE_A_TENANT_PID], "the process does not belong to this tenant");
		err = -ENOENT;
	} else {
		err = ds_tenant_take(NULL, process);
	}
	mutex_unlock(&ds_limits_lock);
	if (!err && process)
		ds_sched_follow(process);
	else if (!err)
		ds_orders_moved();
	ds_process_put(process);
	return err;
}
