// SPDX-License-Identifier: GPL-2.0-only
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>

#include "contexts.h"
#include "limit_impl.h"

static unsigned int groups_max = 256;
module_param(groups_max, uint, 0644);
MODULE_PARM_DESC(groups_max, "most channel groups on one GPU for whoever has a memory limit there, 0: as many as it likes (default: 256)");

/* Those that are being made; under ds_limits_lock. */
static LIST_HEAD(coming);

static bool is_meant(const struct ds_entry *entry, struct ds_process *process)
{
	const struct ds_payer as = { .process = process };

	return ds_entry_meant(&entry->subject, &as);
}

/* Those of all whom the limit is meant for. A client counts its own under a lock of its own: a look beside it is as good. */
static unsigned int groups_of(const struct ds_entry *entry, u32 gpu)
{
	const struct ds_context *context;
	const struct ds_payer *payer;
	unsigned int count = 0;

	list_for_each_entry(payer, &ds_payers, link)
		if (payer->gpu == gpu && ds_entry_meant(&entry->subject, payer))
			count += READ_ONCE(payer->core.count[RM_KIND_TSG]);
	list_for_each_entry(context, &coming, link)
		count += context->gpu == gpu && is_meant(entry, context->process);
	return count;
}

static bool has_room(struct ds_process *process, u32 gpu, unsigned int most)
{
	const struct ds_entry *entry;

	list_for_each_entry(entry, &ds_entries, link)
		if (ds_entry_limit(entry, gpu) && is_meant(entry, process) && groups_of(entry, gpu) >= most)
			return false;
	return true;
}

bool ds_contexts_bounded(void)
{
	return READ_ONCE(groups_max);
}

bool ds_context_begin(struct ds_context *context, struct ds_process *process, u32 gpu)
{
	static DEFINE_RATELIMIT_STATE(lines, 60 * HZ, 3);
	unsigned int most = READ_ONCE(groups_max);
	bool room;

	*context = (struct ds_context){ .process = process, .gpu = gpu };
	mutex_lock(&ds_limits_lock);
	room = gpu >= RM_GPUS || !most || has_room(process, gpu, most);
	if (room)
		list_add(&context->link, &coming);
	mutex_unlock(&ds_limits_lock);
	if (!room && __ratelimit(&lines))
		pr_warn("process %d is refused a channel group: its limit on GPU %u has %u of them (parameter groups_max)\n",
			ds_process_nr(process), gpu, most);
	return room;
}

void ds_context_end(struct ds_context *context)
{
	mutex_lock(&ds_limits_lock);
	list_del(&context->link);
	mutex_unlock(&ds_limits_lock);
}
