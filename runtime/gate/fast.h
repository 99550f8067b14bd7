/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch does with the board, inline: no lock, no system call and no fence, unless there is something to do. */
#ifndef DS_FAST_H
#define DS_FAST_H

#include "ahead.h"
#include "edge.h"
#include "gate.h"
#include "tally.h"

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

static inline void ds_fast_before(struct ds_board *board, struct ds_launch *launch)
{
	uint64_t key = ds_profile_key(launch), since;
	struct ds_profile *profile = &board->profiles[key >> (64 - DS_PROFILE_BITS)];
	struct ds_gate_stream *gate = __atomic_load_n(&launch->stream->gate, __ATOMIC_ACQUIRE);
	struct ds_tally *tally = ds_tally_of(board);
	uint32_t count, estimate, word;

	if (ds_unlikely(atomic_load_explicit(&profile->key, memory_order_acquire) != key))
		profile = ds_profile_slow(board->profiles, key);
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
		ds_sample_begin(&board->samples, profile, launch);
}

static inline void ds_fast_after(struct ds_board *board, struct ds_launch *launch, CUresult result)
{
	struct ds_tally *tally = ds_tally_of(board);
	_Atomic(uint64_t) *count = launch->kind == DS_LAUNCH_GRAPH ? &tally->graphs : &tally->kernels;

	if (ds_unlikely(launch->gate[0]))
		ds_sample_end(&board->samples, launch, result);
	if (ds_unlikely(atomic_load_explicit(&board->ahead_ns, memory_order_relaxed) != UINT32_MAX) && !result)
		ds_ahead_after(board, launch);
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
	/* release: who sees it even sees the launch counted */
	atomic_store_explicit(&tally->seq, (atomic_load_explicit(&tally->seq, memory_order_relaxed) | 1) + 1,
			      memory_order_release);
}

#endif
