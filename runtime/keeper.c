// SPDX-License-Identifier: Apache-2.0
/*
 * The keeper: one thread per board that looks after our slot's word, our own bits, and the floor. It never calls the driver, so it goes on
 * whatever the driver waits for; every gate opens by it at the latest.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"

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
#define REFLEX_BITS ((1U << DS_SLOTS) - 1)

/* ---- the policy ---- */

/* Copies what launches need from the page, if a change is complete there. */
void ds_policy_refresh(struct ds_board *board)
{
	const struct ds_policy *page = board->policy;
	uint32_t before = __atomic_load_n(&page->epoch, __ATOMIC_ACQUIRE), gate_us;
	struct ds_policy copy;

	if (before == atomic_load_explicit(&board->epoch, memory_order_acquire) || (before & 1))
		return;
	copy.class_ = __atomic_load_n(&page->class_, __ATOMIC_RELAXED);
	copy.linger_us = __atomic_load_n(&page->linger_us, __ATOMIC_RELAXED);
	copy.gate_us = __atomic_load_n(&page->gate_us, __ATOMIC_RELAXED);
	copy.ahead_us = __atomic_load_n(&page->ahead_us, __ATOMIC_RELAXED);
	copy.depth = __atomic_load_n(&page->depth, __ATOMIC_RELAXED);
	copy.floor_permille = __atomic_load_n(&page->floor_permille, __ATOMIC_RELAXED);
	copy.floor_period_us = __atomic_load_n(&page->floor_period_us, __ATOMIC_RELAXED);
	/* acquire fence: the copies above are loaded before the epoch is loaded again */
	atomic_thread_fence(memory_order_acquire);
	if (__atomic_load_n(&page->epoch, __ATOMIC_RELAXED) != before)
		return;
	/* microseconds that do not fit into 32 bits of nanoseconds (4.29 s) become the largest that do */
	gate_us = copy.gate_us && copy.gate_us < UINT32_MAX / 1000 ? copy.gate_us * 1000 : UINT32_MAX;
	atomic_store(&board->gate_ns, gate_us);
	atomic_store(&board->ahead_ns,
		     copy.ahead_us && copy.ahead_us < UINT32_MAX / 1000 ? copy.ahead_us * 1000 : UINT32_MAX);
	atomic_store(&board->linger_ns, copy.linger_us < UINT32_MAX / 1000 ? copy.linger_us * 1000 : UINT32_MAX);
	atomic_store(&board->floor_period_ns,
		     copy.floor_period_us < UINT32_MAX / 1000 ? copy.floor_period_us * 1000 : UINT32_MAX);
	atomic_store(&board->floor_permille, copy.floor_permille < 1000 ? copy.floor_permille : 1000);
	atomic_store(&board->class_, copy.class_);
	atomic_store(&board->depth, copy.depth);
	atomic_store(&board->epoch, before);
	ds_pool_wish(board->device);
}

/* ---- our word ---- */

static bool stands_behind(const struct ds_board *board, const struct ds_slot *slot, uint64_t now)
{
	return __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST) == DS_SLOT_LIVE &&
	       __atomic_load_n(&slot->active, __ATOMIC_SEQ_CST) &&
	       slot->class_ > atomic_load_explicit(&board->class_, memory_order_relaxed) &&
	       __atomic_load_n(&slot->beat, __ATOMIC_RELAXED) + DS_BEAT_STALE_NS > now;
}

/*
 * Makes our word what it should be: a bit for each active live slot of a higher class, none for others (its process died or stopped, or
 * it was lowered), none of them while a floor window is open; HELD only while the daemon's lease lasts. A window that closes has ended when
 * the bits are back: a launch in between would take the idle tier. Any thread may call it.
 */
void ds_upkeep(struct ds_board *board, uint64_t now)
{
	uint32_t closing = DS_FLOOR_CLOSING;
	bool floor = atomic_load_explicit(&board->floor, memory_order_relaxed) == DS_FLOOR_OPEN;
	bool stopping = atomic_load_explicit(&board->stopping, memory_order_relaxed);
	uint32_t word = atomic_load(board->word), want = 0, drop, add;
	uint64_t lease;
	unsigned int n;

	if (!floor && !stopping)
		for (n = 0; n < DS_SLOTS; n++)
			if (n != board->index && stands_behind(board, &board->activity->slots[n], now))
				want |= 1U << n;
	if (word & DS_HELD) {
		lease = __atomic_load_n(&board->policy->lease_ns, __ATOMIC_RELAXED);
		if (!stopping && lease > now)
			want |= DS_HELD;
	}
	add = want & ~word;
	/* bit 31 is only ever taken away here */
	drop = word & ~want;
	/*
	 * Who goes idle clears its bits itself. One that is left over is dropped at the second look, for its owner may be between the two steps
	 * of becoming active or idle at the first; and who came back while it was dropped gets it again.
	 */
	if (!floor && !stopping)
		drop &= atomic_exchange(&board->doubt, drop) | DS_HELD;
	if (drop)
		atomic_fetch_and(board->word, ~drop);
	if (!floor && !stopping)
		for (n = 0; n < DS_SLOTS; n++)
			if ((drop >> n & 1) && stands_behind(board, &board->activity->slots[n], now))
				add |= 1U << n;
	if (add)
		atomic_fetch_or(board->word, add);
	if (!floor)
		atomic_compare_exchange_strong(&board->floor, &closing, 0);
}

