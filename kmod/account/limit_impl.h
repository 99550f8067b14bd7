/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The inside of limit.h, for limit.c (limits) and payer.c (who pays). Everything is guarded by ds_limits_lock.
 */
#ifndef DETSHARE_LIMIT_IMPL_H
#define DETSHARE_LIMIT_IMPL_H

#include "limit.h"

#define UNSET 0ULL	/* no limit is that small */

/* A subject with a limit. Owns a reference of its process or cgroup. */
struct ds_entry {
	struct list_head link;
	struct ds_subject subject;
	struct cgroup *cgroup;	/* of a cgroup */
	u64 all;		/* on each GPU by itself */
	u64 own[RM_GPUS];	/* goes before it */
	struct ds_account *accounts[RM_GPUS];
};

struct ds_account {
	struct rm_account rm;
	struct ds_entry *entry;
};

/* All subjects with a limit, all payers. */
extern struct list_head ds_entries, ds_payers;

struct ds_entry *ds_entry_find(const struct ds_subject *subject);

/* In force on this GPU; UNSET: none. */
static inline u64 ds_entry_limit(const struct ds_entry *entry, u32 gpu)
{
	return entry->own[gpu] ?: entry->all;
}

bool ds_entry_meant(const struct ds_subject *subject, const struct ds_payer *payer);
/* The payer pays for the entry, whose limit on its GPU is set. Harmless if it does already. -ENOSPC, -ENOMEM. */
int ds_entry_join(struct ds_entry *entry, struct ds_payer *payer);
/* Harmless if it does not. */
void ds_entry_leave(struct ds_entry *entry, struct ds_payer *payer);
/* As ds_payers_follow(), which see. */
int ds_process_follow(struct ds_process *process);

#endif
