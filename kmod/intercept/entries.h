/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of nvidia.ko that are hooked, and what runs in their place. */
#ifndef DETSHARE_ENTRIES_H
#define DETSHARE_ENTRIES_H

/* Looks for the driver: from here on calls come in. What ends them is ds_driver_exit(). */
int ds_entries_init(void);

#endif
