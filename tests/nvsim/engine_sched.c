// SPDX-License-Identifier: GPL-2.0-only
/* See engine_sched.h: who is on the engine, time, and what changes the picture. */
#include "engine_round.h"

/* the hardware counts slices in units of 1024 ns: a slice of zero still makes progress */
#define SHORTEST_SLICE 1024
/* pause of a channel between two calls of step() where the first left methods over */
#define HOST_PAUSE 10000

/* ---- what is runnable ---- */

static void tsg_recount(struct sched_tsg *tsg)
{
	struct sched_link *at;

	for_each_link(at, &tsg->chans)
		sched_chan_recount(CHAN(at));
}

static bool others_runnable(const struct sched_runlist *rl)
{
	u32 tsgs = rl->runnable[0] + rl->runnable[1] + rl->runnable[2];

	return tsgs > (rl->loaded && rl->loaded->runnable ? 1 : 0);
}

/* ---- time ---- */

static u64 slice_of(const struct sched_tsg *tsg)
{
	return tsg->slice < SHORTEST_SLICE ? SHORTEST_SLICE : tsg->slice;
}

static u64 plus(u64 time, u64 span)
{
	return time + span < time ? SCHED_NEVER : time + span;
}

static u64 later(u64 one, u64 other)
{
	return one > other ? one : other;
}

bool sched_resident(const struct sched_runlist *rl)
{
	return rl->loaded && rl->turn && rl->clock >= rl->ready;
}

/* ---- whose context is on the engine ---- */

/* By the log: it comes when the switch is over, so its restore is a part of its time. */
static void show(struct sched_runlist *rl)
{
	if (!rl->loaded || !rl->turn || rl->shown == rl->loaded || rl->clock < rl->load_end)
		return;
	rl->shown = rl->loaded;
	if (rl->log)
		rl->log(rl, rl->shown, true, rl->load_end);
}

static void hide(struct sched_runlist *rl)
{
	if (rl->shown && rl->log)
		rl->log(rl, rl->shown, false, rl->clock);
	rl->shown = NULL;
}

/* midst: of a kernel, which is saved. */
static void leave(struct sched_runlist *rl, bool midst)
{
	hide(rl);
	if (midst)
		rl->free = plus(rl->clock, rl->save_ns);
}

void sched_unload(struct sched_runlist *rl, bool midst)
{
	leave(rl, midst);
	rl->loaded = NULL;
	rl->turn = false;
}

/* The loaded TSG's turn is over, but for kernels that cannot be taken off. */
static bool overdue(const struct sched_runlist *rl)
{
	return rl->loaded->wfi && rl->loaded->sms_used && rl->clock >= rl->slice_end &&
	       (rl->expired || others_runnable(rl));
}

/* Methods of the loaded TSG's channels. Takes no time. */
static void tsg_methods(struct sched_runlist *rl)
{
	struct sched_tsg *tsg = rl->loaded;
	struct sched_link *at;
	struct sched_chan *chan;

	for_each_link(at, &tsg->chans) {
		chan = CHAN(at);
		if (chan->state != CHAN_HOST || !chan->counted)
			continue;
		sched_chan_set(chan, rl->step(chan, rl->clock));
		if (chan->state == CHAN_WAITING) {
			chan->ran = 0;
			chan->order = rl->orders++;
			if (chan->sms > rl->sms)
				chan->sms = rl->sms;
		}
	}
}

/* The loaded TSG's kernels that fit, first come first served. */
static void tsg_kernels(struct sched_runlist *rl)
{
	struct sched_tsg *tsg = rl->loaded;
	struct sched_link *at;
	struct sched_chan *chan, *first;

	for (;;) {
		first = NULL;
		for_each_link(at, &tsg->chans) {
			chan = CHAN(at);
			if (chan->state == CHAN_WAITING && chan->counted &&
			    (!first || chan->order < first->order))
				first = chan;
		}
		if (!first || tsg->sms_used + first->sms > rl->sms)
			return;
		sched_chan_set(first, CHAN_RUNNING);
	}
}

