// SPDX-License-Identifier: GPL-2.0-only
/* Share policies: who may duplicate whose objects. */
#include <linux/cred.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "sim.h"

#define ACTION_REVOKE	1
#define ACTION_REQUIRE	2
#define ACTION_COMPOSE	4

/* The nearest object at or above that has policies of its own; NULL: the default holds (same process). */
static struct sim_object *policy_holder(struct sim_object *object)
{
	while (object && !object->own_shares)
		object = object->parent;
	return object;
}

static bool matches(const struct sim_share *share, struct sim_object *object, struct sim_client *to,
		    const struct sim_caller *by)
{
	struct sim_client *from = object->client;

	switch (share->type) {
	case RS_SHARE_TYPE_ALL:
	case RS_SHARE_TYPE_GPU:
	case RS_SHARE_TYPE_SMC_PARTITION:
		return true;
	case RS_SHARE_TYPE_OS_SECURITY_TOKEN:
		/* a kernel client duplicates on behalf of the process that is running */
		return uid_eq(from->euid, to->level == SIM_CALLER_KERNEL ? current_euid() : to->euid);
	case RS_SHARE_TYPE_PID:
		return from->pid == (to->level == SIM_CALLER_KERNEL ? task_tgid_nr(current) : to->pid);
	case RS_SHARE_TYPE_CLIENT:
		return share->target == to->handle;
	default:
		return false;
	}
}

bool sim_may_dup(struct sim_object *object, struct sim_client *to, const struct sim_caller *by)
{
	struct sim_object *holder = policy_holder(object);
	struct sim_share same_process = { .mask = SIM_RIGHT_DUP, .type = RS_SHARE_TYPE_PID };
	u32 granted = 0, denied = 0;
	struct sim_share *share;

	if (object->client == to)
		return true;
	if (!holder)
		return matches(&same_process, object, to, by);
	list_for_each_entry(share, &holder->shares, link) {
		bool match = matches(share, object, to, by);

		if (share->action & ACTION_REQUIRE)
			denied |= match ? 0 : share->mask;
		else
			granted |= match ? share->mask : 0;
	}
	return granted & ~denied & SIM_RIGHT_DUP;
}

static NV_STATUS add_share(struct sim_object *object, u32 target, u32 mask, u16 type, u8 action)
{
	struct sim_share *share;

	list_for_each_entry(share, &object->shares, link) {
		if (share->type == type && share->target == target &&
		    (share->action & ACTION_REQUIRE) == (action & ACTION_REQUIRE)) {
			share->mask |= mask;
			return NV_OK;
		}
	}
	share = kmalloc(sizeof(*share), GFP_KERNEL);
	if (!share)
		return NV_ERR_NO_MEMORY;
	*share = (struct sim_share) { .target = target, .mask = mask, .type = type, .action = action };
	list_add_tail(&share->link, &object->shares);
	return NV_OK;
}

/* The policies that held until now become the object's own, so that COMPOSE adds to them. */
static NV_STATUS inherit_shares(struct sim_object *object)
{
	struct sim_object *holder = policy_holder(object->parent);
	struct sim_share *share;
	NV_STATUS status = NV_OK;

	if (!holder)
		return add_share(object, 0, SIM_RIGHT_DUP, RS_SHARE_TYPE_PID, 0);
	list_for_each_entry(share, &holder->shares, link) {
		status = add_share(object, share->target, share->mask, share->type, share->action);
		if (status != NV_OK)
			break;
	}
	return status;
}

NV_STATUS sim_share(struct sim_object *object, u32 target, u32 mask, u16 type, u8 action)
{
	struct sim_share *share, *next;
	NV_STATUS status;

	if (type >= RS_SHARE_TYPE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (type == RS_SHARE_TYPE_CLIENT && !sim_client_any(target))
		return NV_ERR_INVALID_CLIENT;
	if (!object->own_shares && (action & ACTION_COMPOSE)) {
		status = inherit_shares(object);
		if (status != NV_OK)
			return status;
	}
	object->own_shares = true;
	list_for_each_entry_safe(share, next, &object->shares, link) {
		bool same = share->type == type && share->target == target;

		if (action & ACTION_COMPOSE) {
			if (!(action & ACTION_REVOKE) || !same)
				continue;
			share->mask &= ~mask;
			if (share->mask)
				continue;
		}
		list_del(&share->link);
		kfree(share);
	}
	if (action & ACTION_REVOKE)
		return NV_OK;
	return add_share(object, target, mask, type, action);
}
