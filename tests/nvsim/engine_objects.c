// SPDX-License-Identifier: GPL-2.0-only
/* TSGs and channels: what the RM side makes, changes and frees. Contracts: engine.h. */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "engine_impl.h"
#include "methods.h"

static u64 slice_ns(u64 us)
{
	return us > SCHED_NEVER / NSEC_PER_USEC ? SCHED_NEVER : us * NSEC_PER_USEC;
}

static bool runlist_busy(const struct sim_runlist *runlist)
{
	return runlist->sched.runnable[0] || runlist->sched.runnable[1] ||
	       runlist->sched.runnable[2];
}

/* ---- TSGs ---- */

struct sim_tsg *sim_tsg_create(struct sim_engine *engine, u32 engine_type, const struct sim_tsg_owner *owner)
{
	struct sim_tsg *tsg = kzalloc(sizeof(*tsg), GFP_KERNEL);
	int id;

	if (!tsg)
		return ERR_PTR(-ENOMEM);
	sim_engine_lock(engine);
	tsg->runlist = sim_engine_runlist(engine, engine_type);
	id = tsg->runlist ? ida_alloc(&tsg->runlist->tsg_ids, GFP_KERNEL) : -ENOMEM;
	if (id < 0) {
		sim_engine_unlock(engine);
		kfree(tsg);
		return ERR_PTR(id);
	}
	tsg->engine = engine;
	tsg->engine_type = engine_type;
	tsg->client = owner->client;
	tsg->handle = owner->handle;
	tsg->pid = owner->pid;
	tsg->uid = owner->uid;
	tsg->id = id;
	tsg->unique = ++engine->unique;
	tsg->level = SIM_LEVEL_MEDIUM;
	tsg->timeslice_us = engine_type > 1 ? SIM_SLICE_COPY_US : SIM_SLICE_COMPUTE_US;
	sched_tsg_add(&tsg->runlist->sched, &tsg->sched, SIM_LEVEL_MEDIUM,
		      slice_ns(tsg->timeslice_us));
	list_add_tail(&tsg->in_engine, &engine->tsgs);
	sim_engine_unlock(engine);
	return tsg;
}

void sim_tsg_destroy(struct sim_tsg *tsg)
{
	struct sim_engine *engine = tsg->engine;

	sim_engine_lock(engine);
	sched_tsg_remove(&tsg->sched);
	ida_free(&tsg->runlist->tsg_ids, tsg->id);
	list_del(&tsg->in_engine);
	sim_engine_unlock(engine);
	kfree(tsg);
}

u32 sim_tsg_id(const struct sim_tsg *tsg)
{
	return tsg->id;
}

u32 sim_tsg_runlist(const struct sim_tsg *tsg)
{
	return tsg->runlist->id;
}

int sim_tsg_set_timeslice(struct sim_tsg *tsg, u64 us)
{
	bool busy;

	sim_engine_lock(tsg->engine);
	busy = runlist_busy(tsg->runlist);
	tsg->timeslice_us = us;
	tsg->endless = false;
	sched_tsg_set_slice(&tsg->sched, slice_ns(us));
	sim_engine_unlock(tsg->engine);
	sim_take_time(SIM_COST_TIMESLICE, busy);
	return 0;
}

u64 sim_tsg_timeslice(const struct sim_tsg *tsg)
{
	return READ_ONCE(tsg->timeslice_us);
}

int sim_tsg_set_interleave(struct sim_tsg *tsg, u32 level)
{
	bool busy, off;

	if (level > SIM_LEVEL_HIGH)
		return -EINVAL;
	sim_engine_lock(tsg->engine);
	busy = runlist_busy(tsg->runlist);
	off = tsg->engine->policy_client;
	if (!off) {
		tsg->level = level;
		sched_tsg_set_level(&tsg->sched, level);
	}
	sim_engine_unlock(tsg->engine);
	if (off)
		return -EPERM;
	sim_take_time(SIM_COST_INTERLEAVE, busy);
	return 0;
}

