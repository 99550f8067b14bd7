// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Shared memory. An account pays for a memory while at least one payer that
 * has the account holds it. One mutex guards all lists here, and a payer's
 * accounts against those who look at them through a memory: sharing is rare,
 * and never on the path of an ordinary allocation.
 */
#include "memory.h"

static RM_DEFINE_MUTEX(sharing);

static bool pays(const struct rm_payer *payer, const struct rm_account *account)
{
	unsigned int i;

	for (i = 0; i < payer->n_accounts; i++)
		if (payer->accounts[i] == account)
			return true;
	return false;
}

/* Does another payer than `but` make this account pay for the memory? */
static bool paid_by_other(const struct rm_memory *memory, const struct rm_payer *but,
			  const struct rm_account *account)
{
	const struct rm_holding *holding;

	for (holding = memory->holdings; holding; holding = holding->next)
		if (holding->payer != but && pays(holding->payer, account))
			return true;
	return false;
}

/* The payer's accounts that pay for the memory on its behalf alone. */
static unsigned int alone(const struct rm_memory *memory, const struct rm_payer *payer,
			  struct rm_account *accounts[RM_ACCOUNTS_MAX])
{
	unsigned int n = 0, i;

	for (i = 0; i < payer->n_accounts; i++)
		if (!paid_by_other(memory, payer, payer->accounts[i]))
			accounts[n++] = payer->accounts[i];
	return n;
}

static struct rm_holding *find_holding(const struct rm_memory *memory, const struct rm_payer *payer)
{
	struct rm_holding *holding;

	for (holding = memory->holdings; holding; holding = holding->next)
		if (holding->payer == payer)
			return holding;
	return NULL;
}

static void link_holding(struct rm_memory *memory, struct rm_payer *payer,
			 struct rm_holding *holding)
{
	holding->memory = memory;
	holding->payer = payer;
	holding->holds = 1;
	holding->next = memory->holdings;
	memory->holdings = holding;
	holding->payer_next = payer->holdings;
	holding->payer_prev = &payer->holdings;
	if (payer->holdings)
		payer->holdings->payer_prev = &holding->payer_next;
	payer->holdings = holding;
	rm_atomic_add_return(&payer->shared, (s64)memory->bytes);
}

static void unlink_holding(struct rm_holding *holding)
{
	struct rm_holding **link = &holding->memory->holdings;

	while (*link != holding)
		link = &(*link)->next;
	*link = holding->next;
	*holding->payer_prev = holding->payer_next;
	if (holding->payer_next)
		holding->payer_next->payer_prev = holding->payer_prev;
	rm_atomic_add_return(&holding->payer->shared, -(s64)holding->memory->bytes);
}

int rm_memory_share(struct rm_client *client, struct rm_object *object,
		    struct rm_memory **memory)
{
	struct rm_payer *payer = client->payer[object->gpu];
	struct rm_memory *made;
	struct rm_holding *holding = NULL;

	*memory = object->memory;
	if (object->memory)
		return 0;
	if (!object->bytes)
		return -ENOENT;
	made = rm_zalloc(sizeof(*made));
	if (made && payer)
		holding = rm_zalloc(sizeof(*holding));
	if (!made || (payer && !holding)) {
		rm_mfree(made);
		return -ENOMEM;
	}
	made->bytes = object->bytes;
	made->holds = 1;
	made->unpaid = !payer;
	if (payer) {
		/* the accounts have paid already: it only changes its place */
		rm_mutex_lock(&sharing);
		payer->own -= object->bytes;
		link_holding(made, payer, holding);
		rm_mutex_unlock(&sharing);
	}
	object->bytes = 0;
	object->memory = made;
	*memory = made;
	return 0;
}

static int hold(struct rm_memory *memory, struct rm_payer *payer, bool force,
		struct rm_account **refuser)
{
	struct rm_account *accounts[RM_ACCOUNTS_MAX];
	struct rm_holding *holding;
	unsigned int n;

	if (!payer) {
		memory->holds++;
		memory->unpaid++;
		return 0;
	}
	holding = find_holding(memory, payer);
	if (holding) {
		holding->holds++;
		memory->holds++;
		return 0;
	}
	holding = rm_zalloc(sizeof(*holding));
	if (!holding)
		return -ENOMEM;
	n = alone(memory, payer, accounts);
	if (force) {
		rm_charge_force(accounts, n, memory->bytes);
	} else if (rm_charge(accounts, n, memory->bytes, refuser)) {
		rm_mfree(holding);
		return -ENOMEM;
	}
	link_holding(memory, payer, holding);
	memory->holds++;
	return 0;
}

