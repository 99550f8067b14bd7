/* SPDX-License-Identifier: GPL-2.0-only */
/* Which handler an ioctl of /dev/nvidiactl and /dev/nvidiaN goes to. */
#ifndef DETSHARE_DISPATCH_H
#define DETSHARE_DISPATCH_H

#include <linux/fs.h>

#include "hook.h"

/* Atomic context: does this call pass through ds_calls_ioctl()? */
bool ds_calls_wanted(struct ftrace_regs *fregs);

/* In place of the driver's ioctl entry. */
long ds_calls_ioctl(const struct ds_hook *hook, struct file *file, unsigned int cmd,
		    unsigned long arg);

/* The driver takes this file for a descriptor that the call in force names. false: the call is to fail. */
bool ds_calls_file(const struct file *file);

#endif
