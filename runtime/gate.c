// SPDX-License-Identifier: Apache-2.0
/* The launch path's slow turns: active and idle edges, the host's wait, putting a gate into a stream. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"

#define MEMBARRIER_REGISTER 16
#define MEMBARRIER_BARRIER 8
#define WAIT_EQ 1
#define WAIT_NOR 3
/* a launching thread that is held looks this often */
#define HOST_POLL_NS 30000
#define LOCK_PATIENCE_NS 20000

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end;

void ds_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!ds_process.fences)
		syscall(SYS_membarrier, MEMBARRIER_BARRIER, 0, 0);
}

static void ended(void *arg)
{
	struct ds_tally *tally = arg, *next;

	ds_thread.tally = NULL;
	for (; tally; tally = next) {
		next = tally->mine;
		tally->mine = NULL;
		/* a thread can be cancelled inside a launch */
		atomic_store_explicit(&tally->seq, (atomic_load_explicit(&tally->seq, memory_order_relaxed) + 1) & ~1U,
				      memory_order_release);
		atomic_store_explicit(&tally->ended, 1, memory_order_release);
	}
}

static void prepare(void)
{
	if (pthread_key_create(&thread_end, ended))
		ds_debug("no thread key: counts of ended threads stay where they are");
}

void ds_barrier_register(void)
{
	/* seccomp may forbid it; a forked child registers again */
	ds_process.fences = syscall(SYS_membarrier, MEMBARRIER_REGISTER, 0, 0) != 0;
}

/* Registering takes the kernel 10 ms and more once the process has threads, and the driver starts some: so it is done before the program begins. */
static __attribute__((constructor)) void register_early(void)
{
	const char *path = getenv("DETSHARE_SOCKET");

	if (path && *path)
		ds_barrier_register();
}

static struct ds_tally spare __attribute__((aligned(64)));

struct ds_tally *ds_tally_slow(struct ds_board *board)
{
	struct ds_tally *first = ds_thread.tally, *tally;
	uint32_t one = 1;

	pthread_once(&once, prepare);
	for (tally = first; tally; tally = tally->mine)
		if (tally->board == board)
			return tally;
	for (tally = atomic_load(&board->tallies); tally; tally = tally->next) {
		one = 1;
		if (atomic_load(&tally->ended) && atomic_compare_exchange_strong(&tally->ended, &one, 0))
			break;
	}
	if (!tally) {
		tally = aligned_alloc(64, sizeof(*tally));
		if (!tally)
			return &spare; /* shared by whoever has no memory: counts get vague, nothing breaks */
		*tally = (struct ds_tally){ .board = board };
		tally->next = atomic_load(&board->tallies);
		while (!atomic_compare_exchange_weak(&board->tallies, &tally->next, tally))
			;
	}
	tally->mine = first;
	ds_thread.tally = tally;
	pthread_setspecific(thread_end, tally);
	return tally;
}

/* All launches so far; *inside: some thread is in one, which may not be counted yet. */
uint64_t ds_launches(struct ds_board *board, bool *inside)
{
	struct ds_tally *tally;
	uint64_t sum = 0;

	*inside = false;
	for (tally = atomic_load_explicit(&board->tallies, memory_order_acquire); tally; tally = tally->next) {
		if (atomic_load_explicit(&tally->seq, memory_order_acquire) & 1)
			*inside = true;
		sum += atomic_load_explicit(&tally->kernels, memory_order_relaxed) +
		       atomic_load_explicit(&tally->graphs, memory_order_relaxed);
	}
	return sum;
}

static bool below(const struct ds_board *board, const struct ds_slot *slot)
{
	return slot != board->slot && __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST) == DS_SLOT_LIVE &&
	       slot->class_ < atomic_load_explicit(&board->class_, memory_order_relaxed);
}

static void bits_set(struct ds_board *board)
{
	uint32_t bit = 1U << board->index;
	bool holds = false;
	unsigned int n;

	for (n = 0; n < DS_SLOTS; n++) {
		struct ds_slot *slot = &board->activity->slots[n];

		if (!below(board, slot))
			continue;
		holds = true;
		if (!(__atomic_load_n(&slot->word, __ATOMIC_RELAXED) & bit))
			__atomic_fetch_or(&slot->word, bit, __ATOMIC_SEQ_CST);
	}
	atomic_store_explicit(&board->holds, holds, memory_order_relaxed);
}

void ds_bits_clear(struct ds_board *board)
{
	uint32_t bit = 1U << board->index;
	unsigned int n;

	for (n = 0; n < DS_SLOTS; n++) {
		uint32_t *word = &board->activity->slots[n].word;

		if (__atomic_load_n(word, __ATOMIC_RELAXED) & bit)
			__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
	}
}

/*
 * The first launch after idleness. `active` of the slot is published before the words are set, and a new tenant publishes its slot before it
 * looks for active ones (ds_upkeep()): one of the two sees the other.
 */
static void activate(struct ds_board *board)
{
	uint64_t now = ds_now_ns();

	__atomic_store_n(&board->slot->beat, now, __ATOMIC_RELAXED);
	__atomic_store_n(&board->slot->active_since, now, __ATOMIC_RELAXED);
	__atomic_store_n(&board->slot->active, 1, __ATOMIC_SEQ_CST);
	bits_set(board);
	atomic_store_explicit(&board->idle_at_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&board->active, 1, memory_order_seq_cst);
}

