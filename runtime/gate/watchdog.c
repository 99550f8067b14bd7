// SPDX-License-Identifier: Apache-2.0
/*
 * The watchdog: one thread per board that looks after our slot's word, our own bits, and the floor. It never calls the driver, so it goes on
 * whatever the driver waits for; every gate opens by it at the latest.
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

#include "edge.h"
#include "watchdog.h"
#include "wake.h"
#include "word.h"

#define NS_US 1000ULL
#define NS_MS 1000000ULL
#define TICK_NS (200 * NS_US)
#define CALM_NS (2 * NS_MS) /* active, but nobody to hold and nobody who holds */
#define WINDOW_NS (100 * NS_US)
#define IDLE_NS (20 * NS_MS) /* how late an idle program acknowledges a policy */
#define BEAT_NS (2 * NS_MS)
/* windows for what was queued to be held, once the mode is another */
#define LEFT_PERIOD_NS (20 * NS_MS)
#define LEFT_PERMILLE 250
#define SEE_OFF_NS (2000 * NS_MS)

/* ---- the floor ---- */

/*
 * Work that was queued to be held waits at gates for a clear word. In mode TIER the word may never be clear again: whoever comes from a hold gets
 * windows until all older work has ended.
 */
static bool leftover(struct ds_board *board, uint32_t word)
{
	return word && !ds_held(board, word) && atomic_load(&board->active) &&
	       __atomic_load_n(&board->pages.counters->epoch_ack, __ATOMIC_RELAXED) !=
		       atomic_load_explicit(&board->epoch, memory_order_relaxed);
}

/*
 * Each period of CLOCK_MONOTONIC (aligned, so that the windows of all held tenants fall together) in which the word was clear for less than
 * the floor is followed by a window that gives back what lacked.
 */
static void floor_look(struct ds_board *board, uint64_t now)
{
	uint64_t period_ns = atomic_load_explicit(&board->floor_period_ns, memory_order_relaxed);
	uint64_t permille = atomic_load_explicit(&board->floor_permille, memory_order_relaxed), floor_ns;
	uint32_t word = atomic_load_explicit(board->word, memory_order_relaxed);
	bool left = leftover(board, word), closed = left || ds_held(board, word);
	bool open = atomic_load_explicit(&board->floor, memory_order_relaxed) == DS_FLOOR_OPEN;
	uint64_t period, spent = now - board->pass_ns;

	if (left) {
		period_ns = period_ns ? period_ns : LEFT_PERIOD_NS;
		permille = permille > LEFT_PERMILLE ? permille : LEFT_PERMILLE;
	}
	floor_ns = period_ns * permille / 1000;
	if (open || !closed)
		board->open_ns += spent;
	if (open) {
		__atomic_fetch_add(&board->pages.counters->floor_ns, spent, __ATOMIC_RELAXED);
		if (now >= board->window_end_ns || (word & DS_HELD)) {
			atomic_store(&board->floor, DS_FLOOR_CLOSING);
			open = false;
		}
	}
	if (!floor_ns)
		return;
	period = now / period_ns;
	if (period == board->period)
		return;
	/* not after a sleep: nothing was held then */
	if (period == board->period + 1 && board->open_ns < floor_ns && !open && closed && !(word & DS_HELD)) {
		board->window_end_ns = now + floor_ns - board->open_ns;
		atomic_store(&board->floor, DS_FLOOR_OPEN);
	}
	board->period = period;
	board->open_ns = 0;
}

/* ---- the thread ---- */

static void own_look(struct ds_board *board, uint64_t now)
{
	uint64_t idle_at = atomic_load_explicit(&board->idle_at_ns, memory_order_relaxed), launches;
	unsigned int n;
	bool holds = false;

	if (now - board->beat_ns >= BEAT_NS) {
		__atomic_store_n(&board->pages.slot->beat, now, __ATOMIC_RELAXED);
		board->beat_ns = now;
	}
	for (n = 0; n < DS_SLOTS && !holds; n++) {
		const struct ds_slot *slot = &board->pages.activity->slots[n];

		holds = n != board->pages.index && __atomic_load_n(&slot->state, __ATOMIC_RELAXED) == DS_SLOT_LIVE &&
			slot->class_ < atomic_load_explicit(&board->class_, memory_order_relaxed);
	}
	atomic_store_explicit(&board->holds, holds, memory_order_relaxed);
	if (!idle_at || now < idle_at)
		return;
	pthread_mutex_lock(&board->edge);
	launches = board->idle_launches;
	pthread_mutex_unlock(&board->edge);
	ds_idle_edge(board, launches);
}

