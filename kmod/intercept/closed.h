/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where limits and orders do not hold: the driver is not known, a hook is missing, what enforces is switched off. Such a lapse is told by
 * status-get. With the parameter fail_closed=1 managed programs (steered.h, or with a memory limit) besides get no further with any file of
 * NVIDIA's modules: ioctl and mmap answer EPERM. They are refused before the driver is entered, by hooks on the kernel's own functions, since
 * those on the driver may be what is missing. What a program has mapped before stays mapped.
 */
#ifndef DETSHARE_CLOSED_H
#define DETSHARE_CLOSED_H

#include <linux/types.h>

/* 0, without the parameter too; it was given and the kernel lacks a function to hook: an error, so that the module is not loaded. */
int ds_closed_install(void);
void ds_closed_remove(void);

/* Are managed programs refused in a lapse? */
bool ds_closed_asked(void);
/* Calls `tell` with each lapse of this moment until that returns non-zero, and returns that. Nothing while no driver is loaded. Sleeps. */
int ds_closed_each_lapse(int (*tell)(const char *lapse, void *data), void *data);

#endif
