/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reflexes: what the module does by itself, within a millisecond and without anybody in user space. Somebody wrote a row for
 * each class; from then on, on each GPU by itself:
 *
 * - While a run of a higher rank is active, runs of lower ranks are gated; `deadline` after that, they are paused.
 * - A run is active from a kick on until it was quiet for the `linger` of its class. It is looked at only while somebody with
 *   a lower rank is there.
 * - A class with a `floor` does not starve: who was owed its part of a period of 100 ms is let go and gets that part of the GPU by
 *   its slices, until the debt is paid.
 *
 * So nothing is held while no one else wants the GPU, and with one class only nothing is armed, sampled or timed.
 */
#ifndef DETSHARE_REFLEX_H
#define DETSHARE_REFLEX_H

#include <linux/types.h>

#include "class.h"

struct ds_lane;

#define DS_PERIOD_US 100000ULL	/* of floors */

/* A gate of a run saw its first touch; see ds_kicked_fn. */
void ds_reflex_kicked(void *owner, u64 idle_ns, pid_t who);

/* run.c's. */
void ds_reflex_init_lane(struct ds_lane *lane);

#endif
