// SPDX-License-Identifier: Apache-2.0
/*
 * A collective that some ranks of a job have begun and others have not runs for as long as those are stopped. So the daemon lets the ranks that are
 * behind go on to the number of the one that is furthest, and stops all there.
 *
 * Order. A thread takes its number (a full barrier) and then loads collectives_from; the daemon stores that and then loads the counts. So either the
 * thread sees the bound, or the daemon sees the number. collectives - collectives_held is never less than what was let in; who takes a bound that
 * is no less lets in all that it counts. And whoever is counted as let in is active before: a rank that is seen idle after its count was read has
 * ended what it was counted for.
 */
#include <errno.h>
#include <time.h>

#include "fast.h"
#include "meet.h"

#define POLL_NS 30000

/* The bound ends with the daemon's lease, at the program's exit and at its context's end. */
static bool beyond(struct ds_board *board, uint64_t number)
{
	const struct ds_policy *policy = board->pages.policy;
	uint64_t from = __atomic_load_n(&policy->collectives_from, __ATOMIC_SEQ_CST);

	return ds_unlikely(from && number >= from) && __atomic_load_n(&policy->lease_ns, __ATOMIC_RELAXED) > ds_now_ns() &&
	       !atomic_load_explicit(&board->stopping, memory_order_relaxed);
}

void ds_meet(struct ds_board *board)
{
	static const struct timespec nap = { .tv_nsec = POLL_NS };
	struct ds_counters *counters = board->pages.counters;
	uint64_t number = __atomic_add_fetch(&counters->collectives, 1, __ATOMIC_SEQ_CST), began;
	struct ds_tally *tally;
	int error = errno;

	if (!beyond(board, number))
		return;
	tally = ds_tally_of(board);
	/* as in ds_host_slow(): a thread that waits is in no launch */
	atomic_store_explicit(&tally->seq, (atomic_load_explicit(&tally->seq, memory_order_relaxed) | 1) + 1, memory_order_release);
	began = ds_now_ns();
	__atomic_add_fetch(&counters->collectives_held, 1, __ATOMIC_SEQ_CST);
	do
		nanosleep(&nap, NULL);
	while (beyond(board, number));
	__atomic_fetch_add(&counters->held_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
	errno = error;
	ds_fast_active(board);
	__atomic_sub_fetch(&counters->collectives_held, 1, __ATOMIC_SEQ_CST);
}
