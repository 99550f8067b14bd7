/* SPDX-License-Identifier: GPL-2.0-only */
/* One ioctl of /dev/nvidiactl or /dev/nvidiaN on its way to the driver and back: what handlers do with it. */
#ifndef DETSHARE_CALLS_H
#define DETSHARE_CALLS_H

#include <linux/fs.h>

#include "client.h"
#include "shadow.h"
#include "hook.h"
#include "rm/decode.h"

/* Of these many calls at once the probe in the driver sees the return for certain (shield.h); no more are let in. */
#define DS_CALLS_MAX 4096

/* One ioctl. The handlers of alloc.c and dup.c get it decoded and decide. */
struct ds_call {
	const struct ds_hook *hook;
	struct file *file;
	unsigned int cmd;
	unsigned long arg;
	const struct rm_abi *abi;
	struct ds_shadow *shadow;
	struct rm_call asked;	/* the block as it came */
	struct rm_call done;	/* the block as the driver left it; of use if ds_call_driver() said true */
	struct ds_file *known;	/* on which the client is, locked (order) while a handler runs */
	struct ds_client *client;	/* NULL: not one of this file */
	long ret;		/* what the caller gets */
};

/* Lets the driver do it, on the shadow. true: it did, and call->done says what; else nothing has happened. */
bool ds_call_driver(struct ds_call *call);
/*
 * The same on the shadow alone: what the driver answers reaches the caller's memory when the handler has returned and nothing is held. Nested
 * parameters must have been read, if the class has any.
 */
bool ds_call_deferred(struct ds_call *call);
/* Answers the caller with this NV_STATUS in the driver's stead. */
void ds_call_refuse(struct ds_call *call, u32 status);

/*
 * Asks the driver on behalf of the caller, through the caller's file, whether the client is one of this file: the
 * driver answers for no other.
 */
bool ds_call_owns(struct ds_call *call, u32 client);
/* The same, also through a device's file: may the caller's file use the client, being bound to the client's file? */
bool ds_call_may_use(struct ds_call *call, u32 client);
/* Asks the driver whether the caller's file is bound to a control file. */
bool ds_call_is_bound(struct ds_call *call);

/* ---- for dispatch.c ------------------------------------------------------------ */

/* The driver's own entry, on the caller's memory. */
long ds_call_original(struct ds_call *call);
/* The same with a shadow in force. false: the task is being killed, the driver was not called. */
bool ds_call_framed(struct ds_call *call, struct ds_shadow_head *head);
/* The answer of such a call. As with the driver, what was made stays where the caller cannot be told of it. */
void ds_call_tell(struct ds_call *call);

#endif