/* Decide who has the engine from the present clock on. */
static void settle(struct sched_runlist *rl)
{
	struct sched_tsg *next;

	for (;;) {
		if (rl->loaded && rl->turn) {
			if (rl->clock < rl->ready)
				return;
			if (overdue(rl))
				return;
			if (rl->loaded->runnable) {
				tsg_methods(rl);
				tsg_kernels(rl);
			}
			if (rl->loaded->runnable)
				return;
			rl->turn = false;
		}
		next = sched_round_pick(rl);
		if (!next)
			return;
		if (next != rl->loaded) {
			leave(rl, rl->loaded && rl->loaded->sms_used);
			rl->loaded = next;
			rl->load_end = plus(later(rl->clock, rl->free), rl->switch_ns);
			rl->ready = plus(rl->load_end, rl->restore_ns);
			rl->slice_end = plus(rl->load_end, slice_of(next));
			if (rl->slice_end > rl->ready)
				rl->slice_end = plus(rl->slice_end, rl->late_ns);
			rl->switches++;
		} else {
			/* one whose turn was cut short before it was there */
			rl->load_end = later(rl->clock, rl->load_end);
			rl->ready = later(rl->clock, rl->ready);
			rl->slice_end = plus(rl->load_end, slice_of(next));
		}
		rl->turn = true;
		rl->expired = false;
	}
}

u64 sched_next(const struct sched_runlist *rl)
{
	const struct sched_link *at;
	const struct sched_chan *chan;
	u64 next = SCHED_NEVER;

	if (!rl->loaded || !rl->turn)
		return next;
	if (rl->clock < rl->load_end)
		return rl->load_end;
	if (rl->clock < rl->ready)
		return rl->ready;
	for_each_link(at, &rl->loaded->chans) {
		chan = CHAN(at);
		if (chan->state == CHAN_RUNNING && plus(rl->clock, chan->left) < next)
			next = plus(rl->clock, chan->left);
		else if (chan->state == CHAN_HOST && chan->counted && !overdue(rl) &&
			 plus(rl->clock, HOST_PAUSE) < next)
			next = plus(rl->clock, HOST_PAUSE);
	}
	if (others_runnable(rl) && rl->slice_end < next && !overdue(rl))
		next = rl->slice_end;
	return next < rl->clock ? rl->clock : next;
}

static void elapse(struct sched_runlist *rl, u64 until)
{
	u64 span = until - rl->clock;
	struct sched_link *at;
	struct sched_chan *chan;
	bool ran = false;

	if (!span)
		return;
	if (rl->loaded && rl->turn && rl->clock < rl->load_end) {
		rl->switching += span;
	} else if (rl->loaded && rl->turn && rl->clock < rl->ready) {
		rl->restoring += span;
	} else if (sched_resident(rl)) {
		for_each_link(at, &rl->loaded->chans) {
			chan = CHAN(at);
			if (chan->state != CHAN_RUNNING)
				continue;
			ran = true;
			chan->ran += span;
			if (chan->left != SCHED_NEVER)
				chan->left -= span;
		}
		if (ran) {
			rl->loaded->gpu_time += span;
			rl->busy += span;
		}
	}
	rl->clock = until;
	show(rl);
}

static void events(struct sched_runlist *rl)
{
	struct sched_link *at;
	bool ended = false;
	u64 slice;

	if (!sched_resident(rl))
		return;
	for_each_link(at, &rl->loaded->chans) {
		if (CHAN(at)->state == CHAN_RUNNING && !CHAN(at)->left) {
			sched_chan_kernel_done(CHAN(at));
			ended = true;
		}
	}
	/*
	 * what follows a kernel, a semaphore above all, is not kept for the next turn where the
	 * slice ends with it
	 */
	if (ended)
		tsg_methods(rl);
	if (rl->clock < rl->slice_end || overdue(rl))
		return;
	if (others_runnable(rl) || rl->expired) {
		rl->turn = false;
	} else {
		/*
		 * alone: slices follow each other without a switch, so that a newcomer waits for
		 * the rest of one
		 */
		slice = slice_of(rl->loaded);
		rl->slice_end += ((rl->clock - rl->slice_end) / slice + 1) * slice;
	}
}

