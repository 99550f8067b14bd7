/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows of classes: what a policy wrote for a class of programs, for all GPUs or for one. */
#ifndef DETSHARE_CLASS_H
#define DETSHARE_CLASS_H

#include <linux/types.h>

#include "detshare_uapi.h"
#include "limit.h"

/* The row of a class. Whole: what is 0 (level: -1) is not set. */
struct ds_class {
	char name[DETSHARE_NAME_MAX + 1];
	u32 gpu;		/* DS_ALL_GPUS: each by itself; a row for one GPU goes before it */
	u32 weight;
	u64 slice_us;
	s32 level;
	u32 floor;		/* permille of the time, while others have the turns */
	u64 turn_us;		/* of a tenant of weight 1, 0: it has no turns (rotation.h) */
	u32 turn_rank;		/* of those with turns, a higher one goes first */
	u32 entities;		/* answered: entities of the class */
};

/* Writes a row, whole. Gates follow before this returns, slices soon after. -ENOMEM; -ENODEV: the module is going. */
int ds_class_set(const struct ds_class *row);
/* -ENOENT: there is none. */
int ds_class_del(u32 gpu, const char *name);
/* The index-th row, a copy; false: there are no so many. runs is not filled in. */
bool ds_class_at(unsigned int index, struct ds_class *row);
/* What holds for a process of this class on a GPU; false: there is no row. Any context but hard interrupts; runs is not filled in. */
bool ds_class_get(const char *name, u32 gpu, struct ds_class *row);

void ds_class_exit(void);

#endif
