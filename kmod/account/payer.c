// SPDX-License-Identifier: GPL-2.0-only
/* Who pays with which accounts. Everything here is under ds_limits_lock. */
#include <linux/slab.h>
#include <linux/string.h>

#include "limit_impl.h"
#include "tenant.h"

LIST_HEAD(ds_payers);

/* Is it the cgroup with this id, or below it? Its ancestors exist as long as it does. */
static bool within(struct cgroup *cgroup, u64 id)
{
	for (; cgroup && cgroup_parent(cgroup); cgroup = cgroup_parent(cgroup))
		if (cgroup_id(cgroup) == id)
			return true;
	return false;
}

bool ds_entry_meant(const struct ds_subject *subject, const struct ds_payer *payer)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return payer->process == subject->process;
	case DETSHARE_KIND_CGROUP:
		return within(payer->process->cgroup, subject->cgroup);
	case DETSHARE_KIND_TENANT:
		return payer->process->tenant == subject->tenant;
	}
	return false;
}

/* The entry's account on this GPU, made if there was none. NULL: no memory. */
static struct ds_account *account_of(struct ds_entry *entry, u32 gpu)
{
	struct ds_account *account = entry->accounts[gpu];

	if (account)
		return account;
	account = kzalloc(sizeof(*account), GFP_KERNEL);
	if (!account)
		return NULL;
	account->entry = entry;
	rm_account_init(&account->rm, ds_entry_limit(entry, gpu));
	entry->accounts[gpu] = account;
	return account;
}

int ds_entry_join(struct ds_entry *entry, struct ds_payer *payer)
{
	struct ds_account *account = account_of(entry, payer->gpu);
	int err;

	if (!account)
		return -ENOMEM;
	mutex_lock(payer->lock);
	err = rm_payer_join(&payer->core, &account->rm);
	mutex_unlock(payer->lock);
	return err == -EEXIST ? 0 : err;
}

void ds_entry_leave(struct ds_entry *entry, struct ds_payer *payer)
{
	struct ds_account *account = entry->accounts[payer->gpu];

	if (!account)
		return;
	mutex_lock(payer->lock);
	rm_payer_leave(&payer->core, &account->rm);
	mutex_unlock(payer->lock);
}

/* ---- processes that move -------------------------------------------------- */

/* What a process's move from one cgroup to another means for an entry. */
enum change {
	STAYS,
	LEAVES,
	JOINS,
};

static enum change change_of(const struct ds_entry *entry, u32 gpu, struct cgroup *from, struct cgroup *to)
{
	bool was, is;

	if (entry->subject.kind != DETSHARE_KIND_CGROUP || !ds_entry_limit(entry, gpu))
		return STAYS;
	was = within(from, entry->subject.cgroup);
	is = within(to, entry->subject.cgroup);
	return was == is ? STAYS : is ? JOINS : LEAVES;
}

/* Makes the accounts that the payer will need, so that change_accounts() cannot fail. */
static int prepare_move(const struct ds_payer *payer, struct cgroup *from, struct cgroup *to)
{
	/* accounts join and leave under ds_limits_lock only */
	unsigned int count = payer->core.n_accounts;
	struct ds_entry *entry;

	list_for_each_entry(entry, &ds_entries, link) {
		switch (change_of(entry, payer->gpu, from, to)) {
		case JOINS:
			count++;
			if (!account_of(entry, payer->gpu))
				return -ENOMEM;
			break;
		case LEAVES:
			count--;
			break;
		case STAYS:
			break;
		}
	}
	return count > RM_ACCOUNTS_MAX ? -ENOSPC : 0;
}

/* In one step for whoever charges: he finds all of the old accounts or all of the new. */
static void change_accounts(struct ds_payer *payer, struct cgroup *from, struct cgroup *to)
{
	struct ds_entry *entry;

	mutex_lock(payer->lock);
	list_for_each_entry(entry, &ds_entries, link)
		if (change_of(entry, payer->gpu, from, to) == LEAVES && entry->accounts[payer->gpu])
			rm_payer_leave(&payer->core, &entry->accounts[payer->gpu]->rm);
	list_for_each_entry(entry, &ds_entries, link)
		if (change_of(entry, payer->gpu, from, to) == JOINS)
			rm_payer_join(&payer->core, &entry->accounts[payer->gpu]->rm);
	mutex_unlock(payer->lock);
}

static int move(struct ds_process *process, struct cgroup *to)
{
	struct cgroup *from = process->cgroup;
	struct ds_payer *payer;
	int err;

	list_for_each_entry(payer, &ds_payers, link) {
		if (payer->process != process || payer->gpu >= RM_GPUS)
			continue;
		err = prepare_move(payer, from, to);
		if (err)
			return err;
	}
	list_for_each_entry(payer, &ds_payers, link)
		if (payer->process == process && payer->gpu < RM_GPUS)
			change_accounts(payer, from, to);
	WRITE_ONCE(process->cgroup, to);
	return 0;
}

