/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Carries out what is ordered for channel groups: slice, level, TPC ceiling. Orders (orders.h), rows of classes (class.h) and
 * weights (shares.h) say what each compute channel group is to have (census.h); a workqueue brings it about, one job after the other, by
 * asking the driver (enact.h). Each job looks at what is to be at the moment when it runs, so the last word is what stays, and what
 * was before the first is never forgotten. What failed is tried again until it is done. A channel group made later gets what is
 * ordered before its maker hears of it.
 */
#ifndef DETSHARE_SCHED_H
#define DETSHARE_SCHED_H

#include "client.h"
#include "orders.h"
#include "process.h"

struct ds_sched_result {
	u32 set, failed;
	u32 status;	/* NV_STATUS of the last that failed */
	u32 tpc_status;	/* with which the driver refused a ceiling, 0: it did not */
};

/*
 * Brings everybody whom the subject means into line, and waits for the driver. -EINTR: the caller was killed while waiting; -ENOMEM,
 * -ENODEV (the module is going). What could be done is done all the same.
 */
int ds_sched_apply(const struct ds_subject *subject, struct ds_sched_result *result);
/* Brings this channel group into line, and waits for the driver. Not under client->tree. */
void ds_sched_apply_tsg(const struct ds_client *client, u32 tsg);
/* Order, cgroup or tenant of the process may have changed: it is brought into line, soon. Any process context. */
void ds_sched_follow(struct ds_process *process);
/* Rows of classes, holds or buckets have changed: everybody is brought into line, soon. Any context. */
void ds_sched_again(void);

/*
 * The driver may have done to channel groups of the process what it asked for: they are brought into line anew. Not under client->tree.
 */
void ds_sched_doubt(struct ds_process *process);

/* What is known of a channel group beyond its object. Under client->tree. */
struct ds_tsg_state {
	bool managed;
	u64 slice_before;	/* 0: not known */
	u64 slice;		/* set by us, 0: was not */
	s32 level;		/* -1: was not set */
	u32 tpc_percent;	/* ceiling in force, 0: none */
};

void ds_sched_state(const struct rm_object *tsg, struct ds_tsg_state *state);

/* Forgets all orders and puts back what was; waits for the driver. */
void ds_sched_exit(void);
/* Nobody calls any more: nothing is tried again. */
void ds_sched_forget(void);

#endif