void sched_advance(struct sched_runlist *rl, u64 now)
{
	u64 next;

	for (;;) {
		settle(rl);
		show(rl);
		next = sched_next(rl);
		if (next > now)
			break;
		elapse(rl, next);
		events(rl);
	}
	if (now > rl->clock) {
		elapse(rl, now);
		events(rl);
	}
}

void sched_runlist_init(struct sched_runlist *rl, u32 sms, u64 switch_ns, u64 restore_ns,
			enum sched_state (*step)(struct sched_chan *, u64))
{
	u32 level;

	*rl = (struct sched_runlist){ .sms = sms ? sms : 1, .switch_ns = switch_ns, .restore_ns = restore_ns,
				       .step = step };
	for (level = 0; level < SCHED_LEVELS; level++)
		link_init(&rl->level[level]);
}

/* ---- TSGs ---- */

void sched_tsg_add(struct sched_runlist *rl, struct sched_tsg *tsg, u32 level, u64 slice)
{
	*tsg = (struct sched_tsg){ .rl = rl, .slice = slice };
	link_init(&tsg->chans);
	link_init(&tsg->in_level);
	sched_round_join(rl, tsg, level);
}

void sched_tsg_remove(struct sched_tsg *tsg)
{
	struct sched_runlist *rl = tsg->rl;

	while (tsg->chans.next != &tsg->chans)
		sched_chan_remove(CHAN(tsg->chans.next));
	sched_round_leave(rl, tsg);
	if (rl->loaded == tsg)
		sched_unload(rl, false);
}

void sched_tsg_set_level(struct sched_tsg *tsg, u32 level)
{
	if (level == tsg->level)
		return;
	sched_round_leave(tsg->rl, tsg);
	sched_round_join(tsg->rl, tsg, level);
}

void sched_tsg_set_slice(struct sched_tsg *tsg, u64 slice)
{
	struct sched_runlist *rl = tsg->rl;
	u64 old = slice_of(tsg), start;

	tsg->slice = slice;
	if (rl->loaded != tsg || !rl->turn)
		return;
	/* acts at once: the present slice counts from its beginning, but where it had no end */
	start = rl->slice_end == SCHED_NEVER ? rl->clock :
		rl->slice_end > old	     ? rl->slice_end - old :
					       0;
	rl->slice_end = plus(start, slice_of(tsg));
	if (rl->slice_end < rl->clock)
		rl->slice_end = rl->clock;
}

void sched_tsg_enable(struct sched_tsg *tsg, bool enable)
{
	tsg->enabled = enable;
	tsg_recount(tsg);
}

/* What cannot be taken off ends its turn when it has ended; false: it can be. */
static bool expire(struct sched_runlist *rl)
{
	if (!rl->loaded || !rl->turn || !rl->loaded->wfi || !rl->loaded->sms_used)
		return false;
	rl->slice_end = rl->slice_end < rl->clock ? rl->slice_end : rl->clock;
	rl->expired = true;
	return true;
}

void sched_tsg_preempt(struct sched_tsg *tsg)
{
	struct sched_runlist *rl = tsg->rl;

	if (rl->loaded != tsg)
		return;
	if (expire(rl))
		return;
	sched_unload(rl, tsg->sms_used);
}

void sched_tsg_set_wfi(struct sched_tsg *tsg, bool wfi)
{
	tsg->wfi = wfi;
}

void sched_restart(struct sched_runlist *rl)
{
	if (!expire(rl))
		rl->turn = false;
	sched_round_restart(rl);
}

const char *sched_tsg_state(const struct sched_tsg *tsg)
{
	const struct sched_runlist *rl = tsg->rl;
	const struct sched_link *at;

	if (rl->loaded == tsg && sched_resident(rl) && tsg->runnable)
		return "running";
	if (tsg->runnable)
		return "ready";
	if (tsg->enabled)
		return "idle";
	for_each_link(at, &tsg->chans)
		if (CHAN(at)->scheduled)
			return "idle";
	return "off";
}
