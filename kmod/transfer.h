/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Objects that travel by file descriptor: the controls EXPORT_OBJECT(S)_TO_FD and IMPORT_OBJECT(S)_FROM_FD. What is exported stays
 * charged to its client's process until the file to which it was exported is closed; what is imported is charged to who imports.
 *
 * These controls, alone of all, are decided on like calls that make objects: with ds_file.order held and on a frame. Which file
 * the driver takes for the descriptor is learnt from the driver itself.
 */
#ifndef DETSHARE_TRANSFER_H
#define DETSHARE_TRANSFER_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct ds_call;
struct ds_hook;

/* Of one file: what was exported to it, by place. */
struct ds_exports {
	struct mutex lock;
	struct list_head slots;
	u64 turns;		/* exports to it, in the order in which the driver made them */
	bool closed;
};

void ds_exports_init(struct ds_exports *exports);
/* The driver has closed the file. */
void ds_exports_close(struct ds_exports *exports);

bool ds_transfer_is(u32 cmd);
/* Atomic context: may the RM_CONTROL at this address of the caller's memory be one? */
bool ds_transfer_maybe(unsigned long user);
/* Atomic context: is the RM_CONTROL in the driver's block one? */
bool ds_transfer_in(const void *block, u32 size);

/* As the handlers of alloc.h. */
void ds_transfer(struct ds_call *call);

/* Replaces the driver's nv_get_file_private(fd, control, file *). */
void *ds_transfer_file(const struct ds_hook *hook, int fd, bool control, void **file);

#endif
