/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who is limited to how much memory.
 *
 * A subject (process, cgroup or tenant) has limits; for each GPU on which one is in force it has
 * an account. A payer is what holds GPU memory: a vCtx, the managed memory of a UVM file,
 * objects kept by a file descriptor. A payer pays with the accounts of all subjects that its
 * process belongs to. Accounts join and leave payers as limits come and go, and as processes
 * move to other cgroups.
 *
 * Locks: ds_limits_lock guards subjects, tenants and the list of payers; below it comes the
 * payer's own lock, which guards its payer.
 */
#ifndef DETSHARE_LIMIT_H
#define DETSHARE_LIMIT_H

#include <linux/list.h>
#include <linux/mutex.h>

#include "detshare_uapi.h"
#include "events.h"
#include "process.h"
#include "rm/quota.h"
#include "rm/tree.h"
#include "subject.h"

/* Largest limit that may be asked for. */
#define DS_LIMIT_MAX RM_NO_LIMIT

/* What a limit says of itself in answers and events. */
struct ds_limit_info {
	struct ds_subject subject;
	u32 gpu;		/* DS_ALL_GPUS: each by itself */
	u64 limit, used, peak, refused;
};

struct ds_payer {
	struct list_head link;
	struct mutex *lock;	/* the client's or file's: guards core */
	struct ds_process *process;	/* held by the owner of the payer */
	u32 gpu;
	bool keeps;	/* what others have held longer is not shown a second time */
	bool again;	/* another payer of the owner's shows the same: it is for limits alone */
	struct rm_payer core;
};

/*
 * From now on all limits that are meant for the payer are in force, and those that come later will be.
 * -ENOSPC: more than RM_ACCOUNTS_MAX limits are meant for it; -ENOMEM.
 */
int ds_payer_add(struct ds_payer *payer);
/*
 * The process may have been moved to another cgroup: then all that it holds is charged there from now on, past the limits of
 * there if need be, and nowhere else. Call it before a charge, with none of the locks but ds_file.order. 0; -ENOSPC: more than
 * RM_ACCOUNTS_MAX limits would be meant for a payer, -ENOMEM: nothing has moved, so grant nothing.
 */
int ds_payers_follow(struct ds_process *process);
/* The payer must hold nothing any more. */
void ds_payer_remove(struct ds_payer *payer);

void ds_refusal_fill(struct ds_refusal *refusal, struct rm_account *account, u64 asked);

/*
 * The caller of these holds ds_limits_lock. limit: bytes, 1 to DS_LIMIT_MAX. *info tells the use at that moment. -ENOSPC: somebody would have too many
 * accounts, nothing was changed; -ENOMEM; -ENOENT: no such cgroup.
 */
int ds_limit_set(const struct ds_subject *subject, u32 gpu, u64 limit, struct ds_limit_info *info);
/* -ENOENT: there is no such limit. */
int ds_limit_del(const struct ds_subject *subject, u32 gpu);

/* Is a limit meant for the process, on whatever GPU? Takes ds_limits_lock. */
bool ds_process_limited(struct ds_process *process);

/*
 * The index-th limit of all; false: there are no so many. *info's subject stays valid while ds_limits_lock is
 * held, which the caller holds.
 */
bool ds_limit_at(unsigned int index, struct ds_limit_info *info);
/* Forgets the limits of processes and cgroups that are gone, follows processes to the cgroups that they are in. */
void ds_limits_refresh(void);

extern struct mutex ds_limits_lock;

/*
 * What the process holds counts for this tenant from now on (NULL: for none), and its tenant is that one.
 * -ENOSPC: too many accounts; -ENOMEM; nothing was changed. The caller holds ds_limits_lock.
 */
int ds_payers_move(struct ds_process *process, struct ds_tenant *tenant);
/* Everybody leaves the tenant, whose limits are removed. The caller holds ds_limits_lock. */
void ds_payers_desert(struct ds_tenant *tenant);
/* Bytes held for the tenant on all GPUs. The caller holds ds_limits_lock. */
u64 ds_payers_used(const struct ds_tenant *tenant);

void ds_limit_exit(void);

#endif
