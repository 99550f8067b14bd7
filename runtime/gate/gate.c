// SPDX-License-Identifier: Apache-2.0
/* The launch path's slow turns: the host's wait, putting a gate into a stream; and what others ask of the gates. */
#include <errno.h>
#include <stdlib.h>

#include "context.h"
#include "done.h"
#include "fast.h"
#include "lifecycle.h"
#include "log.h"
#include "wake.h"

#define WAIT_EQ 1
#define WAIT_NOR 3
/* a launching thread that is held looks this often */
#define HOST_POLL_NS 30000
#define LOCK_PATIENCE_NS 20000

static bool holding(struct ds_board *board)
{
	uint32_t word = atomic_load_explicit(board->word, memory_order_relaxed);

	return ds_held(board, word) && !atomic_load_explicit(&board->stopping, memory_order_relaxed);
}

/*
 * Held: the first `depth` launches go in and stop at their gate, the others wait here. Any signal's handler runs and any fatal one ends the
 * wait. The word cannot stay set for ever: the watchdog looks after it.
 */
void ds_host_slow(struct ds_board *board, struct ds_tally *tally)
{
	static const struct timespec nap = { .tv_nsec = HOST_POLL_NS };
	uint32_t depth = atomic_load_explicit(&board->depth, memory_order_relaxed);
	uint32_t seq = atomic_load_explicit(&tally->seq, memory_order_relaxed);
	uint64_t began;
	int error;

	if (!holding(board) || !depth || atomic_fetch_add_explicit(&board->admitted, 1, memory_order_relaxed) < depth)
		return;
	/* a thread that waits here is in no launch: an idle edge or a new policy need not wait for it */
	atomic_store_explicit(&tally->seq, (seq | 1) + 1, memory_order_release);
	began = ds_now_ns();
	error = errno;
	do {
		ds_wake(board);
		nanosleep(&nap, NULL);
	} while (holding(board));
	errno = error;
	__atomic_fetch_add(&board->pages.counters->held_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
	atomic_store_explicit(&board->admitted, 1, memory_order_relaxed);
	ds_fast_active(board);
}

struct ds_gate_stream *ds_gate_stream_new(struct ds_stream *stream)
{
	static struct ds_gate_stream shared = { .shared = true }; /* out of memory: gates come too often */
	struct ds_gate_stream *gate = calloc(1, sizeof(*gate));
	void *none = NULL;

	if (!gate)
		return &shared;
	if (__atomic_compare_exchange_n(&stream->gate, &none, (void *)gate, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return gate;
	free(gate);
	return none;
}

/* The stream has reached its interval, or the word is not clear. */
void ds_gate_slow(struct ds_board *board, struct ds_gate_stream *gate, struct ds_launch *launch)
{
	uint32_t word = atomic_load_explicit(board->word, memory_order_relaxed);
	uint32_t every = atomic_load_explicit(&board->gate_ns, memory_order_relaxed);
	CUdeviceptr address = atomic_load_explicit(&board->gate_word, memory_order_acquire);
	bool hold_mode = ds_plan_mode_busy(atomic_load_explicit(board->plan, memory_order_relaxed)) == DS_MODE_HOLD;
	bool due = atomic_load_explicit(&gate->since_ns, memory_order_relaxed) >= every;
	bool held = ds_held(board, word);
	CUresult result;

	if (!held)
		atomic_store_explicit(&gate->closed, 0, memory_order_relaxed);
	if (every == UINT32_MAX) {
		due = false;
		if (atomic_load_explicit(&gate->since_ns, memory_order_relaxed) > UINT32_MAX)
			atomic_store_explicit(&gate->since_ns, 0, memory_order_relaxed);
	}
	/* what is queued behind a closed gate is held already */
	if (!address || atomic_load_explicit(&board->stopping, memory_order_relaxed) ||
	    !(due || (held && !atomic_load_explicit(&gate->closed, memory_order_relaxed))))
		return;
	/* where higher classes only change the tier, the gate is for holds by hand: it looks at bit 31 alone */
	result = hold_mode ? real->cuStreamWaitValue32_v2(launch->actual, address, 0, WAIT_EQ)
			   : real->cuStreamWaitValue32_v2(launch->actual, address, ~DS_HELD, WAIT_NOR);
	if (result) {
		if (atomic_exchange(&board->gate_word, 0))
			ds_info("gates end: cuStreamWaitValue32 gave %s", ds_error_name(result));
		return;
	}
	__atomic_fetch_add(&board->pages.counters->gates, 1, __ATOMIC_RELAXED);
	atomic_store_explicit(&gate->since_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&gate->closed, held, memory_order_relaxed);
}

/* ---- for others ---- */

unsigned int ds_board_tier(struct ds_device *device)
{
	return device->board ? ds_fast_tier(device->board) : 0;
}

bool ds_board_stands(struct ds_device *device, unsigned int tier)
{
	struct ds_board *board = device->board;

	return board && (ds_plan_tier_idle(atomic_load_explicit(board->plan, memory_order_relaxed)) & (DS_TIERS - 1)) == tier;
}

void ds_active_soon(struct ds_stream *stream)
{
	struct ds_board *board = stream->device->board;

	if (board && ds_unlikely(!atomic_load_explicit(&board->active, memory_order_relaxed)) && !ds_thread.locked &&
	    !atomic_load_explicit(&stream->capturing, memory_order_relaxed))
		ds_active_slow(board);
}

static void stream_gone(struct ds_stream *stream)
{
	struct ds_gate_stream *gate = __atomic_load_n(&stream->gate, __ATOMIC_ACQUIRE);

	/* kept for the next stream that uses this memory: a launch may still hold the pointer */
	if (gate) {
		atomic_store_explicit(&gate->since_ns, 0, memory_order_relaxed);
		atomic_store_explicit(&gate->closed, 0, memory_order_relaxed);
		ds_ahead_gone(gate);
	}
}

static const struct ds_lifecycle life = { .stream_gone = stream_gone };
DS_LIST_ADD(ds_lifecycles, life);

/* The poller has the lock for some microseconds at a time; a move may have it for longer, and is not worth waiting for. */
static bool lock_soon(struct ds_device *device)
{
	uint64_t end = 0;

	while (pthread_mutex_trylock(&device->lock)) {
		if (!end)
			end = ds_now_ns() + LOCK_PATIENCE_NS;
		else if (ds_now_ns() > end)
			return false;
	}
	return true;
}

void ds_synced(struct ds_device *device, struct ds_stream *stream)
{
	struct ds_board *board = device->board;
	struct ds_own own;
	uint64_t launches;
	bool inside, done;

	(void)stream; /* whichever it was: what counts is that no stream has work left */
	if (!board || !atomic_load_explicit(&board->holds, memory_order_relaxed) ||
	    !atomic_load_explicit(&board->active, memory_order_relaxed))
		return;
	launches = ds_launches(board, &inside);
	if (inside || ds_thread.locked || !lock_soon(device))
		return; /* the poller will see it */
	done = ds_all_done(device);
	if (!done && device->primary && atomic_load(&device->generation) == board->generation) {
		/* a wait for the whole context, or for the last stream that had work: some 1 us for each, and it ends a hold 200 us sooner */
		ds_thread.locked = true;
		ds_own_begin(&own, device);
		done = ds_ask_all(board, ds_now_ns());
		ds_own_end(&own);
		ds_thread.locked = false;
	}
	pthread_mutex_unlock(&device->lock);
	if (!done)
		return;
	ds_idle_later(board, launches);
}
