// SPDX-License-Identifier: Apache-2.0
/* Our word and our copy of the policy, kept up to date. */
#include "pool.h"
#include "word.h"

/* ---- the policy ---- */

void ds_policy_refresh(struct ds_board *board)
{
	const struct ds_policy *page = board->pages.policy;
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
	copy.flags = __atomic_load_n(&page->flags, __ATOMIC_RELAXED);
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
	atomic_store(&board->job, copy.flags & DS_FLAG_JOB);
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
 * it was lowered), none of them while a floor window is open or memory is about to leave; HELD only while the daemon's lease lasts. A window
 * that closes has ended when the bits are back: a launch in between would take the idle tier. Any thread may call it.
 */
void ds_upkeep(struct ds_board *board, uint64_t now)
{
	uint32_t closing = DS_FLOOR_CLOSING;
	bool floor = atomic_load_explicit(&board->floor, memory_order_relaxed) == DS_FLOOR_OPEN;
	bool stopping = atomic_load_explicit(&board->stopping, memory_order_relaxed);
	bool open = floor || stopping || atomic_load_explicit(&board->draining, memory_order_relaxed);
	uint32_t word = atomic_load(board->word), want = 0, drop, add;
	uint64_t lease;
	unsigned int n;

	if (!open)
		for (n = 0; n < DS_SLOTS; n++)
			if (n != board->pages.index && stands_behind(board, &board->pages.activity->slots[n], now))
				want |= 1U << n;
	if (word & DS_HELD) {
		lease = __atomic_load_n(&board->pages.policy->lease_ns, __ATOMIC_RELAXED);
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
	if (!open)
		drop &= atomic_exchange(&board->doubt, drop) | DS_HELD;
	if (drop)
		atomic_fetch_and(board->word, ~drop);
	if (!open)
		for (n = 0; n < DS_SLOTS; n++)
			if ((drop >> n & 1) && stands_behind(board, &board->pages.activity->slots[n], now))
				add |= 1U << n;
	if (add)
		atomic_fetch_or(board->word, add);
	if (!floor)
		atomic_compare_exchange_strong(&board->floor, &closing, 0);
}
