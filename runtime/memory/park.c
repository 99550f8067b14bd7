/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's memory leaves its GPUs and comes back, as a whole: it is either wholly there or wholly away. Leaving, nothing is given back
 * before all of it is copied; coming, nothing is used before all of it is copied. What fails is taken back.
 *
 * One lock is held all the while, around leave() and come(). Threads of the program that need the memory wait for it in fetch(), and the first
 * of them brings it home; no device->lock is held around copies. Who is held by hand waits there too: a paused program stays away.
 */
#include <string.h>

#include "alloc.h"
#include "context.h"
#include "copies.h"
#include "hasher.h"
#include "home.h"
#include "lifecycle.h"
#include "log.h"
#include "park.h"
#include "room.h"
#include "settle.h"
#include "source.h"
#include "virtual.h"

#define LEAST_NAP_NS 1000000ULL /* between two tries to come back where the GPU has no room */
#define MOST_NAP_NS 50000000ULL

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct ds_counters *counters_of(struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages ? pages->counters : NULL;
}

static void show_state(uint32_t state)
{
	struct ds_device *device;

	ds_each_managed(device) if (counters_of(device))
		__atomic_store_n(&counters_of(device)->park_state, state, __ATOMIC_RELAXED);
}

static uint64_t bytes_away(const struct ds_device *device)
{
	uint64_t sum = 0;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->counted && !piece->handle)
			sum += piece->size;
	return sum;
}

/* ---- away ---- */

static bool sole_contexts(void)
{
	struct ds_device *device;

	ds_each_managed(device)
		if (counters_of(device) && __atomic_load_n(&counters_of(device)->unmanaged, __ATOMIC_RELAXED))
			return false;
	return !ds_alloc_foreign();
}

/* Room for what can leave now. */
static uint32_t room_for_all(void)
{
	struct ds_device *device;
	uint64_t all = 0;
	char why[400] = "";
	struct ds_own own;

	ds_each_managed(device) {
		uint64_t bytes = ds_piece_parkable(device);
		struct ds_stay *stay = NULL;

		if (!bytes)
			continue;
		all += bytes;
		ds_own_begin(&own, device);
		stay = ds_arena_need(device, bytes, why, sizeof(why));
		ds_own_end(&own);
		if (!stay) {
			ds_info("park: refused, nothing is lost: %s", why);
			return DS_PARK_ARENA;
		}
	}
	return all ? DS_PARK_OK : DS_PARK_NOTHING;
}

/* whether copies are not to be kept */
static bool whole(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages && __atomic_load_n(&pages->policy->flags, __ATOMIC_RELAXED) & DS_FLAG_WHOLE;
}

static void show_copied(struct ds_device *device, const struct ds_copied *copied)
{
	struct ds_counters *counters = counters_of(device);

	if (!counters)
		return;
	__atomic_store_n(&counters->copied_bytes, copied->bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->hash_ns, copied->hash_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->whole, copied->whole, __ATOMIC_RELAXED);
}

static uint32_t copy_away(void)
{
	struct ds_device *device;

	ds_each_managed(device) {
		uint64_t bytes = ds_piece_parkable(device);
		struct ds_stay *stay = ds_arena_of(device);
		CUresult result = CUDA_SUCCESS;
		struct ds_copied copied;
		struct ds_own own;

		if (!bytes)
			continue;
		/* it allocated more meanwhile */
		if (!stay || bytes > stay->slots * DS_GRAIN_BYTES)
			return DS_PARK_ARENA;
		ds_own_begin(&own, device);
		result = ds_copies_away(device, stay, whole(device), &copied);
		ds_own_end(&own);
		if (result != CUDA_SUCCESS) {
			ds_info("park: refused, nothing is lost: a copy failed with %s", ds_error_name(result));
			return DS_PARK_DRIVER;
		}
		show_copied(device, &copied);
	}
	return DS_PARK_OK;
}

static void give_back(uint64_t began)
{
	struct ds_device *device;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next) {
		/* what the driver does not unmap stays, and is as it was */
		if (!piece->counted || !piece->handle || real->cuMemUnmap(piece->address, piece->size) != CUDA_SUCCESS)
			continue;
		real->cuMemRelease(piece->handle);
		piece->handle = 0;
	}
	ds_each_managed(device) {
		if (!counters_of(device))
			continue;
		__atomic_store_n(&counters_of(device)->parked_bytes, bytes_away(device), __ATOMIC_RELAXED);
		__atomic_fetch_add(&counters_of(device)->parks, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&counters_of(device)->park_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
	}
}

