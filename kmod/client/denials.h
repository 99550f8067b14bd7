/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls that the filter (filter.h) did not let through, counted by process, vCtx, command and reason. What is counted stays after
 * the process has ended, until newer rows need the place.
 */
#ifndef DETSHARE_DENIALS_H
#define DETSHARE_DENIALS_H

#include <linux/types.h>

#include "events.h"

/* An ioctl of nvidia-uvm as a command: this plus its number. */
#define DS_DENIED_UVM 0x30000000

/* A call of the current process for this client, which may be nobody's. trick: static, what was tried. Sleeps. */
void ds_denied(u32 client, u32 command, enum detshare_denial reason, u32 status, const char *trick);
/* The same from anywhere, probes included; it is written down a little later, or counted only if many come at once. */
void ds_denied_atomic(u32 client, u32 command, enum detshare_denial reason, u32 status, const char *trick);

/* The index-th row; false: there are no so many. */
bool ds_denial_at(unsigned int index, struct ds_denial *denial);
/* All that were ever denied, and those of one vCtx. */
u64 ds_denials_total(void);
u64 ds_denials_of(u64 vctx);

void ds_denials_exit(void);

#endif
