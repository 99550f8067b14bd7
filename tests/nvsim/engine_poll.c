// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the engine learns by looking at memory: GP_PUT, semaphores that channels wait for, ends of
 * kernels. Doorbells: engine_doorbell.c.
 */
#include <linux/highmem.h>

#include "engine_impl.h"
#include "methods.h"

static u32 userd_read(const struct sim_chan *chan, u32 at)
{
	u8 *page = kmap_local_page(chan->userd);
	u32 value = READ_ONCE(*(u32 *)(page + chan->userd_offset + at));

	kunmap_local(page);
	return value;
}

bool sim_chan_look(struct sim_chan *chan)
{
	return ring_put(&chan->ring, userd_read(chan, SIM_USERD_GP_PUT)) && ring_pending(&chan->ring);
}

void sim_chan_ring(struct sim_chan *chan)
{
	if (sim_chan_look(chan))
		sched_chan_wake(&chan->sched);
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
