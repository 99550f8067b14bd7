// SPDX-License-Identifier: Apache-2.0
/*
 * The boards of a device, for as long as its context lives: made from the daemon's pages, left at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "attach.h"
#include "edge.h"
#include "gate.h"
#include "watchdog.h"
#include "life.h"
#include "lifecycle.h"
#include "log.h"
#include "pool.h"
#include "tally.h"
#include "poller.h"
#include "wake.h"
#include "word.h"

/* a program's first kernels run on the tier that the policy wants, if it can be had within this time */
#define FIRST_TIER_NS 2000000000ULL

static void unmap(struct ds_board *board)
{
	ds_pages_unmap(&board->pages);
	munmap(board->profiles, DS_PROFILES_BYTES);
}

/* Boards of contexts that ended, newest first; under device->lock */
static struct ds_board *left_boards[DS_MAX_DEVICES];

/*
 * Pages of earlier contexts go when nobody can look at them any more: both helpers ended, and no thread is in a launch there. The newest one is
 * spared: a thread may have read device->board and not begun its launch.
 */
static void reap(struct ds_device *device)
{
	struct ds_board **link = &left_boards[device->ordinal], *board;
	bool inside;

	if (*link)
		link = &(*link)->older;
	if (*link)
		ds_barrier();
	while ((board = *link)) {
		ds_launches(board, &inside);
		if (inside || atomic_load(&board->helpers)) {
			link = &board->older;
			continue;
		}
		*link = board->older;
		unmap(board);
	}
}

static void leave(struct ds_board *board)
{
	/* first, so that a launch that begins now does not set them again */
	atomic_store(&board->stopping, 1);
	__atomic_store_n(&board->pages.slot->state, DS_SLOT_LEAVING, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&board->edge);
	atomic_store(&board->active, 1); /* nobody takes the slow turn any more */
	__atomic_store_n(&board->pages.slot->active, 0, __ATOMIC_SEQ_CST);
	ds_bits_clear(board);
	pthread_mutex_unlock(&board->edge);
	ds_upkeep(board, ds_now_ns());
	ds_wake(board);
}

/*
 * At exit: the driver may wait for what is queued behind a closed gate, and the poller must be out of it before it ends. It is never inside for long,
 * unless the driver hangs: then the program's end shall not.
 */
static void leave_all(void)
{
	struct timespec until;
	unsigned int n;

	/* the driver ends too, and is to be awake for that */
	(void)real;
	/* all of them first: what moves memory of one GPU may be another's poller */
	for (n = 0; n < DS_MAX_DEVICES; n++)
		if (ds_devices[n].board)
			leave(ds_devices[n].board);
	for (n = 0; n < DS_MAX_DEVICES; n++) {
		struct ds_board *board = ds_devices[n].board;

		if (!board)
			continue;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		if (!pthread_mutex_timedlock(&board->driver, &until))
			pthread_mutex_unlock(&board->driver);
	}
}

static void leave_device(struct ds_device *device)
{
	/* threads that park or fetch memory look meanwhile */
	__atomic_store_n(&device->board, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&device->pages, NULL, __ATOMIC_RELEASE);
}

bool ds_board_attach(struct ds_device *device)
{
	static _Atomic(bool) at_exit;
	struct ds_board *board = NULL;
	struct ds_profile *profiles;
	struct ds_gpu gpu = ds_device_gpu(device);
	struct ds_pages pages;
	char why[400] = "";

	reap(device);
	if (!ds_pages_ask(&gpu, &pages, why, sizeof(why))) {
		ds_info("this program runs without DetShare: %s", why);
		return false;
	}
	profiles = mmap(NULL, DS_PROFILES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (profiles != MAP_FAILED && !posix_memalign((void **)&board, 64, sizeof(*board))) {
		memset(board, 0, sizeof(*board));
		board->device = device;
		board->pages = pages;
		board->word = (_Atomic(uint32_t) *)&pages.slot->word;
		board->plan = (const _Atomic(uint64_t) *)&pages.policy->plan;
		board->profiles = profiles;
		board->generation = atomic_load(&device->generation);
		atomic_init(&board->ahead_ns, UINT32_MAX);
		atomic_init(&board->epoch, 1); /* odd: no page ever shows it at rest */
		atomic_init(&board->awake[DS_WATCHDOG], 1);
		atomic_init(&board->awake[DS_POLLER], 1);
		ds_samples_init(&board->samples, pages.counters, device->sms);
		pthread_mutex_init(&board->edge, NULL);
		pthread_mutex_init(&board->driver, NULL);
		ds_barrier_register();
		device->pages = &board->pages; /* ds_pool_wish() reads it */
		device->board = board;
		ds_policy_refresh(board);
		ds_upkeep(board, ds_now_ns());
		if (ds_watchdog_start(board)) {
			if (ds_poller_start(board)) {
				if (!atomic_exchange(&at_exit, true) && atexit(leave_all))
					ds_debug("no exit handler: gates open when the process is gone");
				ds_debug("slot %u of the boards, policy %u", pages.index, atomic_load(&board->epoch));
				return true;
			}
			/* the watchdog ends by itself; memory that it reads stays */
			leave(board);
			leave_device(device);
			ds_info("this program runs without DetShare: a helper thread cannot be started: %s", strerror(errno));
			return false;
		}
		leave_device(device);
		free(board);
	}
	if (profiles != MAP_FAILED)
		munmap(profiles, DS_PROFILES_BYTES);
	ds_pages_unmap(&pages);
	ds_info("this program runs without DetShare: no memory or no thread for its boards: %s", strerror(errno));
	return false;
}

void ds_board_detach(struct ds_device *device)
{
	struct ds_board *board = device->board;

	if (!board)
		return;
	leave(board);
	leave_device(device);
	/* the poller is out of the driver, and does not enter it again; nor does it wait for the daemon */
	atomic_fetch_add(&ds_arena_hurry, 1);
	pthread_mutex_lock(&board->driver);
	atomic_fetch_sub(&ds_arena_hurry, 1);
	pthread_mutex_unlock(&board->driver);
	pthread_mutex_lock(&device->lock);
	board->older = left_boards[device->ordinal];
	left_boards[device->ordinal] = board;
	pthread_mutex_unlock(&device->lock);
}

/* No gate is waited for any more. */
static void unregister(struct ds_device *device)
{
	struct ds_board *board = left_boards[device->ordinal];

	/* 1: it could not be registered */
	if (!board || board->host_word <= 1)
		return;
	if (real->cuMemHostUnregister(board->pages.activity))
		ds_debug("the page of words stays registered");
	board->host_word = 1;
}

/* In a forked child: the pages belong to the parent's vCtx. */
void ds_board_child(void)
{
	unsigned int n;

	ds_thread.tally = NULL;
	for (n = 0; n < DS_MAX_DEVICES; n++) {
		struct ds_board *board = ds_devices[n].board;

		if (!board)
			continue;
		leave_device(&ds_devices[n]);
		unmap(board);
	}
	/* what the parent left is left */
	memset(left_boards, 0, sizeof(left_boards));
}

static void context_ready(struct ds_device *device)
{
	ds_pool_wait(device, ds_board_tier(device), FIRST_TIER_NS);
}

static const struct ds_lifecycle life = {
	.context_new = ds_board_attach,
	.context_ready = context_ready,
	.context_ends = ds_board_detach,
	.context_last = unregister,
	.child = ds_board_child,
};
DS_LIST_ADD(ds_lifecycles, life);