int rm_memory_hold(struct rm_memory *memory, struct rm_payer *payer,
		   struct rm_account **refuser)
{
	int error;

	if (refuser)
		*refuser = NULL;
	rm_mutex_lock(&sharing);
	error = hold(memory, payer, false, refuser);
	rm_mutex_unlock(&sharing);
	return error;
}

int rm_memory_hold_force(struct rm_memory *memory, struct rm_payer *payer)
{
	int error;

	rm_mutex_lock(&sharing);
	error = hold(memory, payer, true, NULL);
	rm_mutex_unlock(&sharing);
	return error;
}

void rm_memory_drop(struct rm_memory *memory, struct rm_payer *payer)
{
	struct rm_account *accounts[RM_ACCOUNTS_MAX];
	struct rm_holding *holding = NULL;
	u64 left;

	rm_mutex_lock(&sharing);
	if (payer)
		holding = find_holding(memory, payer);
	/* better to keep memory charged for ever than to free what others hold */
	if (RM_BUG(payer ? !holding : !memory->unpaid)) {
		rm_mutex_unlock(&sharing);
		return;
	}
	if (!payer) {
		memory->unpaid--;
	} else if (--holding->holds) {
		holding = NULL;
	} else {
		rm_uncharge(accounts, alone(memory, payer, accounts), memory->bytes);
		unlink_holding(holding);
	}
	left = --memory->holds;
	rm_mutex_unlock(&sharing);
	rm_mfree(holding);
	if (!left)
		rm_mfree(memory);
}

u64 rm_memory_bytes(const struct rm_memory *memory)
{
	return memory->bytes;
}

u64 rm_payer_kept(const struct rm_payer *payer)
{
	const struct rm_holding *holding;
	u64 bytes;

	rm_mutex_lock(&sharing);
	bytes = payer->own;
	for (holding = payer->holdings; holding; holding = holding->payer_next)
		if (!holding->next)	/* the oldest stands last */
			bytes += holding->memory->bytes;
	rm_mutex_unlock(&sharing);
	return bytes;
}

/* What the payer holds that no other payer makes this account pay for. */
static u64 owed(const struct rm_payer *payer, const struct rm_account *account)
{
	const struct rm_holding *holding;
	u64 bytes = payer->own;

	for (holding = payer->holdings; holding; holding = holding->payer_next)
		if (!paid_by_other(holding->memory, payer, account))
			bytes += holding->memory->bytes;
	return bytes;
}

int rm_payer_join(struct rm_payer *payer, struct rm_account *account)
{
	int error = 0;

	rm_mutex_lock(&sharing);
	if (pays(payer, account)) {
		error = -EEXIST;
	} else if (payer->n_accounts == RM_ACCOUNTS_MAX) {
		error = -ENOSPC;
	} else {
		rm_charge_force(&account, 1, owed(payer, account));
		payer->accounts[payer->n_accounts++] = account;
	}
	rm_mutex_unlock(&sharing);
	return error;
}

static void leave(struct rm_payer *payer, unsigned int i)
{
	struct rm_account *account = payer->accounts[i];

	rm_uncharge(&account, 1, owed(payer, account));
	/* keep the order: the most private comes first */
	for (; i + 1 < payer->n_accounts; i++)
		payer->accounts[i] = payer->accounts[i + 1];
	payer->accounts[--payer->n_accounts] = NULL;
}

int rm_payer_leave(struct rm_payer *payer, struct rm_account *account)
{
	int error = -ENOENT;
	unsigned int i;

	rm_mutex_lock(&sharing);
	for (i = 0; i < payer->n_accounts; i++) {
		if (payer->accounts[i] != account)
			continue;
		leave(payer, i);
		error = 0;
		break;
	}
	rm_mutex_unlock(&sharing);
	return error;
}

void rm_payer_leave_all(struct rm_payer *payer)
{
	rm_mutex_lock(&sharing);
	while (payer->n_accounts)
		leave(payer, payer->n_accounts - 1);
	rm_mutex_unlock(&sharing);
}
