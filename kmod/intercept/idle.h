/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits for idle channels (RM_IDLE_CHANNELS, FIFO_IDLE_CHANNELS): the driver holds its GPU lock meanwhile, ten milliseconds at most. One at a
 * time of each tenant (else cgroup, else process), so that however many threads wait, others come in between.
 */
#ifndef DETSHARE_IDLE_H
#define DETSHARE_IDLE_H

#include <linux/list.h>
#include <linux/types.h>

struct ds_process;

struct ds_idle {
	struct list_head link;
	const void *who;
};

/* Waits for the process's turn; false: the task is being killed. Sleeps. */
bool ds_idle_begin(struct ds_idle *idle, const struct ds_process *process);
void ds_idle_end(struct ds_idle *idle);

#endif
