/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's memory leaves its GPUs and comes back, as a whole: it is either wholly there or wholly away. Leaving, nothing is given back
 * before all of it is copied; coming, nothing is used before all of it is copied. What fails is taken back.
 *
 * In parts (DS_FLAG_LEAVES, DS_FLAG_COMES) that holds for each batch of pieces; the program stands still, DS_HOME_AWAY, until all are home.
 *
 * One lock is held all the while, around ds_park_leave() and ds_park_come(). Threads of the program that need the memory wait for it in fetch(), and the first
 * of them brings it home; no device->lock is held around copies. Who is held by hand waits there too: a paused program stays away.
 */
#include <string.h>

#include "alloc.h"
#include "arrive.h"
#include "besides.h"
#include "context.h"
#include "copies.h"
#include "hasher.h"
#include "home.h"
#include "leave.h"
#include "lend.h"
#include "lifecycle.h"
#include "log.h"
#include "park.h"
#include "room.h"
#include "settle.h"
#include "source.h"
#include "virtual.h"

#define LEAST_NAP_NS 1000000ULL /* between two tries to come back where the GPU has no room */
#define MOST_NAP_NS 50000000ULL
/* Of lent memory an eighth comes home at a time, at most 10 ms of copies; then the program has a tick of its poller (2 ms) at least. */
#define STEPS 8
#define STEP_MOST (512UL << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ran; /* the program ran over what is lent: copies there may have changed since their digests */
static uint64_t step_bytes, began_ns; /* of lent memory, how much at a time; the way back that goes on */
/* The last step home found work that does not end; the last way back ended at an error that is of a context beyond repair. */
static bool busy, broken;

static void show_state(uint32_t state)
{
	struct ds_counters *counters;
	struct ds_device *device;

	ds_each_counted(device, counters) __atomic_store_n(&counters->park_state, state, __ATOMIC_RELAXED);
}

/* ---- away ---- */

static bool sole_contexts(void)
{
	return !ds_besides_any() && !ds_alloc_foreign();
}

/* began 0: it is more of a park that was counted */
static void give_back(uint64_t began)
{
	struct ds_counters *counters;
	struct ds_device *device;
	struct ds_own own;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next) {
		/* what the driver does not unmap stays, and is as it was */
		if (!piece->leaves || !piece->counted || !piece->handle || real->cuMemUnmap(piece->address, piece->size) != CUDA_SUCCESS)
			continue;
		real->cuMemRelease(piece->handle);
		piece->handle = 0;
		if (piece->window) {
			ds_own_begin(&own, piece->device);
			ds_lend(piece);
			ds_own_end(&own);
		}
	}
	ds_each_counted(device, counters) {
		__atomic_store_n(&counters->parked_bytes, ds_piece_away(device), __ATOMIC_RELAXED);
		if (!began)
			continue;
		__atomic_fetch_add(&counters->parks, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&counters->park_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
	}
}

/* No park goes on: the program has its memory, on the GPU or lent. What the driver mapped at neither place is away, and with it the program. */
static void rest(void)
{
	bool lent = ds_lend_any(NULL), whole = ds_lend_all(NULL);

	ran = lent;
	atomic_store(&ds_process.lent, lent);
	atomic_store(&ds_home.now, !whole ? DS_HOME_AWAY : lent ? DS_HOME_LENT : DS_HOME);
	show_state(!whole ? DS_PARK_AWAY : lent ? DS_PARK_LENT : DS_PARK_HOME);
}

