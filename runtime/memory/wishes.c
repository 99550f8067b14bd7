/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon asks for, on the poller: parks and ways back, host memory. And lent memory comes home. */
#include "arena.h"
#include "context.h"
#include "home.h"
#include "park.h"
#include "settle.h"
#include "source.h"

#define RETRY_NS 50000000ULL /* a GPU that is full may be so for long, and each try stops the program */

#define MORE_NS 20000000ULL /* between two questions for host memory, of who leaves in parts */
#define FIRST_NS 5000000ULL /* the work that wanted the memory goes first */

static uint64_t step_at_ns; /* the next step is no earlier; 0: nothing is lent. Under the lock */

static uint64_t more_at_ns; /* the next such question is no earlier. Under the lock */

static bool parks(const struct ds_board *board)
{
	return __atomic_load_n(&board->pages.policy->park, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&board->pages.counters->park_ack, __ATOMIC_RELAXED);
}

static bool returns(const struct ds_board *board)
{
	return __atomic_load_n(&board->pages.policy->returns, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&board->pages.counters->returned, __ATOMIC_RELAXED);
}

/* a program that is away may have left in parts */
static bool leaves(const struct ds_board *board)
{
	return atomic_load(&ds_home.now) == DS_HOME_AWAY &&
	       __atomic_load_n(&board->pages.policy->flags, __ATOMIC_RELAXED) & DS_FLAG_LEAVES &&
	       !__atomic_load_n(&board->pages.policy->deep, __ATOMIC_RELAXED);
}

static bool due(const struct ds_board *board)
{
	return parks(board) || returns(board) || atomic_load(&ds_home.now) == DS_HOME_LENT || leaves(board);
}

static bool all_idle(void)
{
	struct ds_device *device;

	ds_each_managed(device)
		if (!ds_settle_idle(device))
			return false;
	return true;
}

/*
 * Somebody else needs the host memory: where the program's memory is on the GPU, it holds nothing but copies that are kept. false: it has work, for
 * which the driver might wait as it unpins; later.
 */
static bool return_arena(struct ds_board *board, struct ds_stay *gone)
{
	struct ds_own own;

	if (atomic_load(&ds_home.now) == DS_HOME_LENT)
		return false;
	if (atomic_load(&ds_home.now) == DS_HOME) {
		if (!all_idle())
			return false;
		ds_own_begin(&own, board->device);
		ds_arena_return(board->device, gone);
		ds_own_end(&own);
	}
	return true;
}

/* Without the lock. Who is away has nothing to give, and is not brought back for it by a call of the driver. */
static void returned(struct ds_board *board, struct ds_stay *gone, uint32_t wanted)
{
	struct ds_own own;

	if (gone->count) {
		ds_own_begin(&own, board->device);
		ds_arena_returned(gone);
		ds_own_end(&own);
	}
	__atomic_store_n(&board->pages.counters->returned, wanted, __ATOMIC_RELEASE);
}

static bool look(struct ds_board *board)
{
	uint32_t wanted = __atomic_load_n(&board->pages.policy->park, __ATOMIC_ACQUIRE), reason = DS_PARK_OK;
	struct ds_counters *counters = board->pages.counters;
	uint32_t returning = __atomic_load_n(&board->pages.policy->returns, __ATOMIC_RELAXED);
	bool asked = parks(board), again = false, later = false, gives = returns(board);
	struct ds_stay gone = { 0 };

	ds_thread.locked = true;
	ds_park_lock();
	gives = gives && return_arena(board, &gone);
	later = !gives && returns(board);
	if (asked && wanted & DS_PARK_WANTED)
		reason = atomic_load(&ds_home.now) == DS_HOME_AWAY ? DS_PARK_OK : ds_park_leave();
	else if (asked && atomic_load(&ds_home.now) == DS_HOME_AWAY)
		again = !ds_park_come();
	else if (atomic_load(&ds_home.now) == DS_HOME_LENT && !step_at_ns)
		step_at_ns = ds_now_ns() + FIRST_NS;
	else if (atomic_load(&ds_home.now) == DS_HOME_LENT && ds_now_ns() >= step_at_ns)
		step_at_ns = (ds_park_step() ? 0 : RETRY_NS) + ds_now_ns();
	if (leaves(board) && ds_park_rests()) {
		if (ds_now_ns() >= more_at_ns) {
			ds_park_more();
			more_at_ns = ds_now_ns() + MORE_NS;
		}
		later = true;
	}
	if (atomic_load(&ds_home.now) == DS_HOME_LENT)
		later = true;
	else
		step_at_ns = 0;
	ds_park_unlock();
	if (gives)
		returned(board, &gone, returning);
	ds_thread.locked = false;
	if (asked && !again) {
		__atomic_store_n(&counters->park_reason, reason, __ATOMIC_RELAXED);
		__atomic_store_n(&counters->park_ack, wanted, __ATOMIC_RELEASE);
	}
	return again || later;
}

static const struct ds_chore chore = { .due = due, .look = look };
DS_LIST_ADD(ds_chores, chore);
