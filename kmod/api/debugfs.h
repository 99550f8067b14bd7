/* SPDX-License-Identifier: GPL-2.0-only */
/* /sys/kernel/debug/detshare: counters that must read 0 when nothing is open. */
#ifndef DETSHARE_DEBUGFS_H
#define DETSHARE_DEBUGFS_H

int ds_debugfs_init(void);
void ds_debugfs_exit(void);

#endif
