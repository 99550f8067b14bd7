/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this folder share: the board of a GPU, which is its pages and what launches and helper threads know of them.
 *
 * Threads. The watchdog touches shared memory only, never the driver: it can open a gate whatever the driver is waiting for (cuMemFree,
 * cuCtxSynchronize or a context's end beside a held stream). The poller asks the driver (queries, events, registration). Launching threads
 * take no lock and make no system call unless the device goes from idle to active or the program is held.
 *
 * Order on the launch path. A launching thread stores tally.seq (odd) and then loads `active` and the policy. Who takes `active` away or
 * acknowledges a policy stores first, then makes every thread of the process execute a barrier (ds_barrier()), then looks at the tallies:
 * a thread that loaded the old value is seen as being inside a launch, or as having launched. So the path needs no fence of its own.
 */
#ifndef DS_STATE_H
#define DS_STATE_H

#include <pthread.h>

#include "profile.h"
#include "stream.h"

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
	_Atomic(uint32_t) job; /* its collectives are counted */

	struct ds_device *device;
	struct ds_pages pages;
	uint32_t generation; /* of device, when attached */
	_Atomic(uint32_t) helpers; /* watchdog and poller, while they live */
	struct ds_board *older; /* of the device, left, its pages still mapped */
	_Atomic(struct ds_tally *) tallies;

	/* the watchdog's copy of the policy */
	_Atomic(uint32_t) epoch, class_, depth, linger_ns, floor_permille, floor_period_ns;
	_Atomic(uint32_t) holds; /* a tenant of a lower class exists */
	_Atomic(uint32_t) draining; /* its memory is about to leave: gates open for what is queued, unless it is held by hand */
	_Atomic(uint32_t) doubt; /* bits of our word that nothing stood behind at the last look */
	_Atomic(uint32_t) admitted; /* launches let in since the word was last seen clear */
	_Atomic(uint32_t) awake[2]; /* futexes of watchdog and poller; 0: it may be asleep */

	/* idle and active edges */
	pthread_mutex_t edge;
	_Atomic(uint64_t) idle_at_ns; /* all work was done; idle at that time if no launch comes. 0: none */
	uint64_t idle_launches;
	_Atomic(uint32_t) lingers; /* counts times that were set in idle_at_ns; the watchdog naps on it */
	_Atomic(uint64_t) busy_launches; /* launches when last seen with no work */

	/* watchdog */
	uint64_t period, open_ns, window_end_ns, pass_ns, beat_ns;

	/* poller; driver is held around its use of the driver */
	pthread_mutex_t driver;
	_Atomic(uint64_t) gate_word; /* device address that gates wait on; 0: none yet */
	CUdeviceptr host_word; /* that of our slot's word; 0: not asked for yet, 1: it cannot be had */
	struct ds_ack *ack;
	struct ds_samples samples;
};

static inline bool ds_held(struct ds_board *board, uint32_t word)
{
	uint64_t plan = atomic_load_explicit(board->plan, memory_order_relaxed);

	return ds_unlikely(word) && ((word & DS_HELD) || ds_plan_mode_busy(plan) == DS_MODE_HOLD);
}

#endif
