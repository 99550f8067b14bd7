// SPDX-License-Identifier: Apache-2.0
/*
 * The poller: one thread per board that asks the driver, in the device's context and with relaxed capture mode: is all work done, has the work
 * of an older policy ended, what did timed launches take. It only ever tries device->lock, so whoever waits for it may hold that lock.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/prctl.h>

#include "context.h"
#include "done.h"
#include "edge.h"
#include "log.h"
#include "pool.h"
#include "source.h"
#include "tally.h"
#include "poller.h"
#include "wake.h"

DS_LIST(ds_sources, struct ds_source);
DS_LIST(ds_chores, struct ds_chore);

#define NS_US 1000ULL
#define NS_MS 1000000ULL
#define TICK_NS (200 * NS_US)
#define CALM_NS (2 * NS_MS)
#define IDLE_NS (1000 * NS_MS)
#define CALL_NS (100 * NS_MS)

/* Work of an older policy: an event behind what each stream had when every thread knew the new one. */
struct ds_ack {
	uint32_t epoch;
	bool marked;
	unsigned int count, room;
	CUevent *events;
};

/* ---- acknowledging a policy ---- */

/* Every launch that began before the policy was visible to all threads is with the driver. False: not yet. */
static bool calls_over(struct ds_board *board)
{
	uint64_t end = ds_now_ns() + CALL_NS;
	struct ds_tally *tally;

	ds_barrier();
	for (tally = atomic_load(&board->tallies); tally; tally = tally->next) {
		uint32_t seq = atomic_load_explicit(&tally->seq, memory_order_acquire);

		while ((seq & 1) && atomic_load_explicit(&tally->seq, memory_order_acquire) == seq) {
			if (ds_now_ns() > end || atomic_load(&board->stopping))
				return false;
			ds_nap(20 * NS_US);
		}
	}
	return true;
}

static void ack_forget(struct ds_ack *ack)
{
	while (ack->count)
		real->cuEventDestroy_v2(ack->events[--ack->count]);
	ack->marked = false;
}

/* Under device->lock. False: try again. */
static bool ack_mark(struct ds_board *board)
{
	struct ds_ack *ack = board->ack;
	struct ds_stream *stream;

	for (stream = board->device->streams; stream; stream = stream->next) {
		CUevent *events;

		if (!ds_has_work(stream))
			continue;
		if (!ds_askable(stream)) {
			/* at home and not to be asked: its thread's next launch moves it; its old work is bounded by that thread's syncs */
			if (stream->flags & DS_STREAM_PER_THREAD)
				continue;
			return false;
		}
		if (ack->count == ack->room) {
			events = realloc(ack->events, (ack->room + 64) * sizeof(*events));
			if (!events)
				return false;
			ack->events = events;
			ack->room += 64;
		}
		if (real->cuEventCreate(&ack->events[ack->count], CU_EVENT_DISABLE_TIMING))
			return false;
		if (real->cuEventRecord(ack->events[ack->count++], stream->cur))
			return false;
	}
	return true;
}

/* In the device's context, under device->lock. */
static void ack_look(struct ds_board *board)
{
	struct ds_ack *ack = board->ack;

	if (!ack->marked) {
		ack->marked = ack_mark(board);
		if (!ack->marked)
			ack_forget(ack);
	}
	while (ack->marked && ack->count) {
		if (real->cuEventQuery(ack->events[ack->count - 1]) == CUDA_ERROR_NOT_READY)
			return;
		real->cuEventDestroy_v2(ack->events[--ack->count]);
	}
	if (ack->marked)
		__atomic_store_n(&board->pages.counters->epoch_ack, ack->epoch, __ATOMIC_RELEASE);
}

static bool ack_wanted(struct ds_board *board)
{
	return __atomic_load_n(&board->pages.counters->epoch_ack, __ATOMIC_RELAXED) != atomic_load(&board->epoch);
}

/* The tiers that launches are sent to now exist: until then they run on all SMs. Asks for them again, should a helper have been refused. */
static bool tiers_there(struct ds_board *board)
{
	uint64_t plan = atomic_load(board->plan);

	if (ds_pool_settled(board->device, ds_plan_tier_idle(plan) & (DS_TIERS - 1)) &&
	    ds_pool_settled(board->device, ds_plan_tier_busy(plan) & (DS_TIERS - 1)))
		return true;
	ds_pool_wish(board->device);
	return false;
}