uint32_t ds_park_leave(void)
{
	uint32_t reason;
	uint64_t began;
	bool some;

	if (!atomic_load(&ds_home.parks))
		return DS_PARK_OFF;
	if (!sole_contexts())
		return DS_PARK_CONTEXT;
	reason = ds_leave_room();
	some = reason == DS_PARK_ARENA && ds_leave_rest();
	if (reason != DS_PARK_OK && !some)
		return reason;
	began = ds_now_ns();
	ds_settle_stop();
	show_state(DS_PARK_LEAVING);
	reason = ds_settle();
	/* made by a thread that was inside until now */
	if (reason == DS_PARK_OK && !sole_contexts())
		reason = DS_PARK_CONTEXT;
	if (reason == DS_PARK_OK)
		reason = some ? ds_leave_some() : ds_leave_copy();
	/* it allocated while there was room made for it; now nobody does */
	if (reason == DS_PARK_ARENA && !some && ds_leave_room() == DS_PARK_OK)
		reason = ds_leave_copy();
	if (reason != DS_PARK_OK) {
		rest();
		return reason;
	}
	give_back(began);
	ran = ran && ds_lend_any(NULL);
	atomic_store(&ds_process.lent, ds_lend_any(NULL)); /* the launch that wakes it is the first that names */
	atomic_store(&ds_home.now, DS_HOME_AWAY);
	show_state(DS_PARK_AWAY);
	return DS_PARK_OK;
}

bool ds_park_rests(void)
{
	return atomic_load(&ds_home.now) == DS_HOME_AWAY && ds_leave_rest();
}

void ds_park_more(void)
{
	bool locked = ds_thread.locked;

	ds_thread.locked = true;
	if (ds_leave_some() == DS_PARK_OK)
		give_back(0);
	ds_thread.locked = locked;
}

/* ---- and back ---- */

/* Gives back what was made for a way home that failed. */
static void unmake(void)
{
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next) {
		if (!piece->fresh)
			continue;
		if (piece->fresh == DS_FRESH_MAPPED)
			real->cuMemUnmap(piece->address, piece->size);
		real->cuMemRelease(piece->handle);
		piece->handle = 0;
		piece->fresh = DS_FRESH_NOT;
	}
}

/* Memory for all that is away, mapped where it was. */
static CUresult make(void)
{
	CUresult result = CUDA_SUCCESS;

	for (struct ds_piece *piece = ds_pieces; piece && result == CUDA_SUCCESS; piece = piece->next) {
		if (!ds_arrive_lacks(piece))
			continue;
		result = real->cuMemCreate(&piece->handle, piece->size, &piece->prop, 0);
		if (result == CUDA_SUCCESS)
			piece->fresh = DS_FRESH_MADE;
		else
			piece->handle = 0;
	}
	for (struct ds_piece *piece = ds_pieces; piece && result == CUDA_SUCCESS; piece = piece->next) {
		struct ds_own own;

		if (piece->fresh != DS_FRESH_MADE)
			continue;
		ds_own_begin(&own, piece->device);
		result = ds_piece_map(piece);
		ds_own_end(&own);
		if (result == CUDA_SUCCESS)
			piece->fresh = DS_FRESH_MAPPED;
	}
	if (result != CUDA_SUCCESS)
		unmake();
	return result;
}

static void show_back(void)
{
	struct ds_counters *counters;
	struct ds_device *device;

	ds_each_counted(device, counters) {
		__atomic_store_n(&counters->parked_bytes, ds_piece_away(device), __ATOMIC_RELAXED);
		__atomic_store_n(&counters->resume_ns, ds_now_ns() - began_ns, __ATOMIC_RELAXED);
	}
}

/* Lent memory of all GPUs comes home, so many bytes of each. Nobody is inside. */
static CUresult home(uint64_t most)
{
	CUresult result = CUDA_SUCCESS;
	struct ds_device *device;

	ds_each_managed(device) {
		struct ds_stay *stay = ds_arena_of(device);
		struct ds_own own;

		if (!stay || result != CUDA_SUCCESS || !ds_lend_any(device))
			continue;
		ds_own_begin(&own, device);
		result = ds_lend_home(device, stay, most, ran ? ds_copies_learn : NULL);
		ds_own_end(&own);
	}
	show_back();
	return result;
}

