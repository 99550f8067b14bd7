// SPDX-License-Identifier: Apache-2.0
/* From idle to active and back. */
#include "edge.h"
#include "tally.h"
#include "wake.h"
#include "word.h"

static bool below(const struct ds_board *board, const struct ds_slot *slot)
{
	return slot != board->pages.slot && __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST) == DS_SLOT_LIVE &&
	       slot->class_ < atomic_load_explicit(&board->class_, memory_order_relaxed);
}

static void bits_set(struct ds_board *board)
{
	uint32_t bit = 1U << board->pages.index;
	bool holds = false;
	unsigned int n;

	for (n = 0; n < DS_SLOTS; n++) {
		struct ds_slot *slot = &board->pages.activity->slots[n];

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
	uint32_t bit = 1U << board->pages.index;
	unsigned int n;

	for (n = 0; n < DS_SLOTS; n++) {
		uint32_t *word = &board->pages.activity->slots[n].word;

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

	__atomic_store_n(&board->pages.slot->beat, now, __ATOMIC_RELAXED);
	__atomic_store_n(&board->pages.slot->active_since, now, __ATOMIC_RELAXED);
	__atomic_store_n(&board->pages.slot->active, 1, __ATOMIC_SEQ_CST);
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
			__atomic_store_n(&board->pages.slot->active, 0, __ATOMIC_SEQ_CST);
			ds_bits_clear(board);
			__atomic_fetch_add(&board->pages.counters->active_ns, ds_now_ns() - board->pages.slot->active_since, __ATOMIC_RELAXED);
			atomic_store_explicit(&board->busy_launches, launches, memory_order_relaxed);
			__atomic_store_n(&board->pages.counters->in_flight, 0, __ATOMIC_RELAXED);
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
