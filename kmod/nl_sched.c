// SPDX-License-Identifier: GPL-2.0-only
/* Standing orders. */
#include <linux/err.h>

#include "compat.h"
#include "driver.h"
#include "netlink.h"
#include "sched.h"

/* Longer slices than the driver's timer can count are not what anybody means. */
#define SLICE_MAX_US (60ULL * USEC_PER_SEC)

static int put_order(struct sk_buff *skb, struct ds_process *process, const struct ds_order *order)
{
	int err;

	err = nla_put_u32(skb, DETSHARE_A_SCHED_PID, ds_process_nr(process)) ?:
	      nla_put_string(skb, DETSHARE_A_SCHED_CLASS, order->class);
	if (!err && order->slice_us)
		err = nla_put_u64_64bit(skb, DETSHARE_A_SCHED_SLICE_US, order->slice_us, DETSHARE_A_SCHED_PAD);
	if (!err && order->level >= 0)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_LEVEL, order->level);
	return err;
}

int ds_nl_sched_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr *pid = ds_dump_attrs(cb)[DETSHARE_A_SCHED_PID];
	struct ds_process *process;
	struct ds_order order;
	void *header;
	int err = 0;

	for (; !err && (process = ds_sched_at(cb->args[0])); ds_process_put(process)) {
		if (!ds_sched_get(process, &order) ||
		    (pid && nla_get_u32(pid) != ds_process_nr(process))) {
			cb->args[0]++;
			continue;
		}
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_SCHED_GET);
		err = header ? ds_nl_entry_end(skb, header, put_order(skb, process, &order)) : -EMSGSIZE;
		if (!err)
			cb->args[0]++;
	}
	return skb->len;
}

static int order_of(struct genl_info *info, struct ds_order *order)
{
	struct nlattr *class = info->attrs[DETSHARE_A_SCHED_CLASS];
	struct nlattr *slice = info->attrs[DETSHARE_A_SCHED_SLICE_US];
	struct nlattr *level = info->attrs[DETSHARE_A_SCHED_LEVEL];

	*order = (struct ds_order){ .set = true, .level = -1 };
	if (class)
		strscpy(order->class, nla_data(class), sizeof(order->class));
	if (level)
		order->level = nla_get_u32(level);
	if (slice)
		order->slice_us = nla_get_u64(slice);
	if (order->slice_us > SLICE_MAX_US) {
		NL_SET_ERR_MSG_ATTR(info->extack, slice, "slice-us is above 60 s; 0 leaves the slice as it is");
		return -ERANGE;
	}
	if (!class && !level && !order->slice_us) {
		NL_SET_ERR_MSG(info->extack, "nothing is ordered: add class, slice-us or level; to take an order away use sched-del");
		return -EINVAL;
	}
	return 0;
}

static int answer(struct genl_info *info, struct sk_buff *skb, void *header, struct ds_process *process,
		  const struct ds_order *order, const struct ds_sched_result *result)
{
	int err;

	err = put_order(skb, process, order) ?:
	      nla_put_u32(skb, DETSHARE_A_SCHED_TSGS_SET, result->set) ?:
	      nla_put_u32(skb, DETSHARE_A_SCHED_TSGS_FAILED, result->failed);
	if (!err && result->failed)
		err = nla_put_u32(skb, DETSHARE_A_SCHED_STATUS, result->status);
	return ds_nl_answer_end(skb, header, info, err);
}

static int check_driver(struct netlink_ext_ack *extack)
{
	struct ds_driver_status driver;

	ds_driver_status(&driver);
	if (driver.mode != DETSHARE_MODE_OBSERVE)
		return 0;
	NL_SET_ERR_MSG(extack, "the loaded driver can only be observed (see the kernel log): nothing can be ordered");
	return -EOPNOTSUPP;
}

int ds_nl_sched_set(struct sk_buff *request, struct genl_info *info)
{
	struct ds_sched_result result = { 0 };
	struct ds_process *process;
	struct ds_order order;
	struct sk_buff *skb;
	void *header;
	int err;

	err = order_of(info, &order) ?: check_driver(info->extack);
	if (err)
		return err;
	process = ds_nl_process(info->attrs[DETSHARE_A_SCHED_PID], info->extack);
	if (IS_ERR(process))
		return PTR_ERR(process);
	err = -ENOMEM;
	skb = ds_nl_answer(info, &header);
	if (!skb)
		goto put;
	err = ds_sched_set(process, &order, &result);
	if (err)
		nlmsg_free(skb);
	else
		err = answer(info, skb, header, process, &order, &result);
put:
	ds_process_put(process);
	return err;
}

int ds_nl_sched_del(struct sk_buff *request, struct genl_info *info)
{
	struct ds_order none = { .level = -1 };
	struct ds_sched_result result = { 0 };
	struct ds_process *process;
	struct sk_buff *skb;
	void *header;
	int err;

	process = ds_nl_process(info->attrs[DETSHARE_A_SCHED_PID], info->extack);
	if (IS_ERR(process))
		return PTR_ERR(process);
	err = -ENOMEM;
	skb = ds_nl_answer(info, &header);
	if (!skb)
		goto put;
	err = ds_sched_del(process, &result);
	if (err == -ENOENT)
		NL_SET_ERR_MSG(info->extack, "the process has no order: sched-get lists those in force");
	if (err)
		nlmsg_free(skb);
	else
		err = answer(info, skb, header, process, &none, &result);
put:
	ds_process_put(process);
	return err;
}