/* What the GPU has room for comes home, where that is asked for. */
static void come_some(void)
{
	struct ds_device *device;
	struct ds_own own;

	ds_each_managed(device) {
		struct ds_stay *stay = ds_arena_of(device);

		if (!stay)
			continue;
		ds_own_begin(&own, device);
		while (ds_arrive(device, stay))
			show_back();
		ds_own_end(&own);
	}
}

static uint64_t parked_bytes(void)
{
	struct ds_device *device;
	uint64_t sum = 0;

	ds_each_managed(device) sum += ds_piece_away(device);
	return sum;
}

static bool all_lazy(void)
{
	struct ds_device *device;

	ds_each_managed(device)
		if (ds_lend_any(device) && (!ds_leave_lazy(device) || !ds_lend_all(device)))
			return false;
	return true;
}

bool ds_park_come(void)
{
	struct ds_device *device;
	bool locked = ds_thread.locked;
	CUresult result;

	began_ns = ds_now_ns();
	ds_thread.locked = true;
	show_state(DS_PARK_COMING);
	result = ds_arrive_ready();
	result = result ? result : ds_arrive_room();
	result = result ? result : make();
	if (result == CUDA_SUCCESS && !all_lazy()) {
		result = home(UINT64_MAX);
		if (result != CUDA_SUCCESS)
			unmake();
	}
	if (result != CUDA_SUCCESS) {
		broken = result != CUDA_ERROR_OUT_OF_MEMORY && ds_settle_lost();
		come_some();
		ds_thread.locked = locked;
		show_state(DS_PARK_WAITING);
		return false;
	}
	ds_each_managed(device) {
		struct ds_stay *stay = ds_arena_of(device);
		struct ds_own own;

		if (!stay)
			continue;
		ds_own_begin(&own, device);
		result = ds_copies_home(device, stay);
		ds_own_end(&own);
		if (result != CUDA_SUCCESS)
			ds_info("park: the copy back to GPU %d failed with %s: its context is beyond repair", device->ordinal,
				ds_error_name(result));
	}
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		piece->fresh = DS_FRESH_NOT;
	show_back();
	step_bytes = parked_bytes() / STEPS < STEP_MOST ? parked_bytes() / STEPS : STEP_MOST;
	rest();
	ds_thread.locked = locked;
	return true;
}

/* ---- lent ---- */

/* Some lent memory comes home at a kernel boundary. false: not now. */
static bool step(uint64_t most)
{
	bool locked = ds_thread.locked, done;
	uint32_t reason;

	ds_thread.locked = true;
	ds_settle_stop();
	reason = ds_settle();
	done = reason == DS_PARK_OK && ds_arrive_ready() == CUDA_SUCCESS && home(most) == CUDA_SUCCESS;
	broken = reason == DS_PARK_DRIVER;
	busy = reason == DS_PARK_BUSY;
	rest();
	ds_thread.locked = locked;
	return done;
}

bool ds_park_step(void)
{
	return step(step_bytes);
}

static bool held_away(void)
{
	struct ds_device *device;

	ds_each_managed(device) {
		struct ds_board *board = ds_board_of(device);

		if (board && ((atomic_load(board->word) & DS_HELD) || ds_room_stays(device)) && !atomic_load(&board->stopping))
			return true;
	}
	return false;
}

