// SPDX-License-Identifier: GPL-2.0-only
#include "stats.h"

DEFINE_PER_CPU(struct ds_stats, ds_stats);

void ds_stats_sum(struct ds_stats *sum)
{
	int cpu;

	*sum = (struct ds_stats){ 0 };
	for_each_possible_cpu(cpu) {
		sum->calls += per_cpu(ds_stats.calls, cpu);
		sum->refused += per_cpu(ds_stats.refused, cpu);
		sum->closed += per_cpu(ds_stats.closed, cpu);
	}
}
