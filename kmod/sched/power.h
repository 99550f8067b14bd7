/* SPDX-License-Identifier: GPL-2.0-only */
/* The machine is suspended: nobody is held while it sleeps, and what held before holds again afterwards. */
#ifndef DETSHARE_POWER_H
#define DETSHARE_POWER_H

int ds_power_init(void);
void ds_power_exit(void);

#endif
