/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Standing orders: slice and level for the compute channel groups of a process. The driver
 * carries them out (rmcall.h), from a workqueue; a channel group made later gets them before its
 * maker hears of it.
 */
#ifndef DETSHARE_SCHED_H
#define DETSHARE_SCHED_H

#include "client.h"
#include "process.h"

struct ds_sched_result {
	u32 set, failed;
	u32 status;	/* NV_STATUS of the last that failed */
};

/*
 * Replaces the process's order (order->set is true), and waits for the driver. -EINTR: the caller was killed while waiting; -ENOMEM,
 * -ENODEV (the module is going). What could be done is done all the same.
 */
int ds_sched_set(struct ds_process *process, const struct ds_order *order, struct ds_sched_result *result);
/* Forgets it and puts back what was. -ENOENT: there is none. */
int ds_sched_del(struct ds_process *process, struct ds_sched_result *result);

/* The process's order; false: none. */
bool ds_sched_get(struct ds_process *process, struct ds_order *order);
/* The index-th process with an order, held; NULL: there are no so many. */
struct ds_process *ds_sched_at(unsigned int index);

/* The driver has made this channel group. Waits for it to get its order. Not under client->tree. */
void ds_sched_tsg_new(struct ds_client *client, u32 handle);
/* It is dying. Under client->tree. */
void ds_sched_tsg_gone(struct ds_client *client, struct rm_object *tsg);

/* What is known of a channel group beyond its object. Under client->tree. */
struct ds_tsg_state {
	bool managed;
	u64 slice_before;	/* 0: not known */
	s32 level;		/* -1: was not set */
};

void ds_sched_state(const struct rm_object *tsg, struct ds_tsg_state *state);

/* Is it a channel group for compute? Under client->tree. */
bool ds_tsg_computes(const struct ds_client *client, const struct rm_object *tsg);

void ds_sched_exit(void);

#endif