/* A new epoch begins its own marking; without the device's lock. */
static bool ack_begin(struct ds_board *board)
{
	struct ds_ack *ack = board->ack;
	uint32_t epoch = atomic_load(&board->epoch);

	if ((epoch & 1) || !ack_wanted(board))
		return false;
	if (ack->epoch == epoch && ack->marked)
		return true;
	/* first: a launch that began before they were there counts as one of the older policy */
	if (!tiers_there(board) || !calls_over(board))
		return false;
	if (!atomic_load(&board->active)) {
		__atomic_store_n(&board->pages.counters->epoch_ack, epoch, __ATOMIC_RELEASE);
		return false;
	}
	if (ack->epoch != epoch)
		ack->marked = false; /* its events stay: they are waited for too */
	ack->epoch = epoch;
	return true;
}

/* ---- the thread ---- */

/* The page of words becomes readable by the GPU. Costs some 100 us and waits for nothing. */
static void register_words(struct ds_board *board)
{
	CUresult result;

	if (board->host_word)
		return;
	ds_samples_make(&board->samples);
	result = real->cuMemHostRegister_v2(board->pages.activity, DS_PAGE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (!result)
		result = real->cuMemHostGetDevicePointer_v2(&board->host_word, (void *)(uintptr_t)board->word, 0);
	if (result) {
		ds_info("no gates in streams, held launches wait on the CPU alone: the word cannot be registered: %s",
			ds_error_name(result));
		board->host_word = 1; /* asked once */
		return;
	}
	__atomic_store_n(&board->pages.counters->gate_source, 1, __ATOMIC_RELAXED);
	atomic_store_explicit(&board->gate_word, board->host_word, memory_order_release);
}

static void sources_look(struct ds_board *board, uint64_t now)
{
	const struct ds_source *const *at;

	ds_list_each(at, ds_sources)
		(*at)->look(board, now);
}

static void pass(struct ds_board *board)
{
	struct ds_device *device = board->device;
	bool active = atomic_load(&board->active), inside = true, done = false, acks;
	uint64_t launches = ds_launches(board, &inside), now = ds_now_ns();
	struct ds_own own;

	/* whoever shuts the driver waits until board->driver is free, and then nobody comes here */
	if (atomic_load(&ds_process.asleep))
		return;
	acks = ack_begin(board);
	pthread_mutex_lock(&board->driver);
	if (atomic_load(&board->stopping) || pthread_mutex_trylock(&device->lock)) {
		pthread_mutex_unlock(&board->driver);
		return;
	}
	if (device->primary && atomic_load(&device->generation) == board->generation) {
		ds_thread.locked = true;
		ds_thread.passes = true;
		ds_own_begin(&own, device);
		register_words(board);
		sources_look(board, now);
		if (active)
			done = ds_ask_all(board, now);
		ds_samples_reap(&board->samples);
		if (acks)
			ack_look(board);
		ds_own_end(&own);
		ds_thread.passes = false;
		ds_thread.locked = false;
	}
	pthread_mutex_unlock(&device->lock);
	pthread_mutex_unlock(&board->driver);
	if (active && done && !inside)
		ds_idle_later(board, launches);
}

static bool chores(struct ds_board *board)
{
	const struct ds_chore *const *at;
	bool again = false;

	ds_list_each(at, ds_chores) {
		if (ds_likely(!(*at)->due(board)))
			continue;
		pthread_mutex_lock(&board->driver);
		again |= !atomic_load(&board->stopping) && (*at)->look(board);
		pthread_mutex_unlock(&board->driver);
	}
	return again;
}

/* what pass() has to do beside active work */
static bool passes_due(struct ds_board *board)
{
	return !atomic_load(&ds_process.asleep) && (ack_wanted(board) || !board->host_word);
}

static void *poller(void *arg)
{
	struct ds_board *board = arg;
	bool again;

	prctl(PR_SET_NAME, "ds-poller");
	prctl(PR_SET_TIMERSLACK, 5000UL);
	while (!atomic_load_explicit(&board->stopping, memory_order_acquire)) {
		pass(board);
		again = chores(board);
		if (atomic_load(&board->active)) {
			ds_nap(atomic_load_explicit(&board->holds, memory_order_relaxed) || ack_wanted(board) ||
					       ds_samples_pending(&board->samples)
				       ? TICK_NS
				       : CALM_NS);
			continue;
		}
		if (passes_due(board) || again) {
			ds_nap(CALM_NS);
			continue;
		}
		atomic_store(&board->awake[DS_POLLER], 0);
		if (!atomic_load(&board->active) && !passes_due(board))
			ds_sleep(board, DS_POLLER, IDLE_NS);
		else
			atomic_store(&board->awake[DS_POLLER], 1);
	}
	atomic_fetch_sub(&board->helpers, 1);
	return NULL;
}

bool ds_poller_start(struct ds_board *board)
{
	const struct ds_source *const *at;

	board->ack = calloc(1, sizeof(*board->ack));
	if (!board->ack)
		return false;
	ds_list_each(at, ds_sources)
		(*at)->attached(board);
	return ds_helper_start(poller, board);
}
