/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The driver reads page tables of the current process to learn what it has mapped somewhere. Whatever other threads move there meanwhile, it
 * finds no doorbell: in this address space none comes back until the lookup is over.
 */
#ifndef DETSHARE_LOOKUP_H
#define DETSHARE_LOOKUP_H

#include <linux/list.h>

struct mm_struct;

struct ds_lookup {
	struct list_head link;
	const struct mm_struct *mm;
};

/* Sleeps. The caller may hold the driver's locks, and none of this module's. */
void ds_lookup_begin(struct ds_lookup *lookup);
void ds_lookup_end(struct ds_lookup *lookup);

/* Is one going on there? Asked with the gate's `inserting` held for reading, so that who begins one waits for the answer's use. */
bool ds_lookup_in(const struct mm_struct *mm);

#endif
