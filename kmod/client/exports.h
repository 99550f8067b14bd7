/* SPDX-License-Identifier: GPL-2.0-only */
/* What was exported to a file, by place: it keeps memory charged until the file is closed. */
#ifndef DETSHARE_EXPORTS_H
#define DETSHARE_EXPORTS_H

#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/types.h>

struct ds_exports {
	struct mutex lock;
	struct rb_root slots;	/* by place */
	u64 turns;		/* exports to it, in the order in which the driver made them */
	bool closed;
};

/* An object exported to a file. */
struct ds_exported {
	struct rb_node link;
	u32 index;
	u64 turn;
	struct ds_memref *memref;
};

void ds_exports_init(struct ds_exports *exports);
/* The driver has closed the file. */
void ds_exports_close(struct ds_exports *exports);

/* NULL: nothing was exported to this place. Under exports->lock. */
struct ds_exported *ds_exports_find(struct ds_exports *exports, u32 index);
/*
 * What was exported to this place before is free now, unless the driver did that later. Takes the slot over. Under
 * exports->lock.
 */
void ds_exports_put(struct ds_exports *exports, struct ds_exported *slot);
/* One that was not put; NULL does nothing. */
void ds_exported_free(struct ds_exported *slot);

#endif
