// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long controls take: figures of an H100 with driver 580, microseconds on an idle and on a busy
 * engine. A question whether channels are idle took 690 us there, and its time limit more where they were not.
 */
#include <linux/delay.h>
#include <linux/module.h>

#include "engine_impl.h"

static bool engine_latency = true;
module_param(engine_latency, bool, 0644);
MODULE_PARM_DESC(engine_latency, "scheduling controls take the time that they take on an H100");

static const struct {
	u32 idle, busy;
} costs[] = {
	[SIM_COST_TIMESLICE] = { 260, 470 },	[SIM_COST_INTERLEAVE] = { 215, 240 },
	[SIM_COST_PREEMPT] = { 274, 475 },	[SIM_COST_SCHEDULE_OFF] = { 170, 8000 },
	[SIM_COST_CHANNELS_OFF] = { 566, 590 }, [SIM_COST_CHANNELS_ON] = { 282, 300 },
	[SIM_COST_TPC_MODE] = { 545, 684 },	[SIM_COST_HALF] = { 345, 345 },
};

void sim_take_time(enum sim_cost cost, bool busy)
{
	u32 us = busy ? costs[cost].busy : costs[cost].idle;

	if (engine_latency)
		usleep_range(us, us + us / 16);
}

void sim_engine_take_time(void)
{
	sim_take_time(SIM_COST_HALF, false);
}