/* ---- the floor ---- */

/*
 * Work that was queued to be held waits at gates for a clear word. In mode TIER the word may never be clear again: whoever comes from a hold gets
 * windows until all older work has ended.
 */
static bool leftover(struct ds_board *board, uint32_t word)
{
	return word && !ds_held(board, word) && atomic_load(&board->active) &&
	       __atomic_load_n(&board->counters->epoch_ack, __ATOMIC_RELAXED) !=
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
		__atomic_fetch_add(&board->counters->floor_ns, spent, __ATOMIC_RELAXED);
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

/* ---- sleeping and waking ---- */

static long futex(_Atomic(uint32_t) *word, int what, uint32_t value, const struct timespec *time)
{
	return syscall(SYS_futex, (uint32_t *)word, what | FUTEX_PRIVATE_FLAG, value, time, NULL, 0);
}

/* A launch after idleness, a held thread, a new policy: keeper and ticker are wanted. Cheap when they are awake. */
void ds_wake(struct ds_board *board)
{
	int who;

	for (who = DS_KEEPER; who <= DS_TICKER; who++)
		if (!atomic_load(&board->awake[who]) && !atomic_exchange(&board->awake[who], 1))
			futex(&board->awake[who], FUTEX_WAKE, INT32_MAX, NULL);
}

void ds_linger(struct ds_board *board)
{
	atomic_fetch_add(&board->lingers, 1);
	futex(&board->lingers, FUTEX_WAKE, INT32_MAX, NULL);
}

void ds_sleep(struct ds_board *board, enum ds_sleeper who, uint64_t ns)
{
	struct timespec time = ds_timespec(ns);

	futex(&board->awake[who], FUTEX_WAIT, 0, &time);
	atomic_store(&board->awake[who], 1);
}

/* ---- the thread ---- */

static void own_look(struct ds_board *board, uint64_t now)
{
	uint64_t idle_at = atomic_load_explicit(&board->idle_at_ns, memory_order_relaxed), launches;
	unsigned int n;
	bool holds = false;

	if (now - board->beat_ns >= BEAT_NS) {
		__atomic_store_n(&board->slot->beat, now, __ATOMIC_RELAXED);
		board->beat_ns = now;
	}
	for (n = 0; n < DS_SLOTS && !holds; n++) {
		const struct ds_slot *slot = &board->activity->slots[n];

		holds = n != board->index && __atomic_load_n(&slot->state, __ATOMIC_RELAXED) == DS_SLOT_LIVE &&
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
	struct ds_counters *counters = board->counters;
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

/* A nap that ends when the program has lingered long enough: who is held longer than that is held for nothing. */
static void nap(struct ds_board *board, uint64_t ns)
{
	uint32_t lingers = atomic_load(&board->lingers);
	uint64_t idle_at = atomic_load(&board->idle_at_ns), now = ds_now_ns();
	struct timespec time;

	if (idle_at)
		ns = idle_at <= now ? 1 : idle_at - now < ns ? idle_at - now : ns;
	time = ds_timespec(ns);
	futex(&board->lingers, FUTEX_WAIT, lingers, &time);
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
		atomic_store(&board->awake[DS_KEEPER], 0);
		if (!atomic_load(&board->active)) {
			ds_sleep(board, DS_KEEPER, held ? CALM_NS : IDLE_NS);
			return;
		}
		atomic_store(&board->awake[DS_KEEPER], 1);
	}
	nap(board, held || atomic_load_explicit(&board->holds, memory_order_relaxed) ||
				   atomic_load_explicit(&board->gate_ns, memory_order_relaxed) != UINT32_MAX
			   ? TICK_NS
			   : CALM_NS);
}

/* Gates stay open while the process or the context ends: who set our word at the last moment did not know yet. */
static void see_off(struct ds_board *board)
{
	uint64_t end = ds_now_ns() + SEE_OFF_NS;

	while (ds_now_ns() < end && __atomic_load_n(&board->slot->state, __ATOMIC_ACQUIRE) == DS_SLOT_LEAVING) {
		ds_upkeep(board, ds_now_ns());
		ds_nap(TICK_NS);
	}
}

static void *keeper(void *arg)
{
	struct ds_board *board = arg;
	uint32_t epoch = 1;

	prctl(PR_SET_NAME, "ds-keeper");
	/* the default slack of 50 us is a quarter of a tick */
	prctl(PR_SET_TIMERSLACK, 5000UL);
	board->pass_ns = ds_now_ns();
	while (!atomic_load_explicit(&board->stopping, memory_order_acquire)) {
		uint64_t now = ds_now_ns();

		ds_policy_refresh(board);
		if (atomic_load(&board->epoch) != epoch) {
			epoch = atomic_load(&board->epoch);
			ds_wake(board); /* the ticker acknowledges */
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

bool ds_helper_start(void *(*run)(void *), struct ds_board *board)
{
	int error;

	atomic_fetch_add(&board->helpers, 1);
	error = ds_thread_start(run, board);
	if (!error)
		return true;
	atomic_fetch_sub(&board->helpers, 1);
	errno = error;
	return false;
}

bool ds_keeper_start(struct ds_board *board)
{
	return ds_helper_start(keeper, board);
}
