/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks inside calls that get no processor time. A cgroup's cpu.max stops its tasks wherever they are (kernels before 6.18), also while
 * they hold locks of the driver or of this module that everybody wants. Who could run and did not for some tens of milliseconds is made a
 * real-time task of the lowest priority, which no cgroup stops, until it leaves the call, or has had some milliseconds: what is long in there is
 * not to have the processors for itself, and may starve and be let on again.
 */
#ifndef DETSHARE_BOOST_H
#define DETSHARE_BOOST_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/types.h>

struct ds_boost_shelf;

/* One call that the current task is in; on its stack. */
struct ds_boost {
	struct list_head link;
	struct ds_boost_shelf *shelf;	/* whose lock guards what follows */
	struct task_struct *task;
	u64 ran;		/* its processor time at the last look, ns */
	unsigned int pass;	/* number of that look; 0: none */
	bool could;		/* it could run then */
	bool boosted;
	bool moving;		/* it is being boosted, or put back: the look's until that is done */
	u64 since;		/* its processor time when it was boosted, ns */
	unsigned int policy;	/* as it was */
	bool reset_on_fork;
};

/* Around a call that may take locks. Process context; _leave sleeps if the task was boosted. */
void ds_boost_enter(struct ds_boost *boost);
void ds_boost_leave(struct ds_boost *boost);

int ds_boost_init(void);
/* Nobody is inside. */
void ds_boost_exit(void);

#endif
