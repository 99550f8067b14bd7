/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that must be resident as a whole, and therefore cannot go to every set of SMs. */
#ifndef DS_RESIDENT_H
#define DS_RESIDENT_H

#include "device.h"
#include "launch.h"

/* DS_FULL_* if the launch must not go to the tier, else -1. Nanoseconds for what was asked before. */
int ds_resident_check(struct ds_device *device, unsigned int tier, const struct ds_launch *launch);
/* whether every block that must be resident at once finds room on the tier; else the launch goes to tier 0, counted by it */
bool ds_resident_fits(struct ds_device *device, unsigned int tier, const struct ds_launch *launch);
/* whether it meets its peers on other GPUs, as its name tells; of a graph it is taken for granted */
bool ds_resident_meets(const struct ds_launch *launch);
void ds_resident_forget(void); /* before code is unloaded */

#endif
