// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cgroup.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "events.h"
#include "limit.h"
#include "tenant.h"

#define UNSET 0ULL	/* no limit is that small */

/* A subject with a limit. Owns a reference of its process. */
struct entry {
	struct list_head link;
	struct ds_subject subject;
	u64 all;		/* on each GPU by itself */
	u64 own[RM_GPUS];	/* goes before it */
	struct account *accounts[RM_GPUS];
};

struct account {
	struct rm_account rm;
	struct entry *entry;
};

DEFINE_MUTEX(ds_limits_lock);
static LIST_HEAD(entries);
static LIST_HEAD(holders);

void ds_cgroups_current(struct ds_cgroups *cgroups)
{
	struct cgroup *cgroup;

	cgroups->count = 0;
	rcu_read_lock();
	for (cgroup = task_dfl_cgroup(current); cgroup && cgroup_parent(cgroup);
	     cgroup = cgroup_parent(cgroup)) {
		if (cgroups->count == DS_CGROUPS_MAX)
			break;
		cgroups->id[cgroups->count++] = cgroup_id(cgroup);
	}
	rcu_read_unlock();
}

static bool same(const struct ds_subject *a, const struct ds_subject *b)
{
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case DETSHARE_KIND_PID:
		return a->process == b->process;
	case DETSHARE_KIND_CGROUP:
		return a->cgroup == b->cgroup;
	case DETSHARE_KIND_TENANT:
		return a->tenant == b->tenant;
	}
	return false;
}

static bool meant(const struct ds_subject *subject, const struct ds_holder *holder)
{
	unsigned int i;

	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return holder->process == subject->process;
	case DETSHARE_KIND_CGROUP:
		for (i = 0; i < holder->cgroups->count; i++)
			if (holder->cgroups->id[i] == subject->cgroup)
				return true;
		return false;
	case DETSHARE_KIND_TENANT:
		return holder->process->tenant == subject->tenant;
	}
	return false;
}

static u64 effective(const struct entry *entry, u32 gpu)
{
	return entry->own[gpu] ?: entry->all;
}

static int join(struct entry *entry, struct ds_holder *holder)
{
	struct account *account = entry->accounts[holder->gpu];
	int err;

	if (!account) {
		account = kzalloc(sizeof(*account), GFP_KERNEL);
		if (!account)
			return -ENOMEM;
		account->entry = entry;
		rm_account_init(&account->rm, effective(entry, holder->gpu));
		entry->accounts[holder->gpu] = account;
	}
	mutex_lock(holder->lock);
	err = rm_payer_join(&holder->payer, &account->rm);
	mutex_unlock(holder->lock);
	return err == -EEXIST ? 0 : err;
}

static void leave(struct entry *entry, struct ds_holder *holder)
{
	struct account *account = entry->accounts[holder->gpu];

	if (!account)
		return;
	mutex_lock(holder->lock);
	rm_payer_leave(&holder->payer, &account->rm);
	mutex_unlock(holder->lock);
}

/* Nobody may be charging the account: every holder has left it. */
static void drop_account(struct entry *entry, u32 gpu)
{
	kfree(entry->accounts[gpu]);
	entry->accounts[gpu] = NULL;
}

static int holder_join_all(struct ds_holder *holder)
{
	struct entry *entry;
	int err;

	if (!holder->process->tenant)
		holder->process->tenant = ds_tenant_of(holder->process->pid);
	if (holder->gpu >= RM_GPUS)
		return 0;
	list_for_each_entry(entry, &entries, link) {
		if (!effective(entry, holder->gpu) || !meant(&entry->subject, holder))
			continue;
		err = join(entry, holder);
		if (err)
			return err;
	}
	return 0;
}

int ds_holder_add(struct ds_holder *holder)
{
	int err;

	mutex_lock(&ds_limits_lock);
	err = holder_join_all(holder);
	if (!err) {
		list_add_tail(&holder->link, &holders);
	} else {
		mutex_lock(holder->lock);
		rm_payer_leave_all(&holder->payer);
		mutex_unlock(holder->lock);
	}
	mutex_unlock(&ds_limits_lock);
	return err;
}

void ds_holder_remove(struct ds_holder *holder)
{
	mutex_lock(&ds_limits_lock);
	list_del(&holder->link);
	mutex_lock(holder->lock);
	rm_payer_leave_all(&holder->payer);
	mutex_unlock(holder->lock);
	mutex_unlock(&ds_limits_lock);
}

void ds_refusal_fill(struct ds_refusal *refusal, struct rm_account *rm, u64 asked)
{
	const struct account *account = container_of(rm, struct account, rm);
	const struct ds_subject *subject = &account->entry->subject;

	memset(refusal, 0, sizeof(*refusal));
	refusal->kind = subject->kind;
	refusal->cgroup = subject->cgroup;
	if (subject->kind == DETSHARE_KIND_TENANT)
		strscpy(refusal->tenant, subject->tenant->name, sizeof(refusal->tenant));
	refusal->asked = asked;
	refusal->used = rm_account_used(rm);
	refusal->limit = rm_account_limit(rm);
}

