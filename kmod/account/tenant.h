/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Named tenants: processes that were taken in by name, and the children that they made since.
 *
 * Tenants are guarded by ds_limits_lock (limit.h); who belongs to which by a spinlock of its
 * own, since children are taken in while they are being born.
 */
#ifndef DETSHARE_TENANT_H
#define DETSHARE_TENANT_H

#include <linux/list.h>
#include <linux/pid.h>
#include <linux/refcount.h>

#include "detshare_uapi.h"
#include "process.h"

struct ds_tenant {
	struct list_head link;
	char name[DETSHARE_NAME_MAX + 1];
	refcount_t refs;	/* one of them as long as it is not gone */
	bool gone;
};

/* A name to be kept, not the tenant's members or limits. */
void ds_tenant_hold(struct ds_tenant *tenant);
void ds_tenant_put(struct ds_tenant *tenant);

/*
 * Births of processes are watched from the first tenant on: before ds_tenant_make(), without ds_limits_lock, for it
 * waits for CPU hotplug, which may wait for somebody's mmap_lock, under which ds_limits_lock is taken. -ENOMEM and the like.
 */
int ds_tenants_watch(void);

/* The caller of these holds ds_limits_lock. */
struct ds_tenant *ds_tenant_find(const char *name);
struct ds_tenant *ds_tenant_at(unsigned int index);
/* The tenant with this name, made if there is none. -ENOMEM. */
struct ds_tenant *ds_tenant_make(const char *name);
/* Lets everybody go, removes its limits. */
void ds_tenant_remove(struct ds_tenant *tenant);
/*
 * Takes the process in (NULL: lets it go), with what it holds. -ENOSPC: it would have too many accounts;
 * -ENOMEM; nothing was changed then.
 */
int ds_tenant_take(struct ds_tenant *tenant, struct ds_process *process);
/* The tenant that the process belongs to; of one that ended with clients: belonged to, until that is removed. NULL: none. */
struct ds_tenant *ds_tenant_of(const struct ds_process *process);
/* Calls `tell` for each living process of the tenant until that returns non-zero, and returns that. Atomic. */
int ds_tenant_each(const struct ds_tenant *tenant, int (*tell)(pid_t pid, void *data), void *data);

int ds_tenant_init(void);
void ds_tenant_exit(void);

#endif
