// SPDX-License-Identifier: GPL-2.0-only
/* Standing orders, and preempt, which shares their attributes. */
#include <linux/err.h>

#include "client.h"
#include "compat.h"
#include "netlink.h"
#include "orders.h"
#include "preempt.h"
#include "sched.h"

/* Longer slices than the driver's timer can count are not what anybody means. */
#define SLICE_MAX_US (60ULL * USEC_PER_SEC)

static const struct ds_nl_names names = {
	.pad = DETSHARE_A_SCHED_PAD,
	.kind = DETSHARE_A_SCHED_KIND,
	.pid = DETSHARE_A_SCHED_PID,
	.start = DETSHARE_A_SCHED_START_TIME,
	.cgroup = DETSHARE_A_SCHED_CGROUP_ID,
	.tenant = DETSHARE_A_SCHED_TENANT,
};

static int put_order(struct sk_buff *skb, const struct ds_subject *subject, const struct ds_order *order)
{
	int err = ds_nl_put_subject(skb, &names, subject) ?:
		  nla_put_string(skb, DETSHARE_A_SCHED_CLASS, order->class) ?:
		  nla_put_u32(skb, DETSHARE_A_SCHED_PROCESSES, ds_clients_meant(subject));

	if (!err && order->weight)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_WEIGHT, order->weight);
	if (!err && order->slice_us)
		err = nla_put_u64_64bit(skb, DETSHARE_A_SCHED_SLICE_US, order->slice_us, DETSHARE_A_SCHED_PAD);
	if (!err && order->level >= 0)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_LEVEL, order->level);
	if (!err && order->tpc_percent)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_TPC_PERCENT, order->tpc_percent);
	return err;
}

int ds_nl_sched_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = ds_dump_attrs(cb);
	struct ds_subject subject;
	struct ds_order order;
	void *header;
	int err = 0;

	if (!cb->args[0])
		ds_orders_reap();
	for (; !err && ds_orders_at(cb->args[0], &subject, &order); ds_subject_put(&subject)) {
		if (!ds_nl_subject_asked(attrs, &names, &subject)) {
			cb->args[0]++;
			continue;
		}
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_SCHED_GET);
		err = header ? ds_nl_entry_end(skb, header, put_order(skb, &subject, &order)) : -EMSGSIZE;
		if (!err)
			cb->args[0]++;
	}
	return skb->len;
}

static int check_numbers(struct genl_info *info, const struct ds_order *order)
{
	struct nlattr *weight = info->attrs[DETSHARE_A_SCHED_WEIGHT];
	struct nlattr *slice = info->attrs[DETSHARE_A_SCHED_SLICE_US];
	struct nlattr *percent = info->attrs[DETSHARE_A_SCHED_TPC_PERCENT];

	if (order->slice_us > SLICE_MAX_US) {
		NL_SET_ERR_MSG_ATTR(info->extack, slice, "slice-us is above 60 s; 0 leaves the slice as it is");
		return -ERANGE;
	}
	if (weight && (!order->weight || order->weight > DETSHARE_WEIGHT_MAX)) {
		NL_SET_ERR_MSG_ATTR(info->extack, weight, "weight is 1 to 1000; leave it out to order none");
		return -ERANGE;
	}
	if (weight && order->slice_us) {
		NL_SET_ERR_MSG_ATTR(info->extack, slice, "weight and slice-us rule the same thing: give one of them");
		return -EINVAL;
	}
	if (percent && (!order->tpc_percent || order->tpc_percent > DETSHARE_PERCENT_MAX)) {
		NL_SET_ERR_MSG_ATTR(info->extack, percent, "tpc-percent is 1 to 100; 100 is no ceiling");
		return -ERANGE;
	}
	return 0;
}

