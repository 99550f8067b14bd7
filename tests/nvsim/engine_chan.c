// SPDX-License-Identifier: GPL-2.0-only
/* See engine_sched.h: channels, and which of them are runnable. */
#include "engine_round.h"

static bool chan_runnable(const struct sched_chan *chan)
{
	if (!chan->tsg || chan->held || chan->hung)
		return false;
	if (chan->state == CHAN_RUNNING)
		return true;
	if (chan->disabled || !(chan->tsg->enabled || chan->scheduled))
		return false;
	return chan->state == CHAN_HOST || chan->state == CHAN_WAITING;
}

void sched_chan_recount(struct sched_chan *chan)
{
	struct sched_tsg *tsg = chan->tsg;
	bool runnable = chan_runnable(chan);

	if (!tsg || runnable == chan->counted)
		return;
	chan->counted = runnable;
	if (runnable) {
		if (!tsg->runnable++)
			tsg->rl->runnable[tsg->level]++;
	} else if (!--tsg->runnable) {
		tsg->rl->runnable[tsg->level]--;
	}
}

void sched_chan_set(struct sched_chan *chan, enum sched_state state)
{
	if (chan->state == CHAN_RUNNING)
		chan->tsg->sms_used -= chan->sms;
	if (state == CHAN_RUNNING)
		chan->tsg->sms_used += chan->sms;
	chan->state = state;
	sched_chan_recount(chan);
}

void sched_chan_kernel_done(struct sched_chan *chan)
{
	chan->finished++;
	sched_chan_set(chan, CHAN_HOST);
}

void sched_chan_add(struct sched_tsg *tsg, struct sched_chan *chan)
{
	*chan = (struct sched_chan){ .tsg = tsg };
	link_init(&chan->in_tsg);
	link_append(&tsg->chans, &chan->in_tsg);
}

void sched_chan_remove(struct sched_chan *chan)
{
	if (!chan->tsg)
		return;
	sched_chan_set(chan, CHAN_DEAD);
	link_remove(&chan->in_tsg);
	chan->tsg = NULL;
}

void sched_chan_wake(struct sched_chan *chan)
{
	if (chan->state == CHAN_IDLE || chan->state == CHAN_BLOCKED)
		sched_chan_set(chan, CHAN_HOST);
}

void sched_chan_end_kernel(struct sched_chan *chan)
{
	if (chan->state == CHAN_RUNNING)
		sched_chan_kernel_done(chan);
}

void sched_chan_fault(struct sched_chan *chan)
{
	sched_chan_set(chan, CHAN_DEAD);
}

void sched_chan_hang(struct sched_chan *chan)
{
	if (chan->state == CHAN_RUNNING)
		sched_chan_set(chan, CHAN_WAITING);
	chan->hung = true;
	sched_chan_recount(chan);
}

void sched_chan_schedule(struct sched_chan *chan, bool enable)
{
	chan->scheduled = enable;
	sched_chan_recount(chan);
}

void sched_chan_disable(struct sched_chan *chan, bool disable, bool only_scheduling)
{
	bool midst = false;

	if (disable) {
		chan->disabled++;
		if (!only_scheduling && !(chan->state == CHAN_RUNNING && chan->tsg->wfi)) {
			chan->held = true;
			midst = sched_chan_on_engine(chan);
			/*
			 * taken off: its SMs are free for the TSG's other channels; it keeps its
			 * place in the order
			 */
			if (chan->state == CHAN_RUNNING)
				sched_chan_set(chan, CHAN_WAITING);
		}
	} else if (chan->disabled && !--chan->disabled) {
		chan->held = false;
	}
	sched_chan_recount(chan);
	if (midst && !chan->tsg->runnable)
		sched_unload(chan->tsg->rl, true);
}

bool sched_chan_on_engine(const struct sched_chan *chan)
{
	const struct sched_tsg *tsg = chan->tsg;

	return tsg && chan->state == CHAN_RUNNING && tsg->rl->loaded == tsg && sched_resident(tsg->rl);
}
