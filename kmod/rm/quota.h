/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Limits on GPU memory, in bytes, and who pays.
 *
 * An account is one limit that is in force: of a process, a cgroup, a tenant.
 * Any number of threads may charge it at once without a lock. Whatever they
 * do, the sum granted never exceeds the limit, not for a moment: the room
 * left is one word, and a grant takes its bytes out of it by compare and
 * exchange only if they are there.
 *
 * A payer is what one client holds on one GPU, and the accounts that pay for
 * it. See below for who may touch it when.
 */
#ifndef DETSHARE_RM_QUOTA_H
#define DETSHARE_RM_QUOTA_H

#include "abi.h"

#define RM_ACCOUNTS_MAX 8
#define RM_NO_LIMIT ((u64)RM_S64_MAX)	/* also the largest limit */

/* Read members by the functions below. */
struct rm_account {
	rm_atomic64 room;	/* limit - granted; below 0 after the limit was lowered */
	rm_atomic64 used;	/* granted and not given back; never above what room says */
	rm_atomic64 peak;
	rm_atomic64 refused;	/* charges refused for this account's sake */
	u64 limit;
};

/* limit: bytes, above RM_NO_LIMIT is RM_NO_LIMIT. */
void rm_account_init(struct rm_account *account, u64 limit);

/*
 * Sets another limit. One below the present use is legal: nothing is granted
 * until enough has been given back. Callers of this function on one account
 * must exclude each other; charging goes on beside it.
 */
void rm_account_set_limit(struct rm_account *account, u64 limit);

u64 rm_account_limit(const struct rm_account *account);
u64 rm_account_used(const struct rm_account *account);
/* Most bytes ever used at once. */
u64 rm_account_peak(const struct rm_account *account);
u64 rm_account_refused(const struct rm_account *account);
/* Bytes a charge could get now. */
u64 rm_account_room(const struct rm_account *account);

/*
 * Charges all accounts or none; n <= RM_ACCOUNTS_MAX, no account twice. 0, or
 * -ENOMEM: *refuser (may be NULL) is the account without room. Put the most
 * private account first: while a charge is being refused by a later account,
 * a concurrent one may be refused by an earlier account for bytes that come
 * back at once.
 */
int rm_charge(struct rm_account *const *accounts, unsigned int n, u64 bytes,
	      struct rm_account **refuser);

/* Gives back what was charged. More than that is a bug. */
void rm_uncharge(struct rm_account *const *accounts, unsigned int n, u64 bytes);

/* Charges whether there is room or not: for what exists already. */
void rm_charge_force(struct rm_account *const *accounts, unsigned int n, u64 bytes);

/* ---- payers ------------------------------------------------------------- */

struct rm_holding;

/*
 * Embedded in the caller's vCtx. Everything here is guarded by the lock of
 * its client (tree.h), unless said otherwise. Zeroed memory is a payer
 * without accounts.
 */
struct rm_payer {
	struct rm_account *accounts[RM_ACCOUNTS_MAX];
	unsigned int n_accounts;
	u64 own;		/* bytes charged that no other payer holds */
	rm_atomic64 shared;	/* bytes of shared memory held; any thread */
	struct rm_holding *holdings;	/* shared memory; guarded by memory.c's mutex */
	u32 objects;
	u32 count[RM_KINDS];	/* living objects of each kind */
};

/* Charges for something new: before the call. As rm_charge(). */
int rm_payer_charge(struct rm_payer *payer, u64 bytes, struct rm_account **refuser);
/* Gives back a charge, or a part of it. */
void rm_payer_uncharge(struct rm_payer *payer, u64 bytes);
/* Charges for what exists already, past the limit if need be. */
void rm_payer_force(struct rm_payer *payer, u64 bytes);

/*
 * After the call: `charged` was charged, the driver took `actual`. More than
 * was charged (a forged answer, a driver that rounds unlike all we know) is
 * charged past the limit, so that the sum stays true. Returns actual.
 */
u64 rm_payer_settle(struct rm_payer *payer, u64 charged, u64 actual);

/* Bytes held: own and shared. Any thread. */
u64 rm_payer_bytes(const struct rm_payer *payer);
/*
 * The same without shared memory that somebody holds for longer: what is left
 * to the payer by others. Takes the mutex of memory.c; any thread.
 */
u64 rm_payer_kept(const struct rm_payer *payer);

/*
 * The account pays from now on, for all that the payer holds (past its limit
 * if need be), or no longer. -ENOSPC: it has RM_ACCOUNTS_MAX; -EEXIST, -ENOENT.
 * Memory that another payer of the same account holds too is not charged twice.
 */
int rm_payer_join(struct rm_payer *payer, struct rm_account *account);
int rm_payer_leave(struct rm_payer *payer, struct rm_account *account);
/* Lets all accounts go: for a payer about to vanish. */
void rm_payer_leave_all(struct rm_payer *payer);

/* ---- what a payer may see (answer.c) ------------------------------------ */

struct rm_view {
	u64 limit;	/* the smallest limit; RM_NO_LIMIT: show what the driver says */
	u64 room;	/* the smallest room, <= limit */
};

void rm_payer_view(const struct rm_payer *payer, struct rm_view *view);

#endif /* DETSHARE_RM_QUOTA_H */
