/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes (thread groups) that use a GPU, or that somebody has given a limit, an order or a
 * tenant. Known by their struct pid, so that a number used anew is another process.
 */
#ifndef DETSHARE_PROCESS_H
#define DETSHARE_PROCESS_H

#include <linux/cgroup.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/refcount.h>
#include <linux/sched.h>

#include "detshare_uapi.h"

struct ds_tenant;

/* What sched-set asked for; read it by ds_sched_get(). */
struct ds_order {
	bool set;
	char class[DETSHARE_NAME_MAX + 1];
	u64 slice_us;		/* 0: as it is */
	s32 level;		/* enum detshare_level, -1: as it is */
	u32 weight;		/* 0: none */
	u32 tpc_percent;	/* 0: no ceiling */
	/* Whose order it is: all who follow it share its weight. A name to compare, nothing more. */
	enum detshare_kind kind;
	u64 account;
};

/* The same, never 0. */
static inline u64 ds_order_account(const struct ds_order *order)
{
	return (order->account << 2 | order->kind) ?: 1;
}

struct ds_process {
	struct hlist_node link;
	struct pid *pid;
	refcount_t refs;
	u64 start;		/* clock ticks since boot */
	char comm[TASK_COMM_LEN];
	struct ds_tenant *tenant;	/* written under ds_limits_lock; NULL: none, or holds nothing yet */
	struct cgroup *cgroup;		/* where its charges are, held; the same, and NULL the same */
	unsigned int payers;		/* limit.h: that pay for it; written under ds_limits_lock */
	struct cgroup *ended_in;	/* where its last thread ended, held; set once. NULL: it has not */
	struct ds_order order;
	atomic_t groups;		/* sharer.h: channel groups that it has in common with others, as often as they were duplicated */
	struct mutex moving;		/* mover.h: one of its threads asks for all that wait */
	/* orders.c: number of the cgroup for which it was last brought into line; 0: it has moved since, if only there and back */
	u64 followed;
};

/* The current process. NULL: no memory. */
struct ds_process *ds_process_current(void);
/*
 * The living process with this number in the initial pid namespace; made known if it was not. -ESRCH, -ENOMEM.
 */
struct ds_process *ds_process_get(pid_t pid);
/*
 * The one with this number that has ended and is still known, the youngest of several; of those that started then, if `start` is not 0.
 * -ESRCH.
 */
struct ds_process *ds_process_get_ended(pid_t pid, u64 start);
/* Only if it is known already; NULL otherwise. Also a dead one, by the struct pid it had. */
struct ds_process *ds_process_find(struct pid *pid);
struct ds_process *ds_process_hold(struct ds_process *process);
void ds_process_put(struct ds_process *process);

/* Is a thread of it left? */
bool ds_process_alive(const struct ds_process *process);
/*
 * Has it ended, and left nothing? Who inherited its files goes on with its clients when it has ended. Whoever meant it at its end, by its
 * cgroup or tenant too, means those clients as long as there are any.
 */
bool ds_process_gone(const struct ds_process *process);
/* A thread ends that may be the last one of its process. Atomic. */
void ds_process_ends(struct task_struct *task);
/* A thread was moved to another cgroup. Atomic. */
void ds_process_moves(struct task_struct *task);
/* Its number in the initial pid namespace; the one it had, if it is dead. */
pid_t ds_process_nr(const struct ds_process *process);
/* Its name of this moment, or the last one known. */
void ds_process_comm(struct ds_process *process, char comm[TASK_COMM_LEN]);

/* Is it in another cgroup (v2) than its charges? Takes no lock. */
bool ds_process_moved(const struct ds_process *process);
/* The cgroup that it is in, or was in when it ended, held; NULL: it was dead when it became known. */
struct cgroup *ds_process_cgroup(const struct ds_process *process);
/* Is it in that cgroup (v2), or below it, at this moment, or was it when it ended? Any context. */
bool ds_process_within(const struct ds_process *process, struct cgroup *cgroup);
/* The number of the cgroup that ds_process_cgroup() tells; 0: none. Any context. */
u64 ds_process_cgroup_id(const struct ds_process *process);

/* No process belongs to this tenant any more. The caller holds ds_limits_lock. */
void ds_processes_desert(const struct ds_tenant *tenant);

/* Processes known; 0 when nothing is open and nothing is set. */
unsigned int ds_process_count(void);

#endif