u32 sim_tsg_interleave(const struct sim_tsg *tsg)
{
	return READ_ONCE(tsg->level);
}

int sim_tsg_preempt(struct sim_tsg *tsg, bool wait)
{
	bool busy;

	sim_engine_lock(tsg->engine);
	busy = runlist_busy(tsg->runlist);
	sched_tsg_preempt(&tsg->sched);
	tsg->preempts++;
	sim_engine_unlock(tsg->engine);
	if (wait)
		sim_take_time(SIM_COST_PREEMPT, busy);
	return 0;
}

int sim_tsg_schedule(struct sim_tsg *tsg, bool enable)
{
	bool busy;

	sim_engine_lock(tsg->engine);
	busy = tsg->sched.runnable;
	sched_tsg_enable(&tsg->sched, enable);
	sim_engine_unlock(tsg->engine);
	if (!enable)
		sim_take_time(SIM_COST_SCHEDULE_OFF, busy);
	return 0;
}

u64 sim_tsg_gpu_time_us(struct sim_tsg *tsg)
{
	u64 ns;

	sim_engine_lock(tsg->engine);
	ns = tsg->sched.gpu_time;
	sim_engine_unlock(tsg->engine);
	return div_u64(ns, NSEC_PER_USEC);
}

/* ---- channels ---- */

struct sim_chan *sim_chan_create(struct sim_tsg *tsg, void *vas, u64 gpfifo_va, u32 entries,
				 const struct sim_chan_where *where)
{
	struct sim_engine *engine = tsg->engine;
	struct sim_chan *chan;
	int error;

	if (!entries || !where->userd_page || where->userd_offset > PAGE_SIZE - SIM_USERD_SIZE ||
	    where->userd_offset % sizeof(u32) || where->veid >= SIM_SUBCONTEXTS)
		return ERR_PTR(-EINVAL);
	chan = kzalloc(sizeof(*chan), GFP_KERNEL);
	if (!chan)
		return ERR_PTR(-ENOMEM);
	sim_engine_lock(engine);
	/* from 1 on: no token is 0, which in a doorbell means that nobody rang */
	error = xa_alloc(&tsg->runlist->chans, &chan->chid, chan, XA_LIMIT(1, SIM_CHIDS - 1),
			 GFP_KERNEL);
	if (error) {
		sim_engine_unlock(engine);
		kfree(chan);
		return ERR_PTR(error == -EBUSY ? -ENOSPC : error);
	}
	chan->engine = engine;
	chan->runlist = tsg->runlist;
	chan->client = where->client;
	chan->handle = where->handle;
	chan->veid = where->veid;
	chan->unique = ++engine->unique;
	get_page(where->userd_page);
	chan->userd = where->userd_page;
	chan->userd_offset = where->userd_offset;
	INIT_LIST_HEAD(&chan->watch);
	ring_init(&chan->ring, &engine->memory, vas, gpfifo_va, entries);
	chan->ring.only_copies = tsg->engine_type > 1;
	sched_chan_add(&tsg->sched, &chan->sched);
	engine->chans++;
	sim_engine_unlock(engine);
	return chan;
}

void sim_chan_destroy(struct sim_chan *chan)
{
	struct sim_engine *engine = chan->engine;

	sim_engine_lock(engine);
	sched_chan_remove(&chan->sched);
	xa_erase(&chan->runlist->chans, chan->chid);
	list_del(&chan->watch);
	engine->chans--;
	sim_engine_unlock(engine);
	put_page(chan->userd);
	kfree(chan);
}

void sim_chan_compute(struct sim_chan *chan)
{
	sim_engine_lock(chan->engine);
	chan->ring.only_copies = false;
	sim_engine_unlock(chan->engine);
}

int sim_chan_schedule(struct sim_chan *chan, bool enable)
{
	sim_engine_lock(chan->engine);
	sched_chan_schedule(&chan->sched, enable);
	sim_engine_unlock(chan->engine);
	return 0;
}

