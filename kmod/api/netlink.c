// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>

#include "closed.h"
#include "driver.h"
#include "netlink.h"
#include "process.h"
#include "rows.h"

static const struct genl_family *family;

void ds_nl_answer_as(const struct genl_family *given)
{
	family = given;
}

static struct ds_process *find_process(u32 pid, u64 start, bool ended)
{
	struct ds_process *process;

	if (!pid || pid > PID_MAX_LIMIT)
		return ERR_PTR(-ESRCH);
	process = ds_process_get(pid);
	if (!IS_ERR(process) && start && process->start != start) {
		ds_process_put(process);
		process = ERR_PTR(-ESRCH);
	}
	return ended && PTR_ERR_OR_ZERO(process) == -ESRCH ? ds_process_get_ended(pid, start) : process;
}

static struct ds_process *named_process(struct nlattr *pid, struct nlattr *start, bool ended, struct netlink_ext_ack *extack)
{
	struct ds_process *process;

	if (!pid) {
		NL_SET_ERR_MSG(extack, "no process is named: add the attribute pid");
		return ERR_PTR(-EINVAL);
	}
	process = find_process(nla_get_u32(pid), start ? nla_get_u64(start) : 0, ended);
	if (PTR_ERR_OR_ZERO(process) == -ESRCH)
		NL_SET_ERR_MSG_ATTR(extack, pid,
				    "no such process: it ended, or the number is that of a thread or of another pid namespace");
	return process;
}

struct ds_process *ds_nl_process(struct nlattr *pid, struct nlattr *start, struct netlink_ext_ack *extack)
{
	return named_process(pid, start, false, extack);
}

struct ds_process *ds_nl_process_known(struct nlattr *pid, struct nlattr *start, struct netlink_ext_ack *extack)
{
	return named_process(pid, start, true, extack);
}

int ds_nl_check_driver(struct netlink_ext_ack *extack)
{
	struct ds_driver_status driver;

	ds_driver_status(&driver);
	/* who is managed must be known where that is who is refused */
	if (driver.mode != DETSHARE_MODE_OBSERVE || ds_closed_asked())
		return 0;
	NL_SET_ERR_MSG(extack,
		       "the loaded driver can only be observed (see the kernel log): nobody can be limited, ordered or held");
	return -EOPNOTSUPP;
}

int ds_nl_done(int err, struct netlink_ext_ack *extack)
{
	if (err == -ETIMEDOUT)
		NL_SET_ERR_MSG(extack, "the driver takes too long: what was asked for stands, and is carried out when it answers");
	return err;
}

bool ds_nl_name_is_good(const char *name)
{
	const char *c;

	for (c = name; *c; c++)
		if (*c <= ' ' || *c == 0x7f)
			return false;
	return c != name;
}

struct sk_buff *ds_nl_answer(struct genl_info *info, void **header)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);

	if (!skb)
		return NULL;
	*header = genlmsg_put_reply(skb, info, family, 0, info->genlhdr->cmd);
	if (!*header) {
		nlmsg_free(skb);
		return NULL;
	}
	return skb;
}

int ds_nl_answer_end(struct sk_buff *skb, void *header, struct genl_info *info, int err)
{
	if (err) {
		nlmsg_free(skb);
		return err;
	}
	genlmsg_end(skb, header);
	return genlmsg_reply(skb, info);
}

void *ds_nl_entry(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd)
{
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, family, NLM_F_MULTI, cmd);
	unsigned int before = cb->prev_seq;

	if (!header)
		return NULL;
	cb->seq = atomic_read(&ds_rows_gone);
	genl_dump_check_consistent(cb, header);
	/* all that follow say so, too: this one may not fit, and is written again */
	if (before)
		cb->prev_seq = before;
	return header;
}

int ds_nl_entry_end(struct sk_buff *skb, void *header, int err)
{
	if (err)
		genlmsg_cancel(skb, header);
	else
		genlmsg_end(skb, header);
	return err;
}
