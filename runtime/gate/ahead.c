// SPDX-License-Identifier: Apache-2.0
/*
 * How far a program may run ahead of its GPU. What is queued keeps the SMs it was launched for, so a change of tier takes as long as the queue is.
 * Where a higher class exists, the launching thread waits while the estimated work of the stream that is not finished exceeds policy.ahead_us; two
 * launches may always be in flight. Markers (events) behind every quarter of it say what is finished.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "context.h"
#include "fast.h"
#include "log.h"

#define MARKS 8
#define POLL_NS 20000
#define LEAST_LAUNCHES 2
/* without a marker finished for so long the stream may be waiting for what this very thread would launch next: it is not bounded any more */
#define PATIENCE_NS 2000000000ULL

/* Of one stream. Sums count from its first bounded launch; `busy` is held for some driver calls, never while a thread sleeps. */
struct ds_ahead {
	_Atomic(uint32_t) busy;
	_Atomic(uint32_t) forget; /* the record serves another stream now */
	bool free; /* not bounded any more */
	struct ds_board *board; /* whose context the events are of */
	uint64_t work, launches; /* launched */
	uint64_t done_work, done_launches; /* finished for certain */
	uint64_t marked_work;
	unsigned int first, count; /* markers under way */
	struct {
		CUevent event;
		uint64_t work, launches;
	} marks[MARKS];
};

static bool take(struct ds_ahead *ahead)
{
	return !atomic_exchange_explicit(&ahead->busy, 1, memory_order_acquire);
}

static void give(struct ds_ahead *ahead)
{
	atomic_store_explicit(&ahead->busy, 0, memory_order_release);
}

static void all_done(struct ds_ahead *ahead)
{
	ahead->done_work = ahead->marked_work = ahead->work;
	ahead->done_launches = ahead->launches;
	ahead->count = 0;
}

/* taken by the caller */
static void renew(struct ds_ahead *ahead, struct ds_board *board)
{
	unsigned int n;

	if (atomic_exchange_explicit(&ahead->forget, 0, memory_order_relaxed)) {
		all_done(ahead);
		ahead->free = false;
	}
	if (ahead->board == board)
		return;
	/* events of a context that is gone */
	all_done(ahead);
	for (n = 0; n < MARKS; n++)
		ahead->marks[n].event = NULL;
	ahead->board = board;
}

static struct ds_ahead *ahead_of(struct ds_stream *stream)
{
	struct ds_gate_stream *gate = __atomic_load_n(&stream->gate, __ATOMIC_ACQUIRE);
	struct ds_ahead *ahead, *none = NULL;

	if (!gate)
		gate = ds_gate_stream_new(stream);
	ahead = atomic_load_explicit(&gate->ahead, memory_order_acquire);
	if (ahead || gate->shared)
		return ahead;
	ahead = calloc(1, sizeof(*ahead));
	if (!ahead || atomic_compare_exchange_strong(&gate->ahead, &none, ahead))
		return ahead;
	free(ahead);
	return none;
}

/* Whether one more launch may go in. Asks the driver for the oldest markers. */
static bool room(struct ds_board *board, struct ds_ahead *ahead)
{
	uint32_t most = atomic_load_explicit(&board->ahead_ns, memory_order_relaxed);
	struct ds_own own;
	bool asked = false;

	while (ahead->work - ahead->done_work > most && ahead->launches - ahead->done_launches >= LEAST_LAUNCHES) {
		CUresult result;

		if (!ahead->count) {
			all_done(ahead); /* nothing to go by: its markers were refused */
			break;
		}
		if (!asked)
			ds_own_begin(&own, board->device);
		asked = true;
		result = real->cuEventQuery(ahead->marks[ahead->first].event);
		if (result == CUDA_ERROR_NOT_READY)
			break;
		ahead->done_work = ahead->marks[ahead->first].work;
		ahead->done_launches = ahead->marks[ahead->first].launches;
		ahead->first = (ahead->first + 1) % MARKS;
		ahead->count--;
	}
	if (asked)
		ds_own_end(&own);
	return ahead->work - ahead->done_work <= most || ahead->launches - ahead->done_launches < LEAST_LAUNCHES;
}

