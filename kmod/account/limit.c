// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "events.h"
#include "limit_impl.h"
#include "rows.h"

DEFINE_MUTEX(ds_limits_lock);
LIST_HEAD(ds_entries);

/* Nobody may be charging the account: every payer has left it. */
static void drop_account(struct ds_entry *entry, u32 gpu)
{
	kfree(entry->accounts[gpu]);
	entry->accounts[gpu] = NULL;
}

struct ds_entry *ds_entry_find(const struct ds_subject *subject)
{
	struct ds_entry *entry;

	list_for_each_entry(entry, &ds_entries, link)
		if (ds_subject_same(&entry->subject, subject))
			return entry;
	return NULL;
}

static bool entry_empty(const struct ds_entry *entry)
{
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (entry->own[gpu])
			return false;
	return entry->all == UNSET;
}

/* Brings accounts and payers into line with the entry's limits, which only grow stricter if this fails. */
static int apply(struct ds_entry *entry)
{
	struct ds_payer *payer;
	int err = 0;
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (entry->accounts[gpu] && ds_entry_limit(entry, gpu))
			rm_account_set_limit(&entry->accounts[gpu]->rm, ds_entry_limit(entry, gpu));
	list_for_each_entry(payer, &ds_payers, link) {
		if (payer->gpu >= RM_GPUS)
			continue;
		if (!ds_entry_limit(entry, payer->gpu))
			ds_entry_leave(entry, payer);
		else if (!err && ds_entry_meant(&entry->subject, payer))
			err = ds_entry_join(entry, payer);
	}
	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (!ds_entry_limit(entry, gpu))
			drop_account(entry, gpu);
	return err;
}

static void free_entry(struct ds_entry *entry)
{
	ds_row_del(&entry->link);
	ds_process_put(entry->subject.process);
	if (entry->cgroup)
		cgroup_put(entry->cgroup);
	kfree(entry);
}

static void fill(const struct ds_entry *entry, u32 gpu, struct ds_limit_info *info)
{
	u32 at;

	*info = (struct ds_limit_info){ .subject = entry->subject, .gpu = gpu };
	info->limit = gpu == DS_ALL_GPUS ? entry->all : entry->own[gpu];
	for (at = 0; at < RM_GPUS; at++) {
		const struct rm_account *rm = entry->accounts[at] ? &entry->accounts[at]->rm : NULL;

		/* a limit for each GPU shows the GPU that is used most */
		if (!rm || (gpu == DS_ALL_GPUS ? entry->own[at] : at != gpu))
			continue;
		info->used = max(info->used, rm_account_used(rm));
		info->peak = max(info->peak, rm_account_peak(rm));
		info->refused += rm_account_refused(rm);
	}
}

static u64 *limit_of(struct ds_entry *entry, u32 gpu)
{
	return gpu == DS_ALL_GPUS ? &entry->all : &entry->own[gpu];
}

/* Without a limit yet. ERR_PTR: -ENOMEM, -ENOENT (no such cgroup). */
static struct ds_entry *make_entry(const struct ds_subject *subject)
{
	struct ds_entry *entry = kzalloc(sizeof(*entry), GFP_KERNEL);

	if (!entry)
		return ERR_PTR(-ENOMEM);
	if (subject->kind == DETSHARE_KIND_CGROUP) {
		entry->cgroup = cgroup_get_from_id(subject->cgroup);
		if (IS_ERR_OR_NULL(entry->cgroup)) {
			kfree(entry);
			return ERR_PTR(-ENOENT);
		}
	}
	entry->subject = *subject;
	if (subject->process)
		ds_process_hold(subject->process);
	list_add_tail(&entry->link, &ds_entries);
	return entry;
}

static void tell(const struct ds_limit_info *info)
{
	struct ds_event_subject subject;

	ds_subject_event(&info->subject, &subject);
	ds_event_limit(&subject, info->gpu, info->used, info->limit);
}

int ds_limit_set(const struct ds_subject *subject, u32 gpu, u64 limit, struct ds_limit_info *info)
{
	struct ds_entry *entry = ds_entry_find(subject);
	u64 before;
	int err;

	if (!entry)
		entry = make_entry(subject);
	if (IS_ERR(entry))
		return PTR_ERR(entry);
	before = *limit_of(entry, gpu);
	*limit_of(entry, gpu) = limit;
	err = apply(entry);
	if (err) {
		*limit_of(entry, gpu) = before;
		apply(entry);
	}
	fill(entry, gpu, info);
	if (entry_empty(entry))
		free_entry(entry);
	else if (!err)
		tell(info);
	return err;
}

int ds_limit_del(const struct ds_subject *subject, u32 gpu)
{
	struct ds_entry *entry = ds_entry_find(subject);
	struct ds_limit_info info;

	if (!entry || *limit_of(entry, gpu) == UNSET)
		return -ENOENT;
	fill(entry, gpu, &info);
	*limit_of(entry, gpu) = UNSET;
	/* where another limit of the subject takes its place, its account is there already: nothing can fail */
	apply(entry);
	info.limit = UNSET;
	tell(&info);
	if (entry_empty(entry))
		free_entry(entry);
	return 0;
}

bool ds_limit_at(unsigned int index, struct ds_limit_info *info)
{
	struct ds_entry *entry;
	u32 gpu;

	list_for_each_entry(entry, &ds_entries, link) {
		if (entry->all != UNSET && !index--) {
			fill(entry, DS_ALL_GPUS, info);
			return true;
		}
		for (gpu = 0; gpu < RM_GPUS; gpu++) {
			if (entry->own[gpu] != UNSET && !index--) {
				fill(entry, gpu, info);
				return true;
			}
		}
	}
	return false;
}

static void forget(struct ds_entry *entry)
{
	entry->all = UNSET;
	memset(entry->own, 0, sizeof(entry->own));
	apply(entry);
	free_entry(entry);
}

static bool concerns_anybody(const struct ds_entry *entry)
{
	struct ds_payer *payer;

	list_for_each_entry(payer, &ds_payers, link)
		if (ds_entry_meant(&entry->subject, payer))
			return true;
	return false;
}

static bool is_gone(const struct ds_entry *entry)
{
	switch (entry->subject.kind) {
	case DETSHARE_KIND_PID:
		return ds_process_gone(entry->subject.process);
	case DETSHARE_KIND_CGROUP:
		/* who died in it may have left memory to others */
		return !(entry->cgroup->self.flags & CSS_ONLINE) && !concerns_anybody(entry);
	case DETSHARE_KIND_TENANT:
		return false;
	}
	return false;
}

void ds_limits_refresh(void)
{
	struct ds_entry *entry, *next;
	struct ds_payer *payer;

	mutex_lock(&ds_limits_lock);
	/* who cannot be followed is refused at his next charge */
	list_for_each_entry(payer, &ds_payers, link)
		ds_process_follow(payer->process);
	list_for_each_entry_safe(entry, next, &ds_entries, link)
		if (is_gone(entry))
			forget(entry);
	mutex_unlock(&ds_limits_lock);
}

void ds_payers_desert(struct ds_tenant *tenant)
{
	struct ds_subject subject = { .kind = DETSHARE_KIND_TENANT, .tenant = tenant };
	struct ds_entry *entry = ds_entry_find(&subject);

	if (entry)
		forget(entry);
	ds_processes_desert(tenant);
}

void ds_limit_exit(void)
{
	struct ds_entry *entry, *next;

	list_for_each_entry_safe(entry, next, &ds_entries, link)
		forget(entry);
}
