/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Objects that travel by file descriptor: the controls EXPORT_OBJECT(S)_TO_FD and IMPORT_OBJECT(S)_FROM_FD. What is exported stays
 * charged to its client's process until the file to which it was exported is closed; what is imported is charged to who imports.
 *
 * These controls, alone of all, are decided on like calls that make objects: with ds_file.order held and on a shadow. Which file
 * the driver takes for the descriptor is learnt from the driver itself.
 */
#ifndef DETSHARE_TRANSFER_H
#define DETSHARE_TRANSFER_H

#include <linux/types.h>

struct ds_call;
struct ds_transfer;
struct file;

bool ds_transfer_is(u32 cmd);
/* Atomic context: is the RM_CONTROL in the driver's block one? */
bool ds_transfer_in(const void *block, u32 size);

/* As the handlers of alloc.h. */
void ds_transfer(struct ds_call *call);

/*
 * The driver takes this file for the transfer's descriptor. It holds its own lock, so exports to a file come here in
 * their order. false: refused.
 */
bool ds_transfer_file(struct ds_transfer *transfer, const struct file *file);

#endif
