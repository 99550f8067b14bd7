/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many there may be of what all pay for: things that somebody looks through for everybody. They count for the tenant that their maker was
 * in (else for its cgroup, else, in the root of cgroups, for its user), and are bounded for each (module parameters). Bounds are far above
 * what programs use; one that is reached is named in the kernel log.
 */
#ifndef DETSHARE_BOUND_H
#define DETSHARE_BOUND_H

#include <linux/types.h>

struct ds_process;

enum ds_bounded {
	DS_BOUND_CLIENTS,	/* clients_max */
	DS_BOUND_RUNS,		/* runs_max, on each GPU */
	DS_BOUND_FILES,		/* files_max: files with managed memory */
	DS_BOUNDED,
};

/* One that counts. */
struct ds_bound {
	struct ds_counter *counter;	/* NULL: it does not */
};

/* For whom what the process, which is the current one, makes now counts: a name to compare. Sleeps. */
const void *ds_bound_who(const struct ds_process *process);

/* One more counts. false: he has as many as he may, or there is no memory. `force`: it is there already. Sleeps. */
bool ds_bound_take(struct ds_bound *bound, enum ds_bounded what, u32 gpu, const void *who, bool force);
void ds_bound_drop(struct ds_bound *bound);
/* For the moment: may he have one more? If not, the log says so. */
bool ds_bound_room(enum ds_bounded what, u32 gpu, const void *who);

/* Whose numbers are known; 0 when nothing is open. */
unsigned int ds_bound_count(void);

#endif
