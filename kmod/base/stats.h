/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters that many CPUs add to and few read. */
#ifndef DETSHARE_STATS_H
#define DETSHARE_STATS_H

#include <linux/percpu.h>
#include <linux/types.h>

struct ds_stats {
	u64 calls;	/* driver calls that went through the module */
	u64 refused;
	u64 closed;	/* calls that fail_closed=1 refused */
};

DECLARE_PER_CPU(struct ds_stats, ds_stats);

#define ds_count(what) this_cpu_inc(ds_stats.what)

void ds_stats_sum(struct ds_stats *sum);

#endif
