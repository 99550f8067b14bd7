// SPDX-License-Identifier: GPL-2.0-only
/* The scheduling arithmetic as a shared object for tests: channels with queues of kernels, a log of what ended when. */
#include <stdlib.h>
#include <string.h>

#include "engine_sched.h"
#include "eventbuf.h"
#include "ring.h"

#define MOST 4096

struct chan {
	struct sched_chan sched;
	struct bench *bench;
	u64 ns[MOST];
	u32 sms[MOST];
	u32 put, get;
	bool busy, forever;
};

struct bench {
	struct sched_runlist rl;
	struct sched_tsg *tsgs[MOST];
	struct chan *chans[MOST];
	u32 ntsgs, nchans, nlog;
	struct {
		u64 when;
		u32 chan;
	} log[1 << 16];
	u32 nnotes;
	struct {
		u64 when;
		u32 tsg;
		bool begins;
	} notes[1 << 16];
};

/* rl is the first of struct bench. */
static void note(struct sched_runlist *rl, struct sched_tsg *tsg, bool begins, u64 when)
{
	struct bench *bench = (struct bench *)rl;
	u32 i = 0;

	while (bench->tsgs[i] != tsg)
		i++;
	if (bench->nnotes == 1 << 16)
		return;
	bench->notes[bench->nnotes].when = when;
	bench->notes[bench->nnotes].tsg = i;
	bench->notes[bench->nnotes++].begins = begins;
}

static enum sched_state step(struct sched_chan *sched, u64 when)
{
	struct chan *chan = (struct chan *)sched;
	struct bench *bench = chan->bench;
	u32 i = 0;

	if (chan->busy) {
		while (bench->chans[i] != chan)
			i++;
		if (bench->nlog < 1 << 16) {
			bench->log[bench->nlog].when = when;
			bench->log[bench->nlog++].chan = i;
		}
		chan->busy = false;
	}
	if (chan->get == chan->put)
		return CHAN_IDLE;
	chan->busy = true;
	sched->left = chan->ns[chan->get % MOST];
	sched->sms = chan->sms[chan->get % MOST];
	if (!chan->forever)
		chan->get++;
	return CHAN_WAITING;
}

struct bench *bench_new(u32 sms, u64 switch_ns, u64 restore_ns, u64 late_ns, u64 save_ns)
{
	struct bench *bench = calloc(1, sizeof(*bench));

	sched_runlist_init(&bench->rl, sms, switch_ns, restore_ns, step);
	bench->rl.late_ns = late_ns;
	bench->rl.save_ns = save_ns;
	bench->rl.log = note;
	return bench;
}

void bench_free(struct bench *bench)
{
	for (u32 i = 0; i < bench->nchans; i++)
		free(bench->chans[i]);
	for (u32 i = 0; i < bench->ntsgs; i++)
		free(bench->tsgs[i]);
	free(bench);
}

u32 bench_tsg(struct bench *bench, u32 level, u64 slice)
{
	struct sched_tsg *tsg = calloc(1, sizeof(*tsg));

	sched_tsg_add(&bench->rl, tsg, level, slice);
	sched_tsg_enable(tsg, true);
	bench->tsgs[bench->ntsgs] = tsg;
	return bench->ntsgs++;
}

u32 bench_chan(struct bench *bench, u32 tsg)
{
	struct chan *chan = calloc(1, sizeof(*chan));

	sched_chan_add(bench->tsgs[tsg], &chan->sched);
	chan->bench = bench;
	bench->chans[bench->nchans] = chan;
	return bench->nchans++;
}

/* forever: this kernel again and again, each launched when the one before has ended */
void bench_submit(struct bench *bench, u32 index, u64 ns, u32 sms, bool forever)
{
	struct chan *chan = bench->chans[index];

	chan->ns[chan->put % MOST] = ns;
	chan->sms[chan->put++ % MOST] = sms;
	chan->forever = forever;
	sched_chan_wake(&chan->sched);
}

void bench_advance(struct bench *bench, u64 now) { sched_advance(&bench->rl, now); }
u64 bench_next(struct bench *bench) { return sched_next(&bench->rl); }
u32 bench_logged(struct bench *bench) { return bench->nlog; }
u64 bench_log_when(struct bench *bench, u32 i) { return bench->log[i].when; }
u32 bench_log_chan(struct bench *bench, u32 i) { return bench->log[i].chan; }
u32 bench_noted(struct bench *bench) { return bench->nnotes; }
u64 bench_note_when(struct bench *bench, u32 i) { return bench->notes[i].when; }
u32 bench_note_tsg(struct bench *bench, u32 i) { return bench->notes[i].tsg; }
u32 bench_note_begins(struct bench *bench, u32 i) { return bench->notes[i].begins; }
u64 bench_restoring(struct bench *bench) { return bench->rl.restoring; }
u64 bench_busy(struct bench *bench) { return bench->rl.busy; }
u64 bench_switching(struct bench *bench) { return bench->rl.switching; }
u64 bench_switches(struct bench *bench) { return bench->rl.switches; }
u64 bench_gpu_time(struct bench *bench, u32 tsg) { return bench->tsgs[tsg]->gpu_time; }
const char *bench_tsg_state(struct bench *bench, u32 tsg) { return sched_tsg_state(bench->tsgs[tsg]); }
u64 bench_ran(struct bench *bench, u32 chan) { return bench->chans[chan]->sched.ran; }
u64 bench_finished(struct bench *bench, u32 chan) { return bench->chans[chan]->sched.finished; }
u32 bench_chan_state(struct bench *bench, u32 chan) { return bench->chans[chan]->sched.state; }
void bench_slice(struct bench *bench, u32 tsg, u64 ns) { sched_tsg_set_slice(bench->tsgs[tsg], ns); }
void bench_level(struct bench *bench, u32 tsg, u32 level) { sched_tsg_set_level(bench->tsgs[tsg], level); }
void bench_enable(struct bench *bench, u32 tsg, bool on) { sched_tsg_enable(bench->tsgs[tsg], on); }
void bench_wfi(struct bench *bench, u32 tsg, bool on) { sched_tsg_set_wfi(bench->tsgs[tsg], on); }
void bench_first(struct bench *bench, u32 tsg) { sched_tsg_first(bench->tsgs[tsg]); }
void bench_restart(struct bench *bench) { sched_restart(&bench->rl); }
void bench_hang(struct bench *bench, u32 chan) { sched_chan_hang(&bench->chans[chan]->sched); }
void bench_preempt(struct bench *bench, u32 tsg) { sched_tsg_preempt(bench->tsgs[tsg]); }
void bench_remove_tsg(struct bench *bench, u32 tsg) { sched_tsg_remove(bench->tsgs[tsg]); }
void bench_remove_chan(struct bench *bench, u32 chan) { sched_chan_remove(&bench->chans[chan]->sched); }
void bench_end_kernel(struct bench *bench, u32 chan) { sched_chan_end_kernel(&bench->chans[chan]->sched); }