static bool bounded(struct ds_board *board)
{
	uint64_t plan = atomic_load_explicit(board->plan, memory_order_relaxed);

	/* while a program holds, its gates bound it */
	return atomic_load_explicit(&board->ahead_ns, memory_order_relaxed) != UINT32_MAX &&
	       ds_plan_mode_busy(plan) == DS_MODE_TIER && !atomic_load_explicit(&board->stopping, memory_order_relaxed) &&
	       !atomic_load_explicit(&ds_process.exiting, memory_order_relaxed);
}

/* true: let it in */
static bool may_enter(struct ds_board *board, struct ds_ahead *ahead)
{
	bool enter;

	/* somebody else looks after this stream at this moment */
	if (!bounded(board) || !take(ahead))
		return true;
	renew(ahead, board);
	enter = ahead->free || room(board, ahead);
	give(ahead);
	return enter;
}

void ds_ahead_before(struct ds_board *board, struct ds_stream *stream)
{
	static const struct timespec nap = { .tv_nsec = POLL_NS };
	struct ds_ahead *ahead = ds_thread.locked ? NULL : ahead_of(stream);
	struct ds_tally *tally;
	uint64_t began, done;
	int error = errno;

	if (!ahead)
		return;
	ds_thread.locked = true;
	if (!may_enter(board, ahead)) {
		/* a thread that waits is in no launch, as in ds_host_slow() */
		tally = ds_tally_of(board);
		atomic_store_explicit(&tally->seq, (atomic_load_explicit(&tally->seq, memory_order_relaxed) | 1) + 1,
				      memory_order_release);
		began = ds_now_ns();
		done = ahead->done_launches;
		do {
			ds_thread.locked = false; /* signal handlers of the program run here */
			nanosleep(&nap, NULL);
			ds_thread.locked = true;
			if (ahead->done_launches == done && ds_now_ns() - began > PATIENCE_NS) {
				ahead->free = true;
				ds_debug("a stream is not bounded any more: its work did not go on for %llu ms",
					 PATIENCE_NS / 1000000);
			}
		} while (!may_enter(board, ahead));
		__atomic_fetch_add(&board->pages.counters->held_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
		ds_thread.locked = false;
		ds_fast_active(board);
	}
	ds_thread.locked = false;
	errno = error;
}

/* The launch is with the driver and its stream still in use: count it, and put a marker behind it when a quarter is full. */
void ds_ahead_after(struct ds_board *board, struct ds_launch *launch)
{
	struct ds_ahead *ahead = ds_thread.locked ? NULL : ahead_of(launch->stream);
	unsigned int last;
	struct ds_own own;
	CUresult result = CUDA_SUCCESS;

	if (!ahead || !bounded(board) || !take(ahead))
		return;
	renew(ahead, board);
	ahead->work += launch->gate[1];
	ahead->launches++;
	if (ahead->work - ahead->marked_work < atomic_load_explicit(&board->ahead_ns, memory_order_relaxed) / 4 ||
	    ahead->count == MARKS || ahead->free)
		goto out;
	last = (ahead->first + ahead->count) % MARKS;
	ds_thread.locked = true;
	if (!ahead->marks[last].event) {
		ds_own_begin(&own, board->device);
		result = real->cuEventCreate(&ahead->marks[last].event, CU_EVENT_DISABLE_TIMING);
		ds_own_end(&own);
	}
	if (!result)
		result = real->cuEventRecord(ahead->marks[last].event, launch->actual);
	ds_thread.locked = false;
	if (result)
		goto out;
	ahead->marks[last].work = ahead->marked_work = ahead->work;
	ahead->marks[last].launches = ahead->launches;
	ahead->count++;
out:
	give(ahead);
}

void ds_ahead_gone(struct ds_gate_stream *gate)
{
	struct ds_ahead *ahead = atomic_load_explicit(&gate->ahead, memory_order_acquire);

	if (ahead)
		atomic_store_explicit(&ahead->forget, 1, memory_order_relaxed);
}
