/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table of holds by order: somebody in user space gates or pauses a process, cgroup or tenant. Each has a lease, so that nothing stays
 * held by somebody who is gone; asking again renews it.
 */
#ifndef DETSHARE_LEASE_H
#define DETSHARE_LEASE_H

#include <linux/types.h>

#include "limit.h"

struct ds_lease {
	struct ds_subject subject;	/* held */
	bool gate, pause;
	u64 left_ms;
};

/*
 * Writes it, or renews what is there; what is not asked for is let go, a gate not before ds_lease_keep(). Nobody is held yet. *held: the
 * subject, to be put. -ENOENT: no such cgroup; -ENOMEM; -ENODEV: the module is going. If 0, ds_lease_keep() or, of a pause alone,
 * ds_lease_refuse() is to follow with *number.
 */
int ds_lease_set(const struct ds_subject *subject, bool gate, bool pause, u32 lease_ms, struct ds_subject *held, u64 *number);
/* Neither does anything to what somebody has removed or written anew since. Whether a gate that stood until now is to open; it has not yet. */
bool ds_lease_keep(const struct ds_subject *subject, u64 number);
/* What was kept last stands again, until its own end. Nobody is let go yet. */
void ds_lease_refuse(const struct ds_subject *subject, u64 number);
/* Nobody is let go yet. false: there is none. */
bool ds_lease_del(const struct ds_subject *subject);
/* The index-th one; false: there are no so many. Its subject is to be put. */
bool ds_lease_at(unsigned int index, struct ds_lease *lease);
unsigned int ds_hold_count(void);

/* What holds by order for this process: DS_HOLDS_* bits. Any context. */
#define DS_HOLDS_GATE 1
#define DS_HOLDS_PAUSE 2
u32 ds_holds_of(struct ds_process *process);

void ds_lease_exit(void);

#endif
