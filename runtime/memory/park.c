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
#include "arena.h"
#include "context.h"
#include "done.h"
#include "home.h"
#include "lifecycle.h"
#include "log.h"
#include "room.h"
#include "source.h"
#include "virtual.h"
#include "word.h"

#define SETTLE_NS 5000000000ULL /* for work that runs when memory is to leave */
#define LOOK_NS 50000ULL
#define LEAST_NAP_NS 1000000ULL /* between two tries to come back where the GPU has no room */
#define MOST_NAP_NS 50000000ULL
#define COPIES 8 /* queued at once: the end of the process waits for no more */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* GPUs whose context is managed now. */
static struct ds_device *next_device(struct ds_device *device)
{
	for (device = device ? device + 1 : ds_devices; device < ds_devices + DS_MAX_DEVICES; device++)
		if (atomic_load(&device->state) == DS_DEVICE_MANAGED && device->primary)
			return device;
	return NULL;
}

#define each_device(device) for ((device) = next_device(NULL); (device); (device) = next_device(device))

static struct ds_counters *counters_of(struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages ? pages->counters : NULL;
}

static void show_state(uint32_t state)
{
	struct ds_device *device;

	each_device(device) if (counters_of(device))
		__atomic_store_n(&counters_of(device)->park_state, state, __ATOMIC_RELAXED);
}

/* all that can leave, or (away) has left, this GPU */
static bool belongs(const struct ds_piece *piece, const struct ds_device *device, bool away)
{
	return piece->device == device && piece->counted && !piece->handle == away;
}

static uint64_t bytes_away(const struct ds_device *device)
{
	uint64_t sum = 0;

	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		if (belongs(piece, device, true))
			sum += piece->size;
	return sum;
}

/* ---- no work begins, and what there is ends ---- */

static void stop(void)
{
	struct ds_device *device;

	atomic_store(&ds_home.now, DS_HOME_LEAVING);
	show_state(DS_PARK_LEAVING);
	each_device(device) {
		pthread_mutex_lock(&device->lock);
		for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
			atomic_fetch_or(&stream->word, DS_WORD_PARKED);
		if (device->board)
			atomic_store(&device->board->draining, 1);
		pthread_mutex_unlock(&device->lock);
	}
}

/* DS_PARK_OK: this GPU has no work of ours, and no thread is in a call that could put some there. */
static uint32_t quiet(struct ds_device *device)
{
	struct ds_board *board = device->board;
	uint32_t reason = DS_PARK_OK;
	struct ds_own own;

	if (!board || atomic_load(&board->stopping))
		return DS_PARK_ENDING;
	ds_upkeep(board, ds_now_ns());
	pthread_mutex_lock(&device->lock);
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
		if (atomic_load(&stream->word) & DS_WORD_USERS)
			reason = DS_PARK_BUSY;
	if (atomic_load(&device->captures))
		reason = DS_PARK_CAPTURE;
	if (reason == DS_PARK_OK) {
		ds_own_begin(&own, device);
		if (!ds_ask_all(board, ds_now_ns()))
			reason = DS_PARK_BUSY;
		ds_own_end(&own);
	}
	pthread_mutex_unlock(&device->lock);
	return reason;
}

static uint32_t settle(void)
{
	uint64_t end = ds_now_ns() + SETTLE_NS;
	struct ds_device *device;
	struct ds_own own;
	uint32_t reason;

	while (1) {
		reason = atomic_load(&ds_home.users) ? DS_PARK_BUSY : DS_PARK_OK;
		for (device = next_device(NULL); device && reason == DS_PARK_OK; device = next_device(device))
			reason = quiet(device);
		/* a capture ends by calls that wait for us */
		if (reason == DS_PARK_OK || reason == DS_PARK_CAPTURE || reason == DS_PARK_ENDING || ds_now_ns() > end)
			break;
		ds_nap(LOOK_NS);
	}
	/* default streams of other threads cannot be asked, and were only quiet for a while */
	for (device = next_device(NULL); device && reason == DS_PARK_OK; device = next_device(device)) {
		ds_own_begin(&own, device);
		if (real->cuCtxSynchronize() != CUDA_SUCCESS)
			reason = DS_PARK_DRIVER;
		ds_own_end(&own);
	}
	each_device(device)
		if (device->board)
			atomic_store(&device->board->draining, 0);
	return reason;
}