int sim_chan_disable(struct sim_chan *chan, bool disable, bool only_scheduling, bool rewind)
{
	sim_engine_lock(chan->engine);
	sched_chan_disable(&chan->sched, disable, only_scheduling);
	if (rewind)
		ring_rewind(&chan->ring);
	sim_engine_unlock(chan->engine);
	return 0;
}

/* Channels with work in a TSG of which another client's channel was taken off: see engine.h. */
static void hang_neighbours(struct sim_runlist *runlist)
{
	struct sim_chan *off, *other;
	unsigned long i, j;

	xa_for_each(&runlist->chans, i, off) {
		if (!off->sched.held || !off->sched.tsg)
			continue;
		xa_for_each(&runlist->chans, j, other)
			if (other->sched.tsg == off->sched.tsg && other->client != off->client &&
			    other->sched.counted)
				sched_chan_hang(&other->sched);
	}
}

void sim_engine_settle(struct sim_engine *engine, bool disable)
{
	struct sim_runlist *runlist;
	bool busy = false;

	sim_engine_lock(engine);
	list_for_each_entry(runlist, &engine->runlists, in_engine) {
		busy |= runlist_busy(runlist);
		if (disable)
			hang_neighbours(runlist);
	}
	sim_engine_unlock(engine);
	sim_take_time(disable ? SIM_COST_CHANNELS_OFF : SIM_COST_CHANNELS_ON, busy);
}

void sim_engine_suspend(struct sim_engine *engine, bool suspend)
{
	struct sim_runlist *runlist;
	struct sim_chan *chan;
	unsigned long chid;

	sim_engine_lock(engine);
	list_for_each_entry(runlist, &engine->runlists, in_engine)
		xa_for_each(&runlist->chans, chid, chan)
			sched_chan_disable(&chan->sched, suspend, false);
	sim_engine_unlock(engine);
}

u32 sim_chan_token(const struct sim_chan *chan)
{
	return chan->runlist->id << 16 | chan->chid;
}

u32 sim_chan_chid(const struct sim_chan *chan)
{
	return chan->chid;
}

/* ---- listing ---- */

int sim_engine_tsg_show(struct seq_file *m, struct sim_engine *engine)
{
	struct sim_runlist *runlist;
	struct sim_chan *chan;
	unsigned long chid;
	struct sim_tsg *tsg;
	u32 chans, faulted, off, hung;
	u64 finished;

	sim_engine_lock(engine);
	seq_puts(
		m,
		"client handle engine slice_us level enabled gpu_time_us state channels finished faulted "
		"off preempts rings last_ring_ns hung wfi endless realtime\n");
	list_for_each_entry(tsg, &engine->tsgs, in_engine) {
		chans = 0;
		faulted = 0;
		off = 0;
		hung = 0;
		finished = 0;
		runlist = tsg->runlist;
		xa_for_each(&runlist->chans, chid, chan) {
			if (chan->sched.tsg != &tsg->sched)
				continue;
			chans++;
			faulted += chan->sched.state == CHAN_DEAD;
			off += chan->sched.disabled != 0;
			hung += chan->sched.hung;
			finished += chan->sched.finished;
		}
		seq_printf(
			m, "0x%08x 0x%08x %u %llu %u %u %llu %s %u %llu %u %u %llu %llu %llu %u %d %d %d\n", tsg->client,
			tsg->handle, tsg->engine_type, tsg->timeslice_us, tsg->level,
			tsg->sched.enabled, div_u64(tsg->sched.gpu_time, NSEC_PER_USEC),
			sched_tsg_state(&tsg->sched), chans, finished, faulted, off, tsg->preempts, tsg->rings,
			tsg->last_ring, hung, tsg->sched.wfi, tsg->endless, tsg->realtime);
	}
	sim_engine_unlock(engine);
	return 0;
}
