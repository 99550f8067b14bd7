/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boards, reflexes, gates: what a launch does with them, inline, and what board.c, attach.c, gate.c, keeper.c, ticker.c, profile.c,
 * shape.c and rck.c share.
 *
 * Threads. The keeper touches shared memory only, never the driver: it can open a gate whatever the driver is waiting for (cuMemFree,
 * cuCtxSynchronize or a context's end beside a held stream). The ticker asks the driver (queries, events, registration). Launching threads
 * take no lock and make no system call unless the device goes from idle to active or the program is held.
 *
 * Order on the launch path. A launching thread stores tally.seq (odd) and then loads `active` and the policy. Who takes `active` away or
 * acknowledges a policy stores first, then makes every thread of the process execute a barrier (ds_barrier()), then looks at the tallies:
 * a thread that loaded the old value is seen as being inside a launch, or as having launched. So the path needs no fence of its own.
 */
#ifndef DS_GATE_H
#define DS_GATE_H

#include "runtime.h"

#define DS_PROFILE_BITS 12
#define DS_SAMPLES 64
#define DS_SAMPLE_NO_EVENTS 3

/* One (function, grid). ewma_ns is 0 until a launch of it was timed; the ticker alone writes it. count may lose some. */
struct ds_profile {
	_Atomic(uint64_t) key;
	_Atomic(uint32_t) ewma_ns;
	_Atomic(uint32_t) count;
};

/* What one thread did on one device. Only its thread writes it (plain stores through relaxed atomics); others read. */
struct ds_tally {
	_Atomic(uint32_t) seq; /* odd: inside a launch */
	_Atomic(uint32_t) ended; /* its thread is gone; counts stay, the next new thread takes it over */
	_Atomic(uint64_t) kernels;
	_Atomic(uint64_t) graphs;
	_Atomic(uint64_t) work_ns;
	struct ds_board *board;
	struct ds_tally *next; /* board->tallies; never taken out */
	struct ds_tally *mine; /* the same thread's other devices */
} __attribute__((aligned(64)));

/* One timed launch. Owner by `state`: 0 free, 1 a launching thread, 2 the ticker. */
struct ds_sample {
	_Atomic(uint32_t) state;
	enum ds_launch_kind kind;
	CUevent before, after;
	struct ds_profile *profile;
	uint64_t launched_ns;
	uint64_t blocks; /* of a kernel */
	uint32_t threads; /* of a block */
};

/* ds_stream.gate */
struct ds_gate_stream {
	_Atomic(uint64_t) since_ns; /* estimated work since the last gate */
	_Atomic(uint32_t) closed; /* the last gate was put in while held, and nobody saw it open since */
	bool shared; /* of several streams, for want of memory */
	_Atomic(struct ds_ahead *) ahead; /* ahead.c; NULL until it was bounded */
};

enum { DS_FLOOR_OPEN = 1, DS_FLOOR_CLOSING = 2 };

/*
 * One GPU of this process and its three pages. Never freed: a launch may be reading it while it is taken down. Its pages go when a later context
 * of the GPU has boards of its own.
 */
struct ds_board {
	/* read by each launch, written seldom */
	_Atomic(uint32_t) *word; /* of our slot */
	const _Atomic(uint64_t) *plan;
	struct ds_profile *profiles;
	_Atomic(uint32_t) active; /* higher classes than those of the slots below know that we have work */
	_Atomic(uint32_t) floor; /* not 0: a floor window is open, or closing: our word is clear though a higher class is active */
	_Atomic(uint32_t) gate_ns; /* UINT32_MAX: no gates */
	_Atomic(uint32_t) stopping; /* gates open for good */
	_Atomic(uint32_t) ahead_ns; /* UINT32_MAX: launches may run ahead as far as they like */

	struct ds_device *device;
	struct ds_activity *activity;
	const struct ds_policy *policy;
	struct ds_counters *counters;
	struct ds_slot *slot;
	unsigned int index; /* of slot */
	uint32_t generation; /* of device, when attached */
	_Atomic(uint32_t) helpers; /* keeper and ticker, while they live */
	struct ds_board *older; /* of the device, left, its pages still mapped */
	_Atomic(struct ds_tally *) tallies;

	/* the keeper's copy of the policy */
	_Atomic(uint32_t) epoch, class_, depth, linger_ns, floor_permille, floor_period_ns;
	_Atomic(uint32_t) holds; /* a tenant of a lower class exists */
	_Atomic(uint32_t) doubt; /* bits of our word that nothing stood behind at the last look */
	_Atomic(uint32_t) admitted; /* launches let in since the word was last seen clear */
	_Atomic(uint32_t) awake[2]; /* futexes of keeper and ticker; 0: it may be asleep */

	/* idle and active edges */
	pthread_mutex_t edge;
	_Atomic(uint64_t) idle_at_ns; /* all work was done; idle at that time if no launch comes. 0: none */
	uint64_t idle_launches;
	_Atomic(uint32_t) lingers; /* counts times that were set in idle_at_ns; the keeper naps on it */
	_Atomic(uint64_t) busy_launches; /* launches when last seen with no work */

	/* keeper */
	uint64_t period, open_ns, window_end_ns, pass_ns, beat_ns;

	/* ticker; driver is held around its use of the driver */
	pthread_mutex_t driver;
	_Atomic(uint64_t) gate_word; /* device address that gates wait on; 0: none yet */
	CUdeviceptr host_word, rck_words;
	bool rck; /* gates shall wait on the resident control kernel's words, where it runs */
	uint32_t rck_generation, rck_failed;
	struct ds_ack *ack;
	struct ds_sample samples[DS_SAMPLES];
	_Atomic(uint64_t) sampled_ns;
	CUevent base;
	CUstream own;
	uint64_t base_ns;
	struct ds_profile others; /* what found no room in profiles */
};


/* attach.c: asks the daemon and maps its pages; *slot is its choice. false: none, and `why` says why */
enum { DS_POLICY_PAGE, DS_COUNTERS_PAGE, DS_ACTIVITY_PAGE, DS_PAGES };
bool ds_pages_ask(struct ds_device *device, void **maps, unsigned int *slot, char *why, size_t room);
/* gate.c */
struct ds_tally *ds_tally_slow(struct ds_board *board);
void ds_idle_later(struct ds_board *board, uint64_t launches); /* all done: idle now, or after the linger time */
void ds_active_slow(struct ds_board *board);
void ds_host_slow(struct ds_board *board, struct ds_tally *tally);
void ds_gate_slow(struct ds_board *board, struct ds_gate_stream *gate, struct ds_launch *launch);
struct ds_gate_stream *ds_gate_stream_new(struct ds_stream *stream);
void ds_barrier(void);
void ds_barrier_register(void); /* once per process, before the first launch on a board */
uint64_t ds_launches(struct ds_board *board, bool *inside);
void ds_idle_edge(struct ds_board *board, uint64_t launches);
void ds_bits_clear(struct ds_board *board);
/* ahead.c: around a launch while board->ahead_ns is a bound. before: after ds_fast_active(), with no stream in use; it may wait */
void ds_ahead_before(struct ds_board *board, struct ds_stream *stream);
void ds_ahead_after(struct ds_board *board, struct ds_launch *launch);
void ds_ahead_gone(struct ds_gate_stream *gate);
/* profile.c */
struct ds_profile *ds_profile_slow(struct ds_board *board, uint64_t key);
unsigned int ds_bucket(double ns); /* of a histogram of the board */
void ds_shape_note(struct ds_counters *counters, const struct ds_sample *sample, double ns); /* shape.c; a kernel ran so long */
void ds_sample_begin(struct ds_board *board, struct ds_profile *profile, struct ds_launch *launch);
void ds_sample_end(struct ds_board *board, struct ds_launch *launch, CUresult result);
void ds_samples_make(struct ds_board *board);
void ds_samples_reap(struct ds_board *board);
bool ds_samples_pending(struct ds_board *board);
/* keeper.c, ticker.c */
bool ds_keeper_start(struct ds_board *board);
void ds_upkeep(struct ds_board *board, uint64_t now);
void ds_policy_refresh(struct ds_board *board);
bool ds_ticker_start(struct ds_board *board);
/* a thread that counts in board->helpers until it ends; false: errno says why */
bool ds_helper_start(void *(*run)(void *), struct ds_board *board);
void ds_wake(struct ds_board *board);
void ds_linger(struct ds_board *board); /* idle_at_ns was set: the keeper naps no longer than that */
enum ds_sleeper { DS_KEEPER, DS_TICKER };
/* a sleep that ds_wake() ends, if `awake` was set to 0 before the last look at what there is to do */
void ds_sleep(struct ds_board *board, enum ds_sleeper who, uint64_t ns);
bool ds_all_done(struct ds_device *device);
bool ds_ask_all(struct ds_board *board, uint64_t now);
/* rck.c: what the environment asks for; and the word that new gates wait on */
bool ds_rck_wanted(void);
void ds_rck_look(struct ds_board *board, uint64_t now);

static inline bool ds_held(struct ds_board *board, uint32_t word)
{
	uint64_t plan = atomic_load_explicit(board->plan, memory_order_relaxed);

	return ds_unlikely(word) && ((word & DS_HELD) || ds_plan_mode_busy(plan) == DS_MODE_HOLD);
}

static inline struct ds_tally *ds_tally_of(struct ds_board *board)
{
	struct ds_tally *tally = ds_thread.tally;

	return ds_likely(tally && tally->board == board) ? tally : ds_tally_slow(board);
}

/* first of a launch; ds_fast_after() is its last */
static inline void ds_fast_active(struct ds_board *board)
{
	struct ds_tally *tally = ds_tally_of(board);

	atomic_store_explicit(&tally->seq, atomic_load_explicit(&tally->seq, memory_order_relaxed) | 1, memory_order_relaxed);
	if (ds_unlikely(ds_process.fences))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (ds_unlikely(!atomic_load_explicit(&board->active, memory_order_relaxed)))
		ds_active_slow(board);
	if (ds_unlikely(ds_held(board, atomic_load_explicit(board->word, memory_order_relaxed))))
		ds_host_slow(board, tally);
}

/* the tier of now: three loads. A word that is read a moment too early is the gate's business. */
static inline unsigned int ds_fast_tier(struct ds_board *board)
{
	uint64_t plan = atomic_load_explicit(board->plan, memory_order_relaxed);
	uint32_t busy = atomic_load_explicit(board->word, memory_order_relaxed) |
			atomic_load_explicit(&board->floor, memory_order_relaxed);
	unsigned int tier = ds_unlikely(busy) ? ds_plan_tier_busy(plan) : ds_plan_tier_idle(plan);

	return tier & (DS_TIERS - 1);
}

static inline uint64_t ds_profile_key(const struct ds_launch *launch)
{
	uint64_t key = (uint64_t)(uintptr_t)launch->function * 0x9e3779b97f4a7c15ULL;

	key ^= (launch->grid[0] | (uint64_t)launch->grid[1] << 32) * 0xc2b2ae3d27d4eb4fULL;
	key = (key ^ key >> 29 ^ launch->grid[2]) * 0xbf58476d1ce4e5b9ULL;
	return (key ^ key >> 32) | 1;
}

static inline void ds_fast_before(struct ds_board *board, struct ds_launch *launch)
{
	uint64_t key = ds_profile_key(launch), since;
	struct ds_profile *profile = &board->profiles[key >> (64 - DS_PROFILE_BITS)];
	struct ds_gate_stream *gate = __atomic_load_n(&launch->stream->gate, __ATOMIC_ACQUIRE);
	struct ds_tally *tally = ds_tally_of(board);
	uint32_t count, estimate, word;

	if (ds_unlikely(atomic_load_explicit(&profile->key, memory_order_acquire) != key))
		profile = ds_profile_slow(board, key);
	if (ds_unlikely(!gate))
		gate = ds_gate_stream_new(launch->stream);
	count = atomic_load_explicit(&profile->count, memory_order_relaxed) + 1;
	atomic_store_explicit(&profile->count, count, memory_order_relaxed);
	estimate = atomic_load_explicit(&profile->ewma_ns, memory_order_relaxed);
	atomic_store_explicit(&tally->work_ns, atomic_load_explicit(&tally->work_ns, memory_order_relaxed) + estimate,
			      memory_order_relaxed);
	launch->gate[0] = 0;
	word = atomic_load_explicit(board->word, memory_order_relaxed);
	since = atomic_load_explicit(&gate->since_ns, memory_order_relaxed);
	if (ds_unlikely(since >= atomic_load_explicit(&board->gate_ns, memory_order_relaxed) || word))
		ds_gate_slow(board, gate, launch);
	/* a gate that was put in counts from here; what was never timed counts as 10 us */
	since = atomic_load_explicit(&gate->since_ns, memory_order_relaxed);
	launch->gate[1] = estimate ? estimate : 10000;
	atomic_store_explicit(&gate->since_ns, since + launch->gate[1], memory_order_relaxed);
	/* 1, 2, 4 .. 128, then one in 256; of what was never timed one in 16 asks, and ds_sample_begin() lets it or not */
	if (ds_unlikely((count & (count < 256 ? count - 1 : 255)) == 0 || (!estimate && !(count & 15))))
		ds_sample_begin(board, profile, launch);
}

static inline void ds_fast_after(struct ds_board *board, struct ds_launch *launch, CUresult result)
{
	struct ds_tally *tally = ds_tally_of(board);
	_Atomic(uint64_t) *count = launch->kind == DS_LAUNCH_GRAPH ? &tally->graphs : &tally->kernels;

	if (ds_unlikely(launch->gate[0]))
		ds_sample_end(board, launch, result);
	if (ds_unlikely(atomic_load_explicit(&board->ahead_ns, memory_order_relaxed) != UINT32_MAX) && !result)
		ds_ahead_after(board, launch);
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
	/* release: who sees it even sees the launch counted */
	atomic_store_explicit(&tally->seq, (atomic_load_explicit(&tally->seq, memory_order_relaxed) | 1) + 1,
			      memory_order_release);
}

#endif
