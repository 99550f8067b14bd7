/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of nvidia.ko that are hooked, and what runs in their place. */
#ifndef DETSHARE_ENTRIES_H
#define DETSHARE_ENTRIES_H

#include "hook.h"

extern struct ds_hook_set ds_nvidia_hooks;

/* Is an entry for ioctls among those installed? Each is missing in some driver. */
bool ds_has_entry(void);

#endif