static uint32_t leave(void)
{
	uint32_t reason;
	uint64_t began;

	if (!atomic_load(&ds_home.parks))
		return DS_PARK_OFF;
	if (!sole_contexts())
		return DS_PARK_CONTEXT;
	reason = room_for_all();
	if (reason != DS_PARK_OK)
		return reason;
	began = ds_now_ns();
	ds_settle_stop();
	show_state(DS_PARK_LEAVING);
	reason = ds_settle();
	/* made by a thread that was inside until now */
	if (reason == DS_PARK_OK && !sole_contexts())
		reason = DS_PARK_CONTEXT;
	if (reason == DS_PARK_OK)
		reason = copy_away();
	if (reason != DS_PARK_OK) {
		atomic_store(&ds_home.now, DS_HOME);
		show_state(DS_PARK_HOME);
		return reason;
	}
	give_back(began);
	atomic_store(&ds_home.now, DS_HOME_AWAY);
	show_state(DS_PARK_AWAY);
	return DS_PARK_OK;
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
		if (piece->handle || !piece->device->primary)
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

/* false: the GPU has no room now, and all is as it was. */
static bool come(void)
{
	uint64_t began = ds_now_ns();
	struct ds_device *device;
	bool locked = ds_thread.locked;
	CUresult result;

	ds_thread.locked = true;
	show_state(DS_PARK_COMING);
	result = make();
	if (result != CUDA_SUCCESS) {
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
	ds_each_managed(device) {
		if (!counters_of(device))
			continue;
		__atomic_store_n(&counters_of(device)->parked_bytes, bytes_away(device), __ATOMIC_RELAXED);
		__atomic_store_n(&counters_of(device)->resume_ns, ds_now_ns() - began, __ATOMIC_RELAXED);
	}
	atomic_store(&ds_home.now, DS_HOME);
	show_state(DS_PARK_HOME);
	ds_thread.locked = locked;
	return true;
}

static bool held_away(void)
{
	struct ds_device *device;

	ds_each_managed(device)
		if (device->board && ((atomic_load(device->board->word) & DS_HELD) || ds_room_stays(device)) && !atomic_load(&device->board->stopping))
			return true;
	return false;
}

/* A call of the program needs its memory. */
static void fetch(struct ds_stream *stream)
{
	uint64_t nap = LEAST_NAP_NS;
	struct ds_device *device;
	bool told = false;

	pthread_mutex_lock(&lock);
	while (atomic_load(&ds_home.now) == DS_HOME_AWAY) {
		bool held = held_away();

		if (!held && come()) {
			ds_each_managed(device)
				if (counters_of(device))
					__atomic_fetch_add(&counters_of(device)->wakes, 1, __ATOMIC_RELAXED);
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
	if (stream) {
		struct ds_stay *stay = ds_arena_of(stream->device);
		struct ds_own own;

		if (stay) {
			ds_own_begin(&own, stream->device);
			real->cuEventSynchronize(stay->home);
			ds_own_end(&own);
		}
		atomic_fetch_and(&stream->word, ~DS_WORD_PARKED);
	}
	pthread_mutex_unlock(&lock);
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

static const struct ds_keeper keeper = { .fetch = fetch };
DS_LIST_ADD(ds_keepers, keeper);

/* ---- what the daemon asks for ---- */

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

static bool due(const struct ds_board *board)
{
	return parks(board) || returns(board);
}

/*
 * Somebody else needs the host memory: where the program's memory is on the GPU, it holds nothing but copies that are kept. false: it has work, for
 * which the driver might wait as it unpins; later.
 */
static bool return_arena(struct ds_board *board)
{
	uint32_t wanted = __atomic_load_n(&board->pages.policy->returns, __ATOMIC_RELAXED);
	struct ds_own own;

	if (atomic_load(&ds_home.now) == DS_HOME) {
		if (!ds_settle_idle(board->device))
			return false;
		ds_own_begin(&own, board->device);
		ds_arena_return(board->device);
		ds_own_end(&own);
	}
	__atomic_store_n(&board->pages.counters->returned, wanted, __ATOMIC_RELEASE);
	return true;
}

static bool look(struct ds_board *board)
{
	uint32_t wanted = __atomic_load_n(&board->pages.policy->park, __ATOMIC_ACQUIRE), reason = DS_PARK_OK;
	struct ds_counters *counters = board->pages.counters;
	bool asked = parks(board), again = false, later = false;

	ds_thread.locked = true;
	pthread_mutex_lock(&lock);
	if (returns(board))
		later = !return_arena(board);
	if (asked && wanted & DS_PARK_WANTED)
		reason = atomic_load(&ds_home.now) == DS_HOME_AWAY ? DS_PARK_OK : leave();
	else if (asked && atomic_load(&ds_home.now) == DS_HOME_AWAY)
		again = !come();
	pthread_mutex_unlock(&lock);
	ds_thread.locked = false;
	if (asked && !again) {
		__atomic_store_n(&counters->park_reason, reason, __ATOMIC_RELAXED);
		__atomic_store_n(&counters->park_ack, wanted, __ATOMIC_RELEASE);
	}
	return again || later;
}

static const struct ds_chore chore = { .due = due, .look = look };
DS_LIST_ADD(ds_chores, chore);

/* ---- ends ---- */

static void context_ends(struct ds_device *device)
{
	struct ds_own own;

	pthread_mutex_lock(&lock);
	ds_own_begin(&own, device);
	ds_arena_ends(device);
	ds_hasher_ends(device);
	ds_own_end(&own);
	pthread_mutex_unlock(&lock);
}

static void context_over(struct ds_device *device)
{
	bool away = false;

	pthread_mutex_lock(&lock);
	ds_alloc_over(device);
	ds_arena_over(device, bytes_away(device) != 0);
	for (struct ds_piece *piece = ds_pieces; piece && !away; piece = piece->next)
		away = !piece->handle;
	if (!away)
		atomic_store(&ds_home.now, DS_HOME);
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