void ds_active_slow(struct ds_board *board)
{
	if (atomic_load_explicit(&board->stopping, memory_order_relaxed))
		return;
	ds_policy_refresh(board);
	pthread_mutex_lock(&board->edge);
	if (!atomic_load_explicit(&board->active, memory_order_relaxed))
		activate(board);
	pthread_mutex_unlock(&board->edge);
	/* bits that were set or left over while nobody looked after our word */
	ds_upkeep(board, ds_now_ns());
	ds_wake(board);
}

/* Everything that was launched up to the `launches`th is done: stop holding lower classes, unless a launch came since. */
void ds_idle_edge(struct ds_board *board, uint64_t launches)
{
	bool inside;

	pthread_mutex_lock(&board->edge);
	if (atomic_load_explicit(&board->active, memory_order_relaxed)) {
		atomic_store_explicit(&board->active, 0, memory_order_seq_cst);
		ds_barrier();
		/* whoever loaded `active` before the barrier is seen here; whoever loads it later takes the slow turn and waits for edge */
		if (ds_launches(board, &inside) != launches || inside) {
			atomic_store_explicit(&board->active, 1, memory_order_seq_cst);
		} else {
			__atomic_store_n(&board->slot->active, 0, __ATOMIC_SEQ_CST);
			ds_bits_clear(board);
			__atomic_fetch_add(&board->counters->active_ns, ds_now_ns() - board->slot->active_since, __ATOMIC_RELAXED);
			atomic_store_explicit(&board->busy_launches, launches, memory_order_relaxed);
			__atomic_store_n(&board->counters->in_flight, 0, __ATOMIC_RELAXED);
		}
		atomic_store_explicit(&board->idle_at_ns, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&board->edge);
}

void ds_idle_later(struct ds_board *board, uint64_t launches)
{
	uint64_t linger = atomic_load_explicit(&board->linger_ns, memory_order_relaxed);
	bool begun = false;

	if (!linger || !atomic_load_explicit(&board->holds, memory_order_relaxed)) {
		ds_idle_edge(board, launches);
		return;
	}
	pthread_mutex_lock(&board->edge);
	/* the same idleness seen again does not begin a new linger time */
	if (!atomic_load(&board->idle_at_ns) || board->idle_launches != launches) {
		board->idle_launches = launches;
		atomic_store(&board->idle_at_ns, ds_now_ns() + linger);
		begun = true;
	}
	pthread_mutex_unlock(&board->edge);
	if (begun)
		ds_linger(board);
}

static bool holding(struct ds_board *board)
{
	uint32_t word = atomic_load_explicit(board->word, memory_order_relaxed);

	return ds_held(board, word) && !atomic_load_explicit(&board->stopping, memory_order_relaxed);
}

/*
 * Held: the first `depth` launches go in and stop at their gate, the others wait here. Any signal's handler runs and any fatal one ends the
 * wait. The word cannot stay set for ever: the keeper looks after it.
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
	__atomic_fetch_add(&board->counters->held_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
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
	__atomic_fetch_add(&board->counters->gates, 1, __ATOMIC_RELAXED);
	atomic_store_explicit(&gate->since_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&gate->closed, held, memory_order_relaxed);
}

/* ---- what runtime.h promises ---- */

unsigned int ds_board_tier(struct ds_device *device)
{
	return device->board ? ds_fast_tier(device->board) : 0;
}

bool ds_board_stands(struct ds_device *device, unsigned int tier)
{
	struct ds_board *board = device->board;

	return board && (ds_plan_tier_idle(atomic_load_explicit(board->plan, memory_order_relaxed)) & (DS_TIERS - 1)) == tier;
}

void ds_active_begin(struct ds_device *device)
{
	if (device->board)
		ds_fast_active(device->board);
}

void ds_active_soon(struct ds_stream *stream)
{
	struct ds_board *board = stream->device->board;

	if (board && ds_unlikely(!atomic_load_explicit(&board->active, memory_order_relaxed)) && !ds_thread.locked &&
	    !atomic_load_explicit(&stream->capturing, memory_order_relaxed))
		ds_active_slow(board);
}

void ds_gate_host(struct ds_launch *launch)
{
	(void)launch; /* ds_active_begin() did it */
}

void ds_gate_before(struct ds_launch *launch)
{
	if (launch->stream->device->board)
		ds_fast_before(launch->stream->device->board, launch);
}

void ds_gate_after(struct ds_launch *launch, CUresult result)
{
	if (launch->stream->device->board)
		ds_fast_after(launch->stream->device->board, launch, result);
}

void ds_gate_stream_gone(struct ds_stream *stream)
{
	struct ds_gate_stream *gate = __atomic_load_n(&stream->gate, __ATOMIC_ACQUIRE);

	/* kept for the next stream that uses this memory: a launch may still hold the pointer */
	if (gate) {
		atomic_store_explicit(&gate->since_ns, 0, memory_order_relaxed);
		atomic_store_explicit(&gate->closed, 0, memory_order_relaxed);
		ds_ahead_gone(gate);
	}
}

/* The ticker has the lock for some microseconds at a time; a move may have it for longer, and is not worth waiting for. */
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
		return; /* the ticker will see it */
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
