/* SPDX-License-Identifier: GPL-2.0-only */
/* Holds by order (lease.h), and what comes of them. */
#ifndef DETSHARE_HOLD_H
#define DETSHARE_HOLD_H

#include <linux/types.h>

#include "subject.h"

struct ds_hold_result {
	u32 entities;		/* meant */
	u32 gated, paused;	/* are so now */
	u32 failed;		/* could not be paused */
	u32 status;		/* NV_STATUS of the last that failed, 0: the driver was not the reason */
	const char *why;	/* in words, a constant; NULL: none failed */
	u64 gate_ns;		/* until doors were shut */
	u64 pause_ns;		/* until the driver had answered */
};

struct ds_hold_info {
	struct ds_subject subject;
	bool gate, pause;
	u64 left_ms;
	struct ds_hold_result result;	/* as things are now */
};

/*
 * Holds, or renews; what is not asked for is let go. lease_ms: 1 to DETSHARE_LEASE_MAX_MS. Waits until doors are shut and the driver
 * has answered. -EINTR: the caller was killed while waiting, the hold is there all the same; -EOPNOTSUPP: a pause was asked for and no
 * run that is meant can be paused (result->why): what stood before stands again; -ENOMEM; -ENODEV: the module is going.
 */
int ds_hold_set(const struct ds_subject *subject, bool gate, bool pause, u32 lease_ms, struct ds_hold_result *result);
/* -ENOENT. */
int ds_hold_del(const struct ds_subject *subject, struct ds_hold_result *result);
/* The index-th one; false: there are no so many. subject->process is to be put. */
bool ds_hold_at(unsigned int index, struct ds_hold_info *info);
/* This tenant or cgroup goes: its holds and buckets go. No spinlock held. */
void ds_hold_desert(const struct ds_subject *subject);

#endif