static int order_of(struct genl_info *info, struct ds_order *order)
{
	struct nlattr *class = info->attrs[DETSHARE_A_SCHED_CLASS];
	struct nlattr *weight = info->attrs[DETSHARE_A_SCHED_WEIGHT];
	struct nlattr *slice = info->attrs[DETSHARE_A_SCHED_SLICE_US];
	struct nlattr *level = info->attrs[DETSHARE_A_SCHED_LEVEL];
	struct nlattr *percent = info->attrs[DETSHARE_A_SCHED_TPC_PERCENT];
	int err;

	*order = (struct ds_order){ .set = true, .level = -1 };
	if (class)
		strscpy(order->class, nla_data(class), sizeof(order->class));
	if (level)
		order->level = nla_get_u32(level);
	if (slice)
		order->slice_us = nla_get_u64(slice);
	if (weight)
		order->weight = nla_get_u32(weight);
	if (percent)
		order->tpc_percent = nla_get_u32(percent);
	err = check_numbers(info, order);
	if (err)
		return err;
	if (!class && !level && !order->slice_us && !weight && !percent) {
		NL_SET_ERR_MSG(info->extack,
			       "nothing is ordered: add class, weight, slice-us, level or tpc-percent; to take an order away use sched-del");
		return -EINVAL;
	}
	if (order->tpc_percent == DETSHARE_PERCENT_MAX)
		order->tpc_percent = 0;
	return 0;
}

static int put_result(struct sk_buff *skb, const struct ds_sched_result *result)
{
	int err = nla_put_u32(skb, DETSHARE_A_SCHED_TSGS_SET, result->set) ?:
		  nla_put_u32(skb, DETSHARE_A_SCHED_TSGS_FAILED, result->failed);

	if (!err && result->failed)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_STATUS, result->status);
	if (!err && result->tpc_status)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_TPC_STATUS, result->tpc_status);
	return err;
}

/* Brings everybody in line and answers. Puts the subject. */
static int apply(struct genl_info *info, struct ds_subject *subject, const struct ds_order *order)
{
	struct ds_sched_result result = { 0 };
	struct sk_buff *skb;
	void *header;
	int err;

	err = ds_nl_done(ds_sched_apply(subject, &result), info->extack);
	if (err)
		goto put;
	err = -ENOMEM;
	skb = ds_nl_answer(info, &header);
	if (skb)
		err = ds_nl_answer_end(skb, header, info,
				       put_order(skb, subject, order) ?: put_result(skb, &result));
put:
	ds_subject_put(subject);
	return err;
}

int ds_nl_sched_set(struct sk_buff *request, struct genl_info *info)
{
	struct ds_subject subject;
	struct ds_order order;
	int err;

	ds_orders_reap();
	err = order_of(info, &order) ?: ds_nl_check_driver(info->extack) ?:
	      ds_nl_subject_watched(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_orders_set(&subject, &order);
	if (!err)
		return apply(info, &subject, &order);
	ds_subject_put(&subject);
	return err;
}

int ds_nl_sched_del(struct sk_buff *request, struct genl_info *info)
{
	static const struct ds_order none = { .level = -1 };
	struct ds_subject subject;
	int err;

	ds_orders_reap();
	err = ds_nl_subject_known(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_orders_del(&subject);
	if (!err)
		return apply(info, &subject, &none);
	NL_SET_ERR_MSG(info->extack, "it has no order of its own: sched-get lists those in force");
	ds_subject_put(&subject);
	return err;
}

int ds_nl_preempt(struct sk_buff *request, struct genl_info *info)
{
	struct ds_sched_result result = { 0 };
	struct ds_subject subject;
	struct sk_buff *skb;
	void *header;
	int err;

	err = ds_nl_check_driver(info->extack) ?: ds_nl_subject(info->attrs, &names, info->extack, &subject);
	if (err)
		return err;
	err = ds_nl_done(ds_preempt(&subject, &result), info->extack);
	if (err == -ESRCH)
		NL_SET_ERR_MSG(info->extack, "nobody of it has a channel group for compute: tsg-get lists them");
	if (err)
		goto put;
	err = -ENOMEM;
	skb = ds_nl_answer(info, &header);
	if (skb)
		err = ds_nl_answer_end(skb, header, info,
				       ds_nl_put_subject(skb, &names, &subject) ?: put_result(skb, &result) ?:
				       nla_put_u32(skb, DETSHARE_A_SCHED_PROCESSES, ds_clients_meant(&subject)));
put:
	ds_subject_put(&subject);
	return err;
}