/* ---- copies ---- */

static CUresult copy(struct ds_device *device, const struct ds_stay *stay, bool away)
{
	CUresult result = CUDA_SUCCESS;
	unsigned int queued = 0;

	for (struct ds_piece *piece = ds_pieces; piece && result == CUDA_SUCCESS; piece = piece->next) {
		if (!belongs(piece, device, false) || (!away && piece->fresh != DS_FRESH_MAPPED))
			continue;
		result = away ? real->cuMemcpyDtoHAsync_v2(stay->map + piece->place, piece->address, piece->size, stay->stream)
			      : real->cuMemcpyHtoDAsync_v2(piece->address, stay->map + piece->place, piece->size, stay->stream);
		if (result == CUDA_SUCCESS && ++queued % COPIES == 0)
			result = real->cuStreamSynchronize(stay->stream);
		if (result == CUDA_SUCCESS && away && device->board && atomic_load(&device->board->stopping))
			result = CUDA_ERROR_DEINITIALIZED;
	}
	if (!away && result == CUDA_SUCCESS)
		result = real->cuEventRecord(stay->home, stay->stream);
	if (result == CUDA_SUCCESS)
		result = real->cuStreamSynchronize(stay->stream);
	return result;
}

/* ---- away ---- */

static bool sole_contexts(void)
{
	struct ds_device *device;

	each_device(device)
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

	each_device(device) {
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

static uint32_t copy_away(void)
{
	struct ds_device *device;

	each_device(device) {
		struct ds_stay *stay = ds_arena_of(device);
		CUresult result = CUDA_SUCCESS;
		uint64_t place = 0;
		struct ds_own own;

		for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next) {
			if (!belongs(piece, device, false))
				continue;
			piece->place = place;
			place += piece->size;
		}
		if (!place)
			continue;
		/* it allocated more meanwhile */
		if (!stay || place > stay->size)
			return DS_PARK_ARENA;
		ds_own_begin(&own, device);
		result = copy(device, stay, true);
		ds_own_end(&own);
		if (result != CUDA_SUCCESS) {
			ds_info("park: refused, nothing is lost: a copy failed with %s", ds_error_name(result));
			return DS_PARK_DRIVER;
		}
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
	each_device(device) {
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
	stop();
	reason = settle();
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
	each_device(device) {
		struct ds_stay *stay = ds_arena_of(device);
		struct ds_own own;

		if (!stay)
			continue;
		ds_own_begin(&own, device);
		result = copy(device, stay, false);
		ds_own_end(&own);
		if (result != CUDA_SUCCESS)
			ds_info("park: the copy back to GPU %d failed with %s: its context is beyond repair", device->ordinal,
				ds_error_name(result));
	}
	for (struct ds_piece *piece = ds_pieces; piece; piece = piece->next)
		piece->fresh = DS_FRESH_NOT;
	each_device(device) {
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

	each_device(device)
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
			each_device(device)
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

static const struct ds_keeper keeper = { .fetch = fetch };
DS_LIST_ADD(ds_keepers, keeper);

/* ---- what the daemon asks for ---- */

static bool due(const struct ds_board *board)
{
	return __atomic_load_n(&board->pages.policy->park, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&board->pages.counters->park_ack, __ATOMIC_RELAXED);
}

static bool look(struct ds_board *board)
{
	uint32_t wanted = __atomic_load_n(&board->pages.policy->park, __ATOMIC_ACQUIRE), reason = DS_PARK_OK;
	struct ds_counters *counters = board->pages.counters;
	bool again = false;

	ds_thread.locked = true;
	pthread_mutex_lock(&lock);
	if (wanted & DS_PARK_WANTED)
		reason = atomic_load(&ds_home.now) == DS_HOME_AWAY ? DS_PARK_OK : leave();
	else if (atomic_load(&ds_home.now) == DS_HOME_AWAY)
		again = !come();
	pthread_mutex_unlock(&lock);
	ds_thread.locked = false;
	if (again)
		return true;
	__atomic_store_n(&counters->park_reason, reason, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->park_ack, wanted, __ATOMIC_RELEASE);
	return false;
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
}

static const struct ds_lifecycle life = { .context_ends = context_ends, .context_over = context_over, .child = child };
DS_LIST_ADD(ds_lifecycles, life);
