// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the engine learns by looking at memory: doorbells, semaphores that channels wait for, ends
 * of kernels.
 */
#include <linux/highmem.h>
#include <linux/ktime.h>

#include "engine_impl.h"
#include "methods.h"

static u32 userd_read(const struct sim_chan *chan, u32 at)
{
	u8 *page = kmap_local_page(chan->userd);
	u32 value = READ_ONCE(*(u32 *)(page + chan->userd_offset + at));

	kunmap_local(page);
	return value;
}

void sim_chan_ring(struct sim_chan *chan)
{
	if (ring_put(&chan->ring, userd_read(chan, SIM_USERD_GP_PUT)) && ring_pending(&chan->ring))
		sched_chan_wake(&chan->sched);
}

static void ring_token(struct sim_engine *engine, u32 token)
{
	struct sim_runlist *runlist;
	struct sim_chan *chan;

	list_for_each_entry(runlist, &engine->runlists, in_engine) {
		if (runlist->id != token >> 16)
			continue;
		chan = xa_load(&runlist->chans, token & 0xffff);
		if (chan)
			sim_chan_ring(chan);
		return;
	}
}

void sim_engine_doorbell(struct sim_engine *engine, u32 token)
{
	sim_engine_lock(engine);
	ring_token(engine, token);
	engine->last_ring = ktime_get_ns();
	sim_engine_unlock(engine);
}

void sim_poll_doorbells(struct sim_engine *engine, u64 now)
{
	struct sim_doorbell *doorbell;
	u32 token;
	u8 *page;

	list_for_each_entry(doorbell, &engine->doorbells, in_engine) {
		page = kmap_local_page(doorbell->page);
		WRITE_ONCE(*(u32 *)(page + SIM_USERMODE_TIME_0), (u32)now);
		WRITE_ONCE(*(u32 *)(page + SIM_USERMODE_TIME_1), (u32)(now >> 32));
		token = READ_ONCE(*(u32 *)(page + SIM_USERMODE_DOORBELL));
		if (token) {
			/*
			 * GP_PUT is read after the word was taken: a later ring finds it 0 again
			 * and is not lost
			 */
			token = xchg((u32 *)(page + SIM_USERMODE_DOORBELL), 0);
			engine->last_ring = now;
		}
		kunmap_local(page);
		if (token)
			ring_token(engine, token);
	}
}

static void poll_kernel(struct sim_chan *chan)
{
	const struct ring_kernel *kernel = &chan->ring.kernel;
	u32 word;

	if (kernel->count && sched_chan_on_engine(&chan->sched))
		chan->ring.memory->write(chan->ring.vas, kernel->count, &chan->sched.ran,
					 sizeof(chan->sched.ran));
	if (!kernel->until || !sched_chan_on_engine(&chan->sched))
		return;
	if (chan->ring.memory->read(chan->ring.vas, kernel->until, &word, sizeof(word)))
		sched_chan_fault(&chan->sched);
	else if (word != kernel->until_not)
		sched_chan_end_kernel(&chan->sched);
}

void sim_poll_watched(struct sim_engine *engine)
{
	struct sim_chan *chan, *next;

	list_for_each_entry_safe(chan, next, &engine->watched, watch) {
		switch (chan->sched.state) {
		case CHAN_BLOCKED:
			if (ring_ready(&chan->ring))
				sched_chan_wake(&chan->sched);
			break;
		case CHAN_WAITING:
		case CHAN_RUNNING:
			if (chan->kernel_watched)
				poll_kernel(chan);
			break;
		default:
			break;
		}
		if (chan->sched.state == CHAN_IDLE || chan->sched.state == CHAN_DEAD)
			list_del_init(&chan->watch);
	}
}
