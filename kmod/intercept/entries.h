/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of nvidia.ko that are hooked, and what runs in their place. */
#ifndef DETSHARE_ENTRIES_H
#define DETSHARE_ENTRIES_H

#include "hook.h"

/* Can it be seen which file the driver takes for a descriptor? */
bool ds_driver_sees_files(void);

/* The originals, from replacements only. */
u32 ds_driver_from_user(void *to, const void *from, u32 n);
u32 ds_driver_to_user(void *to, const void *from, u32 n);

/* Looks for the driver: from here on calls come in. What ends them is ds_driver_exit(). */
int ds_entries_init(void);

#endif
