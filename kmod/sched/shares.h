/* SPDX-License-Identifier: GPL-2.0-only */
/* Weights into slices: an account's part of a GPU is its weight, however many channel groups it has. */
#ifndef DETSHARE_SHARES_H
#define DETSHARE_SHARES_H

#include <linux/types.h>

#include "detshare_uapi.h"

/* What a weight of one gets, all channel groups of the account together, if nothing else bends it. */
#define DS_SHARE_UNIT_US 2000ULL
/* The shortest slice that is worth its context switches. */
#define DS_SHARE_SHORTEST_US 200ULL
/* The shortest slice of those that run at the same time in a turn (rotation.h), or beside a rival (rival.h): theirs is not the only context. */
#define DS_SHARE_RIVAL_US 1000ULL
/* Nobody waits longer than this for one turn of one channel group with a weight. */
#define DS_SHARE_LONGEST_US 1000000ULL

/* The compute channel groups of one account on one GPU. */
struct ds_share {
	u32 gpu;
	enum detshare_kind kind;	/* with account: whose, a name to compare */
	u64 account;
	u32 weight;
	unsigned int tsgs;
	u64 slice_us;			/* of each: filled in by ds_shares_slices() */
};

/*
 * The share of this account in the table, which has room for one more; made if there is none. One account may be given several
 * weights, by rows of classes: the largest counts.
 */
struct ds_share *ds_share_of(struct ds_share *shares, unsigned int *count, const struct ds_share *key);
/*
 * Gives all that are on one GPU slices in proportion to their weights. Where the smallest would be below DS_SHARE_SHORTEST_US all of
 * them grow, until the largest is DS_SHARE_LONGEST_US: only beyond that the proportion is bent.
 */
void ds_shares_slices(struct ds_share *shares, unsigned int count);

#endif
