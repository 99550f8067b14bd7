// SPDX-License-Identifier: GPL-2.0-only
/* What else steers TSGs: slices switched off, real time, SMs, preemption mode, runlists. Contracts: engine.h. */
#include <linux/delay.h>
#include <linux/ktime.h>

#include "engine_impl.h"

#define IDLE_MOST_US 1000000u
#define IDLE_STEP_US 100

void sim_tsg_disable_timeslice(struct sim_tsg *tsg)
{
	sim_engine_lock(tsg->engine);
	tsg->endless = true;
	sched_tsg_set_slice(&tsg->sched, SCHED_NEVER);
	sim_engine_unlock(tsg->engine);
	sim_take_time(SIM_COST_TIMESLICE, false);
}

void sim_tsg_set_wfi(struct sim_tsg *tsg, bool wfi)
{
	sim_engine_lock(tsg->engine);
	sched_tsg_set_wfi(&tsg->sched, wfi);
	sim_engine_unlock(tsg->engine);
}

int sim_tsg_make_realtime(struct sim_tsg *tsg, bool realtime)
{
	int error = sim_tsg_set_interleave(tsg, realtime ? SIM_LEVEL_HIGH : SIM_LEVEL_MEDIUM);

	if (error)
		return error;
	sim_engine_lock(tsg->engine);
	tsg->realtime = realtime;
	if (realtime)
		sched_tsg_first(&tsg->sched);
	sim_engine_unlock(tsg->engine);
	return 0;
}

/* ---- SMs ---- */

int sim_tsg_set_tpc_mode(struct sim_tsg *tsg, u32 mode)
{
	if (mode > SIM_TPC_DYNAMIC)
		return -EINVAL;
	sim_engine_lock(tsg->engine);
	tsg->tpc_mode = mode;
	sim_engine_unlock(tsg->engine);
	sim_take_time(SIM_COST_TPC_MODE, false);
	return 0;
}

u32 sim_tsg_tpc_mode(const struct sim_tsg *tsg)
{
	return READ_ONCE(tsg->tpc_mode);
}

int sim_tsg_set_sms(struct sim_tsg *tsg, u32 veid, u32 sms)
{
	if (veid >= SIM_SUBCONTEXTS || sms > tsg->engine->sms)
		return -EINVAL;
	sim_engine_lock(tsg->engine);
	tsg->caps[veid] = sms;
	sim_engine_unlock(tsg->engine);
	return 0;
}

u32 sim_engine_sms(const struct sim_engine *engine)
{
	return engine->sms;
}

bool sim_tsg_scheduled(const struct sim_tsg *tsg)
{
	return READ_ONCE(tsg->sched.enabled);
}

u32 sim_tsg_unique(const struct sim_tsg *tsg)
{
	return tsg->unique;
}

u32 sim_chan_unique(const struct sim_chan *chan)
{
	return chan->unique;
}

/* ---- runlists ---- */

bool sim_chan_is_idle(struct sim_chan *chan)
{
	bool idle;

	sim_engine_lock(chan->engine);
	/* a GPU hears of a ring at once, also while this thread that looks for it does not run */
	sim_poll_doorbells(chan->engine);
	sim_ring_posted(chan->engine, ktime_get_ns());
	idle = chan->sched.state == CHAN_IDLE || chan->sched.state == CHAN_DEAD;
	sim_engine_unlock(chan->engine);
	return idle;
}

bool sim_chan_is_off(struct sim_chan *chan)
{
	bool off;

	sim_engine_lock(chan->engine);
	off = chan->sched.disabled;
	sim_engine_unlock(chan->engine);
	return off;
}

bool sim_chan_is_fetched(struct sim_chan *chan)
{
	bool fetched;

	sim_engine_lock(chan->engine);
	fetched = chan->ring.get == chan->ring.put;
	sim_engine_unlock(chan->engine);
	return fetched;
}

bool sim_chan_wait_idle(struct sim_chan *chan, u64 end)
{
	bool idle;

	end = min(end, ktime_get_ns() + (u64)IDLE_MOST_US * NSEC_PER_USEC);
	for (;;) {
		idle = sim_chan_is_idle(chan);
		if (idle || ktime_get_ns() >= end)
			return idle;
		usleep_range(IDLE_STEP_US, 2 * IDLE_STEP_US);
	}
}

bool sim_chan_idle(struct sim_chan *chan, u64 end)
{
	sim_engine_lock(chan->engine);
	if (chan->sched.tsg)
		sched_tsg_preempt(chan->sched.tsg);
	sim_engine_unlock(chan->engine);
	return sim_chan_wait_idle(chan, end);
}

void sim_chan_restart_runlist(struct sim_chan *chan, bool force)
{
	sim_engine_lock(chan->engine);
	if (force || !sched_chan_on_engine(&chan->sched))
		sched_restart(&chan->runlist->sched);
	sim_engine_unlock(chan->engine);
}

int sim_engine_interleave(struct sim_engine *engine, u32 client, bool on)
{
	struct sim_tsg *tsg;
	int error = 0;

	sim_engine_lock(engine);
	if (engine->policy_client && engine->policy_client != client) {
		error = -EBUSY;
	} else if (!on == !engine->policy_client) {
		engine->policy_client = on ? 0 : client;
		list_for_each_entry(tsg, &engine->tsgs, in_engine)
			sched_tsg_set_level(&tsg->sched, on ? tsg->level : SIM_LEVEL_MEDIUM);
	}
	sim_engine_unlock(engine);
	return error;
}