/* A call of the program needs its memory. */
static void fetch(struct ds_stream *stream)
{
	uint64_t nap = LEAST_NAP_NS;
	struct ds_counters *counters;
	struct ds_device *device;
	bool told = false;

	pthread_mutex_lock(&lock);
	/* who names memory beside streams has all of it on the GPU */
	while (atomic_load(&ds_home.now) == DS_HOME_AWAY || (!stream && atomic_load(&ds_home.now) == DS_HOME_LENT)) {
		bool held = held_away();

		broken = false;
		if (atomic_load(&ds_home.now) == DS_HOME_LENT) {
			if (step(UINT64_MAX))
				continue;
			if (busy && ds_thread.makes)
				break;
		} else if (!held && ds_park_come()) {
			ds_each_counted(device, counters) __atomic_fetch_add(&counters->wakes, 1, __ATOMIC_RELAXED);
			continue;
		}
		if (broken) { /* nothing of it is to be had any more: the call hears why */
			atomic_store(&ds_home.now, DS_HOME);
			break;
		}
		pthread_mutex_unlock(&lock);
		if (!held && !told)
			ds_info("this program is parked and wants to go on: its call waits until the GPU has room for its memory");
		told = told || !held;
		ds_nap(nap);
		nap = nap * 2 < MOST_NAP_NS ? nap * 2 : MOST_NAP_NS;
		pthread_mutex_lock(&lock);
	}
	/* its work may reach what other GPUs have, and without a stream whatever there is */
	ds_each_managed(device) {
		struct ds_stay *stay = ds_arena_of(device);
		struct ds_own own;

		if (!stay)
			continue;
		ds_own_begin(&own, device);
		real->cuEventSynchronize(stay->home);
		ds_own_end(&own);
	}
	if (stream)
		atomic_fetch_and(&stream->word, ~DS_WORD_PARKED);
	pthread_mutex_unlock(&lock);
}

void ds_park_lock(void)
{
	pthread_mutex_lock(&lock);
}

void ds_park_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

bool ds_park_exits_now(void)
{
	if (atomic_load(&ds_home.now) == DS_HOME)
		return false;
	ds_park_lock();
	if (atomic_load(&ds_home.now) != DS_HOME)
		return true;
	ds_park_unlock();
	return false;
}

bool ds_park_shuts(void (*wait)(void))
{
	bool away;

	if (pthread_mutex_trylock(&lock))
		return false;
	away = atomic_load(&ds_home.now) == DS_HOME_AWAY;
	if (away)
		ds_driver_sleeps(wait);
	pthread_mutex_unlock(&lock);
	return away;
}

/* The lock keeps what is found: who frees waits until all is home. */
static void name(CUfunction function, void **params, void **extra)
{
	if (ds_thread.locked)
		return;
	pthread_mutex_lock(&lock);
	if (atomic_load(&ds_home.now) != DS_HOME)
		ds_lend_name(function, params, extra);
	pthread_mutex_unlock(&lock);
}

static const struct ds_keeper keeper = { .fetch = fetch, .name = name };
DS_LIST_ADD(ds_keepers, keeper);

/* ---- ends ---- */

static void lock_soon(void)
{
	atomic_fetch_add(&ds_arena_hurry, 1);
	pthread_mutex_lock(&lock);
	atomic_fetch_sub(&ds_arena_hurry, 1);
}

static void context_ends(struct ds_device *device)
{
	struct ds_own own;

	lock_soon();
	/* what is not home by then ends with the context */
	if (atomic_load(&ds_home.now) == DS_HOME_LENT)
		step(UINT64_MAX);
	ds_own_begin(&own, device);
	ds_hasher_ends(device);
	pthread_mutex_unlock(&lock);
	ds_arena_ends(device);
	ds_own_end(&own);
}

static void context_over(struct ds_device *device)
{
	bool away;

	lock_soon();
	ds_alloc_no_peers(device);
	ds_alloc_over(device->past);
	ds_piece_lock();
	away = ds_piece_away(device) != 0;
	ds_piece_unlock();
	ds_arena_over(device, away);
	away = false;
	ds_piece_lock();
	for (struct ds_piece *piece = ds_pieces; piece && !away; piece = piece->next)
		away = !piece->handle;
	ds_piece_unlock();
	if (!away) {
		atomic_store(&ds_process.lent, false);
		atomic_store(&ds_home.now, DS_HOME);
	}
	pthread_mutex_unlock(&lock);
}

static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	ds_arena_reset();
	ds_hasher_reset();
}

static const struct ds_lifecycle life = { .context_ends = context_ends, .context_over = context_over, .child = child };
DS_LIST_ADD(ds_lifecycles, life);
