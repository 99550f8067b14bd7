/* SPDX-License-Identifier: GPL-2.0-only */
/* Once off the engine, and on again. */
#ifndef DETSHARE_PREEMPT_H
#define DETSHARE_PREEMPT_H

#include "sched.h"

/*
 * Takes what runs now off the engine, once; waits for the driver. -ESRCH: nobody who is meant has a compute channel group; -EINTR: the caller
 * was killed while waiting; -ENOMEM.
 */
int ds_preempt(const struct ds_subject *subject, struct ds_sched_result *result);

#endif