void bench_disable(struct bench *bench, u32 chan, bool disable, bool only_scheduling)
{
	sched_chan_disable(&bench->chans[chan]->sched, disable, only_scheduling);
}

u32 bench_round_next(struct bench *bench)
{
	struct sched_tsg *tsg = sched_round_next(&bench->rl);

	for (u32 i = 0; i < bench->ntsgs; i++)
		if (bench->tsgs[i] == tsg)
			return i;
	return (u32)-1;
}

/* What must hold whatever was done: counts agree with what is there, nobody holds SMs that are not there. NULL: it does. */
const char *bench_broken(struct bench *bench)
{
	u32 runnable[SCHED_LEVELS] = { 0 }, sms, chans;

	for (u32 t = 0; t < bench->ntsgs; t++) {
		struct sched_tsg *tsg = bench->tsgs[t];

		sms = 0;
		chans = 0;
		if (tsg->in_level.next == &tsg->in_level)
			continue; /* removed */
		for (u32 c = 0; c < bench->nchans; c++) {
			struct sched_chan *chan = &bench->chans[c]->sched;

			if (chan->tsg != tsg)
				continue;
			chans += chan->counted;
			sms += chan->state == CHAN_RUNNING ? chan->sms : 0;
			if (chan->held && chan->state == CHAN_RUNNING)
				return "a channel runs that was taken off";
		}
		if (chans != tsg->runnable)
			return "runnable channels of a TSG miscounted";
		if (sms != tsg->sms_used || sms > bench->rl.sms)
			return "SMs miscounted";
		runnable[tsg->level] += tsg->runnable != 0;
	}
	if (memcmp(runnable, bench->rl.runnable, sizeof(runnable)))
		return "runnable TSGs miscounted";
	return NULL;
}

/* ---- ring ---- */

struct ring *ring_new(int (*read)(void *, u64, void *, size_t), int (*write)(void *, u64, void *, size_t), u64 gpfifo,
		      u32 entries)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	struct ring_memory *memory = calloc(1, sizeof(*memory));

	memory->read = read;
	memory->write = (int (*)(void *, u64, const void *, size_t))write;
	ring_init(ring, memory, NULL, gpfifo, entries);
	return ring;
}

void ring_free(struct ring *ring)
{
	free((void *)ring->memory);
	free(ring);
}

u32 ring_get(const struct ring *ring) { return ring->get; }
u64 ring_fault(const struct ring *ring) { return ring->fault; }
u64 ring_kernel_ns(const struct ring *ring) { return ring->kernel.ns; }
u32 ring_kernel_sms(const struct ring *ring) { return ring->kernel.sms; }
u64 ring_kernel_until(const struct ring *ring) { return ring->kernel.until; }

/* ---- events ---- */

struct events {
	struct eventbuf buf;
	unsigned char header[EVENTBUF_HEADER_SIZE], records[MOST * EVENTBUF_SWITCH_SIZE];
};

static void write_events(struct eventbuf *buf, bool header, u64 at, const void *data, size_t n)
{
	struct events *events = (struct events *)buf;

	memcpy((header ? events->header : events->records) + at, data, n);
}

struct events *events_new(u32 count)
{
	struct events *events = calloc(1, sizeof(*events));

	events->buf.write = write_events;
	eventbuf_init(&events->buf, EVENTBUF_SWITCH_SIZE, count);
	return events;
}

void events_free(struct events *events) { free(events); }
void events_lost(struct events *events, u32 records) { eventbuf_lost(&events->buf, records); }
u32 events_get(struct events *events, u32 get) { return eventbuf_get(&events->buf, get); }

void events_enable(struct events *events, u32 on, u32 newest)
{
	events->buf.enabled = on;
	events->buf.newest = newest;
}

void events_add(struct events *events, u32 version, u32 tag, u32 context, u32 pid, u64 when)
{
	struct eventbuf_switch event = { .tag = (u8)tag, .context = context, .pid = pid, .when = when };

	eventbuf_add(&events->buf, version, &event);
}

void events_read(struct events *events, void *header, void *records, size_t size)
{
	memcpy(header, events->header, sizeof(events->header));
	memcpy(records, events->records, size);
}