static void counters_look(struct ds_board *board, uint64_t now)
{
	struct ds_counters *counters = board->pages.counters;
	uint64_t kernels = 0, graphs = 0, work = 0;
	struct ds_tally *tally;

	for (tally = atomic_load_explicit(&board->tallies, memory_order_acquire); tally; tally = tally->next) {
		kernels += atomic_load_explicit(&tally->kernels, memory_order_relaxed);
		graphs += atomic_load_explicit(&tally->graphs, memory_order_relaxed);
		work += atomic_load_explicit(&tally->work_ns, memory_order_relaxed);
	}
	if (kernels != counters->launches || graphs != counters->graph_launches)
		__atomic_store_n(&counters->last_launch, now, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->launches, kernels, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->graph_launches, graphs, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->kernel_ns, work, __ATOMIC_RELAXED);
	work = kernels + graphs - atomic_load_explicit(&board->busy_launches, memory_order_relaxed);
	if (!atomic_load_explicit(&board->active, memory_order_relaxed))
		work = 0;
	__atomic_store_n(&counters->in_flight, work < UINT32_MAX ? (uint32_t)work : UINT32_MAX, __ATOMIC_RELAXED);
	if (atomic_load_explicit(&board->active, memory_order_relaxed) &&
	    ds_held(board, atomic_load_explicit(board->word, memory_order_relaxed)))
		__atomic_fetch_add(&counters->closed_ns, now - board->pass_ns, __ATOMIC_RELAXED);
}

/* How long until the next pass. While held or holding a tick; a program that nobody knows of needs few. */
static void rest(struct ds_board *board)
{
	bool held = atomic_load(board->word), sleeps;

	if (atomic_load_explicit(&board->floor, memory_order_relaxed)) {
		ds_nap(WINDOW_NS);
		return;
	}
	sleeps = !atomic_load(&board->active);
	if (sleeps) {
		/* asleep is allowed first, then a last look: a launch in between is not missed */
		atomic_store(&board->awake[DS_WATCHDOG], 0);
		if (!atomic_load(&board->active)) {
			ds_sleep(board, DS_WATCHDOG, held ? CALM_NS : IDLE_NS);
			return;
		}
		atomic_store(&board->awake[DS_WATCHDOG], 1);
	}
	ds_nap_lingering(board, held || atomic_load_explicit(&board->holds, memory_order_relaxed) ||
				   atomic_load_explicit(&board->gate_ns, memory_order_relaxed) != UINT32_MAX
			   ? TICK_NS
			   : CALM_NS);
}

/* Gates stay open while the process or the context ends: who set our word at the last moment did not know yet. */
static void see_off(struct ds_board *board)
{
	uint64_t end = ds_now_ns() + SEE_OFF_NS;

	while (ds_now_ns() < end && __atomic_load_n(&board->pages.slot->state, __ATOMIC_ACQUIRE) == DS_SLOT_LEAVING) {
		ds_upkeep(board, ds_now_ns());
		ds_nap(TICK_NS);
	}
}

static void *watchdog(void *arg)
{
	struct ds_board *board = arg;
	uint32_t epoch = 1;

	prctl(PR_SET_NAME, "ds-watchdog");
	/* the default slack of 50 us is a quarter of a tick */
	prctl(PR_SET_TIMERSLACK, 5000UL);
	board->pass_ns = ds_now_ns();
	while (!atomic_load_explicit(&board->stopping, memory_order_acquire)) {
		uint64_t now = ds_now_ns();

		ds_policy_refresh(board);
		if (atomic_load(&board->epoch) != epoch) {
			epoch = atomic_load(&board->epoch);
			ds_wake(board); /* the poller acknowledges */
		}
		counters_look(board, now);
		floor_look(board, now);
		ds_upkeep(board, now);
		if (atomic_load(&board->active))
			own_look(board, now);
		if (!ds_held(board, atomic_load(board->word)))
			atomic_store_explicit(&board->admitted, 0, memory_order_relaxed);
		board->pass_ns = now;
		rest(board);
	}
	see_off(board);
	atomic_fetch_sub(&board->helpers, 1);
	return NULL;
}

bool ds_watchdog_start(struct ds_board *board)
{
	return ds_helper_start(watchdog, board);
}