static struct entry *find_entry(const struct ds_subject *subject)
{
	struct entry *entry;

	list_for_each_entry(entry, &entries, link)
		if (same(&entry->subject, subject))
			return entry;
	return NULL;
}

static bool entry_empty(const struct entry *entry)
{
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (entry->own[gpu])
			return false;
	return entry->all == UNSET;
}

/* Brings accounts and holders into line with the entry's limits, which only grow stricter if this fails. */
static int apply(struct entry *entry)
{
	struct ds_holder *holder;
	int err = 0;
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (entry->accounts[gpu] && effective(entry, gpu))
			rm_account_set_limit(&entry->accounts[gpu]->rm, effective(entry, gpu));
	list_for_each_entry(holder, &holders, link) {
		if (holder->gpu >= RM_GPUS || !meant(&entry->subject, holder))
			continue;
		if (!effective(entry, holder->gpu))
			leave(entry, holder);
		else if (!err)
			err = join(entry, holder);
	}
	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (!effective(entry, gpu))
			drop_account(entry, gpu);
	return err;
}

static void free_entry(struct entry *entry)
{
	list_del(&entry->link);
	ds_process_put(entry->subject.process);
	kfree(entry);
}

static void fill(const struct entry *entry, u32 gpu, struct ds_limit_info *info)
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

static u64 *limit_of(struct entry *entry, u32 gpu)
{
	return gpu == DS_ALL_GPUS ? &entry->all : &entry->own[gpu];
}

int ds_limit_set(const struct ds_subject *subject, u32 gpu, u64 limit, struct ds_limit_info *info)
{
	struct entry *entry = find_entry(subject);
	u64 before;
	int err;

	if (!entry) {
		entry = kzalloc(sizeof(*entry), GFP_KERNEL);
		if (!entry)
			return -ENOMEM;
		entry->subject = *subject;
		if (subject->process)
			ds_process_hold(subject->process);
		list_add_tail(&entry->link, &entries);
	}
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
		ds_event_limit(info);
	return err;
}

int ds_limit_del(const struct ds_subject *subject, u32 gpu)
{
	struct entry *entry = find_entry(subject);
	struct ds_limit_info info;

	if (!entry || *limit_of(entry, gpu) == UNSET)
		return -ENOENT;
	fill(entry, gpu, &info);
	*limit_of(entry, gpu) = UNSET;
	/* where another limit of the subject takes its place, its account is there already: nothing can fail */
	apply(entry);
	info.limit = UNSET;
	ds_event_limit(&info);
	if (entry_empty(entry))
		free_entry(entry);
	return 0;
}

bool ds_limit_at(unsigned int index, struct ds_limit_info *info)
{
	struct entry *entry;
	u32 gpu;

	list_for_each_entry(entry, &entries, link) {
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

static void forget(struct entry *entry)
{
	entry->all = UNSET;
	memset(entry->own, 0, sizeof(entry->own));
	apply(entry);
	free_entry(entry);
}

void ds_limits_reap(void)
{
	struct entry *entry, *next;

	mutex_lock(&ds_limits_lock);
	list_for_each_entry_safe(entry, next, &entries, link)
		if (entry->subject.kind == DETSHARE_KIND_PID &&
		    !ds_process_alive(entry->subject.process))
			forget(entry);
	mutex_unlock(&ds_limits_lock);
}

static struct entry *entry_of_tenant(struct ds_tenant *tenant)
{
	struct ds_subject subject = { .kind = DETSHARE_KIND_TENANT, .tenant = tenant };

	return tenant ? find_entry(&subject) : NULL;
}

int ds_holders_move(struct ds_process *process, struct ds_tenant *tenant)
{
	struct entry *from = entry_of_tenant(process->tenant);
	struct entry *to = entry_of_tenant(tenant);
	struct ds_holder *holder;
	int err = 0;

	if (process->tenant == tenant)
		return 0;
	/* join first: there is no moment at which nobody pays */
	list_for_each_entry(holder, &holders, link) {
		if (!to || holder->process != process || holder->gpu >= RM_GPUS ||
		    !effective(to, holder->gpu))
			continue;
		err = join(to, holder);
		if (err)
			break;
	}
	list_for_each_entry(holder, &holders, link) {
		struct entry *left = err ? to : from;

		if (left && holder->process == process && holder->gpu < RM_GPUS)
			leave(left, holder);
	}
	if (!err)
		process->tenant = tenant;
	return err;
}

void ds_holders_desert(struct ds_tenant *tenant)
{
	struct entry *entry = entry_of_tenant(tenant);

	if (entry)
		forget(entry);
	ds_processes_desert(tenant);
}

u64 ds_holders_used(const struct ds_tenant *tenant)
{
	struct ds_holder *holder;
	u64 used = 0;

	list_for_each_entry(holder, &holders, link)
		if (holder->process->tenant == tenant)
			used += rm_payer_bytes(&holder->payer);
	return used;
}

void ds_limit_exit(void)
{
	struct entry *entry, *next;

	list_for_each_entry_safe(entry, next, &entries, link)
		forget(entry);
}
