/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table of standing orders: for processes, cgroups (v2, with all below them) and tenants. The one that holds for a process is
 * its own, else that of the nearest cgroup, else its tenant's; it holds whole. Who is born in a cgroup or a tenant or comes into one
 * gets its order, who leaves loses it, at once: processes that move are brought into line by ds_sched_follow().
 */
#ifndef DETSHARE_ORDERS_H
#define DETSHARE_ORDERS_H

#include "process.h"
#include "subject.h"

/*
 * Moves between cgroups are watched from the first subject on that is a cgroup: before the subject is used, without locks, for it
 * waits for CPU hotplug. -ENOENT: this kernel cannot tell; -ENOMEM.
 */
int ds_orders_watch(const struct ds_subject *subject);

/*
 * Writes an order (set, kind and account are filled in), or replaces the one that is there. Nobody is brought into line yet. -ENOENT: there is
 * no such cgroup; -ENOMEM; -ENODEV: the module is going.
 */
int ds_orders_set(const struct ds_subject *subject, const struct ds_order *order);
/* -ENOENT: there is none. */
int ds_orders_del(const struct ds_subject *subject);
/* The index-th order, its subject held and to be put; false: there are no so many. */
bool ds_orders_at(unsigned int index, struct ds_subject *subject, struct ds_order *order);

/* The order that holds for the process now; false: none, and *order says so. Any context but hard interrupts. */
bool ds_orders_of(const struct ds_process *process, struct ds_order *order);

/* The tenant's members have changed: all who use a GPU are looked at again. */
void ds_orders_moved(void);
/* Forgets the orders of who is gone. */
void ds_orders_reap(void);

/* No order is taken any more, all that stand are forgotten; nobody is brought into line by this. */
void ds_orders_exit(void);

#endif
