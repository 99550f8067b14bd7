// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Accounts. The invariant: at every moment the bytes granted are at most the
 * limit in force, or the room is negative because the limit was lowered or
 * bytes were forced. `room` alone decides; `used` and `peak` follow it, after
 * a grant and before a return, so that they never show more than was granted.
 */
#include "quota.h"

void rm_account_init(struct rm_account *account, u64 limit)
{
	limit = rm_min64(limit, RM_NO_LIMIT);
	account->limit = limit;
	rm_atomic_set(&account->room, (s64)limit);
	rm_atomic_set(&account->used, 0);
	rm_atomic_set(&account->peak, 0);
	rm_atomic_set(&account->refused, 0);
}

void rm_account_set_limit(struct rm_account *account, u64 limit)
{
	u64 old = account->limit;

	limit = rm_min64(limit, RM_NO_LIMIT);
	WRITE_ONCE(account->limit, limit);
	rm_atomic_add_return(&account->room, (s64)limit - (s64)old);
}

u64 rm_account_limit(const struct rm_account *account)
{
	return READ_ONCE(account->limit);
}

u64 rm_account_used(const struct rm_account *account)
{
	return (u64)rm_atomic_read(&account->used);
}

u64 rm_account_peak(const struct rm_account *account)
{
	return (u64)rm_atomic_read(&account->peak);
}

u64 rm_account_refused(const struct rm_account *account)
{
	return (u64)rm_atomic_read(&account->refused);
}

u64 rm_account_room(const struct rm_account *account)
{
	s64 room = rm_atomic_read(&account->room);

	return room > 0 ? (u64)room : 0;
}

static void count_use(struct rm_account *account, u64 bytes)
{
	s64 used = rm_atomic_add_return(&account->used, (s64)bytes);
	s64 peak = rm_atomic_read(&account->peak);

	while (used > peak && !rm_atomic_try_cmpxchg(&account->peak, &peak, used))
		;
}

/* Takes bytes out of the room if they are there. */
static bool take(struct rm_account *account, u64 bytes)
{
	s64 room = rm_atomic_read(&account->room);

	do {
		if (room < (s64)bytes)
			return false;
	} while (!rm_atomic_try_cmpxchg(&account->room, &room, room - (s64)bytes));
	return true;
}

int rm_charge(struct rm_account *const *accounts, unsigned int n, u64 bytes,
	      struct rm_account **refuser)
{
	unsigned int i;

	if (!bytes)
		return 0;
	if (n && bytes > RM_NO_LIMIT) {
		i = 0;
		goto refused;
	}
	/* who will be refused shall not take bytes from the others meanwhile */
	for (i = 0; i < n; i++)
		if (rm_atomic_read(&accounts[i]->room) < (s64)bytes)
			goto refused;
	for (i = 0; i < n; i++)
		if (!take(accounts[i], bytes))
			goto undo;
	for (i = 0; i < n; i++)
		count_use(accounts[i], bytes);
	return 0;
undo:
	for (n = i; n--;)
		rm_atomic_add_return(&accounts[n]->room, (s64)bytes);
refused:
	rm_atomic_add_return(&accounts[i]->refused, 1);
	if (refuser)
		*refuser = accounts[i];
	return -ENOMEM;
}

void rm_uncharge(struct rm_account *const *accounts, unsigned int n, u64 bytes)
{
	unsigned int i;

	if (!bytes)
		return;
	for (i = 0; i < n; i++) {
		RM_BUG(rm_atomic_add_return(&accounts[i]->used, -(s64)bytes) < 0);
		rm_atomic_add_return(&accounts[i]->room, (s64)bytes);
	}
}

void rm_charge_force(struct rm_account *const *accounts, unsigned int n, u64 bytes)
{
	unsigned int i;

	if (!bytes)
		return;
	for (i = 0; i < n; i++) {
		rm_atomic_add_return(&accounts[i]->room, -(s64)bytes);
		count_use(accounts[i], bytes);
	}
}

int rm_payer_charge(struct rm_payer *payer, u64 bytes, struct rm_account **refuser)
{
	int error;

	if (bytes > RM_NO_LIMIT - payer->own) {
		if (refuser)
			*refuser = payer->n_accounts ? payer->accounts[0] : NULL;
		return -ENOMEM;
	}
	error = rm_charge(payer->accounts, payer->n_accounts, bytes, refuser);
	if (!error)
		payer->own += bytes;
	return error;
}

void rm_payer_uncharge(struct rm_payer *payer, u64 bytes)
{
	if (RM_BUG(bytes > payer->own))
		bytes = payer->own;
	payer->own -= bytes;
	rm_uncharge(payer->accounts, payer->n_accounts, bytes);
}

void rm_payer_force(struct rm_payer *payer, u64 bytes)
{
	bytes = rm_min64(bytes, RM_NO_LIMIT - payer->own);
	payer->own += bytes;
	rm_charge_force(payer->accounts, payer->n_accounts, bytes);
}

u64 rm_payer_settle(struct rm_payer *payer, u64 charged, u64 actual)
{
	if (actual < charged)
		rm_payer_uncharge(payer, charged - actual);
	else if (actual > charged)
		rm_payer_force(payer, actual - charged);
	return actual;
}

u64 rm_payer_bytes(const struct rm_payer *payer)
{
	return READ_ONCE(payer->own) + (u64)rm_atomic_read(&payer->shared);
}