/* Under ds_limits_lock. */
int ds_process_follow(struct ds_process *process)
{
	struct cgroup *from = process->cgroup, *to;
	int err;

	if (likely(!ds_process_moved(process)))
		return 0;
	to = ds_process_cgroup(process);
	if (!to)
		return 0;
	err = to == from ? -EALREADY : move(process, to);
	if (err)
		cgroup_put(to);
	else if (from)
		cgroup_put(from);
	if (err == -ENOSPC)
		pr_warn_ratelimited("process %d is refused more memory: in its new cgroup more than %d limits are meant for it\n",
				    ds_process_nr(process), RM_ACCOUNTS_MAX);
	return err == -EALREADY ? 0 : err;
}

int ds_payers_follow(struct ds_process *process)
{
	int err;

	if (likely(!ds_process_moved(process)))
		return 0;
	mutex_lock(&ds_limits_lock);
	err = ds_process_follow(process);
	mutex_unlock(&ds_limits_lock);
	return err;
}

bool ds_process_limited(struct ds_process *process)
{
	const struct ds_payer as = { .process = process };
	struct ds_entry *entry;
	bool limited = false;

	mutex_lock(&ds_limits_lock);
	ds_process_follow(process);
	/* it may hold nothing yet */
	if (!process->tenant)
		WRITE_ONCE(process->tenant, ds_tenant_of(process));
	list_for_each_entry(entry, &ds_entries, link)
		limited |= ds_entry_meant(&entry->subject, &as);
	mutex_unlock(&ds_limits_lock);
	return limited;
}

/* ---- payers --------------------------------------------------------------- */

static int payer_join_all(struct ds_payer *payer)
{
	struct ds_entry *entry;
	int err = ds_process_follow(payer->process);

	if (err)
		return err;
	if (!payer->process->tenant)
		WRITE_ONCE(payer->process->tenant, ds_tenant_of(payer->process));
	if (payer->gpu >= RM_GPUS)
		return 0;
	list_for_each_entry(entry, &ds_entries, link) {
		if (!ds_entry_limit(entry, payer->gpu) || !ds_entry_meant(&entry->subject, payer))
			continue;
		err = ds_entry_join(entry, payer);
		if (err)
			return err;
	}
	return 0;
}

int ds_payer_add(struct ds_payer *payer)
{
	int err;

	mutex_lock(&ds_limits_lock);
	err = payer_join_all(payer);
	if (!err) {
		list_add_tail(&payer->link, &ds_payers);
		WRITE_ONCE(payer->process->payers, payer->process->payers + 1);
	} else {
		mutex_lock(payer->lock);
		rm_payer_leave_all(&payer->core);
		mutex_unlock(payer->lock);
	}
	mutex_unlock(&ds_limits_lock);
	return err;
}

void ds_payer_remove(struct ds_payer *payer)
{
	mutex_lock(&ds_limits_lock);
	list_del(&payer->link);
	WRITE_ONCE(payer->process->payers, payer->process->payers - 1);
	mutex_lock(payer->lock);
	rm_payer_leave_all(&payer->core);
	mutex_unlock(payer->lock);
	mutex_unlock(&ds_limits_lock);
}

void ds_refusal_fill(struct ds_refusal *refusal, struct rm_account *rm, u64 asked)
{
	const struct ds_account *account = container_of(rm, struct ds_account, rm);
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

/* ---- tenants --------------------------------------------------------------- */

static struct ds_entry *entry_of_tenant(struct ds_tenant *tenant)
{
	struct ds_subject subject = { .kind = DETSHARE_KIND_TENANT, .tenant = tenant };

	return tenant ? ds_entry_find(&subject) : NULL;
}

int ds_payers_move(struct ds_process *process, struct ds_tenant *tenant)
{
	struct ds_entry *from = entry_of_tenant(process->tenant);
	struct ds_entry *to = entry_of_tenant(tenant);
	struct ds_payer *payer;
	int err = 0;

	if (process->tenant == tenant)
		return 0;
	/* join first: there is no moment at which nobody pays */
	list_for_each_entry(payer, &ds_payers, link) {
		if (!to || payer->process != process || payer->gpu >= RM_GPUS ||
		    !ds_entry_limit(to, payer->gpu))
			continue;
		err = ds_entry_join(to, payer);
		if (err)
			break;
	}
	list_for_each_entry(payer, &ds_payers, link) {
		struct ds_entry *left = err ? to : from;

		if (left && payer->process == process && payer->gpu < RM_GPUS)
			ds_entry_leave(left, payer);
	}
	if (!err)
		WRITE_ONCE(process->tenant, tenant);
	return err;
}

u64 ds_payers_used(const struct ds_tenant *tenant)
{
	struct ds_payer *payer;
	u64 used = 0;

	list_for_each_entry(payer, &ds_payers, link)
		if (payer->process->tenant == tenant && !payer->again)
			used += payer->keeps ? rm_payer_kept(&payer->core) : rm_payer_bytes(&payer->core);
	return used;
}
