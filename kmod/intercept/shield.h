/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hook points inside the driver that make shadows binding.
 *
 * rm_ioctl(sp, nv, nvfp, cmd, data, size) gets the driver's own copy of the argument block: a
 * probe at its entry puts the shadow's block there, one at its return keeps what the driver made
 * of it. Nested parameters are fetched by os_memcpy_from_user() and answered by
 * os_memcpy_to_user(): for them the shadow stands in for the caller's memory.
 *
 * Controls that dispatch.c does not decide on are noticed here: the block is the driver's, so nothing can change it.
 */
#ifndef DETSHARE_SHIELD_H
#define DETSHARE_SHIELD_H

#include <linux/ftrace.h>

#include "shadow.h"

/* Besides calls (DS_CALLS_MAX), of these many controls that are noticed inside the driver only. */
#define DS_SHIELD_CONTROLS_MAX 1024

/*
 * Are shadows binding? Off by the parameter shield=0, which exists to show what happens without: calls are decided on what the
 * caller's memory held before the call, verified after it and undone.
 */
bool ds_shield_binding(void);

/* The probe. -ENOENT: this driver has no rm_ioctl. */
int ds_shield_install(const char *module);
/* Is the probe live? Whoever switches all kprobes off takes it away without a word. Any context. */
bool ds_shield_armed(void);
void ds_shield_remove(void);

/* Replacements and questions for the hooks on os_memcpy_from_user() and os_memcpy_to_user(). */
u32 ds_shield_from_user(void *to, const void *from, u32 n);
u32 ds_shield_to_user(void *to, const void *from, u32 n);
bool ds_shield_wanted(struct ftrace_regs *fregs);

#endif
