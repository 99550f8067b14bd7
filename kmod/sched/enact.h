/* SPDX-License-Identifier: GPL-2.0-only */
/* Brings one channel group into line by asking the driver. */
#ifndef DETSHARE_ENACT_H
#define DETSHARE_ENACT_H

#include "census.h"

/* The driver's answers. */
struct ds_done {
	bool defaults, slice, level, ceiling;	/* are as wanted now */
	u64 slice_before;
	u32 status;		/* of the first call that failed, 0: none did */
	u32 tpc_status;		/* with which it refused a ceiling, 0: it did not */
};

/*
 * From a workqueue. If the channel group died meanwhile *done is all zeroes: nobody asks what became of it.
 *
 * What a program chose for itself before anything stood for it is set back once: real time, and kernels that cannot be taken off the
 * engine in their midst. From then on the filter keeps it from choosing that again. A slice that was switched off comes back by being set.
 */
void ds_target_enact(const struct ds_target *target, struct ds_done *done);
/* Is it to be tried again? */
bool ds_done_again(const struct ds_done *done);

#endif
