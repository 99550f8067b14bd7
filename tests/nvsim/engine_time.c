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

static unsigned int off_us, on_us;
module_param(off_us, uint, 0644);
MODULE_PARM_DESC(off_us, "FIFO_DISABLE_CHANNELS takes so long to take off (0: as on an H100, 566 to 590; an H200 from user space: 850)");
module_param(on_us, uint, 0644);
MODULE_PARM_DESC(on_us, "and so long to put back (0: as on an H100, 282 to 300; an H200 from user space: 250 to 390)");

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

	if (cost == SIM_COST_CHANNELS_OFF && off_us)
		us = off_us;
	else if (cost == SIM_COST_CHANNELS_ON && on_us)
		us = on_us;
	if (engine_latency)
		usleep_range(us, us + us / 16);
}

void sim_engine_take_time(void)
{
	sim_take_time(SIM_COST_HALF, false);
}
