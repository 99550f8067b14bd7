/* SPDX-License-Identifier: GPL-2.0-only */
/* The generic netlink family `detshare`; kmod/detshare.yaml describes it. */
#ifndef DETSHARE_FAMILY_H
#define DETSHARE_FAMILY_H

int ds_netlink_init(void);
void ds_netlink_exit(void);

#endif
