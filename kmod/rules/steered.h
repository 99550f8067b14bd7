/* SPDX-License-Identifier: GPL-2.0-only */
/* Does anything stand for a process? */
#ifndef DETSHARE_STEERED_H
#define DETSHARE_STEERED_H

#include <linux/types.h>

struct ds_process;

/* Is an order in force for it? Any context but hard interrupts. */
bool ds_process_managed(const struct ds_process *process);
/* Does anything stand for it that it could undo: an order, a hold, a bucket? Sleeps. */
bool ds_process_steered(struct ds_process *process);

#endif
