/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's own checkpoint takes what a park leaves on the GPU, and a driver that is checkpointed keeps every thread that calls it. So nobody
 * calls it from counters.deep == policy.deep on: threads of ours stay out, and calls of the program wait in wait_awake() and say so, for only the daemon
 * can have the driver restored.
 *
 * Without a daemon (its lease ran out) calls go on into the driver, which knows best: where it was never checkpointed they are done, else it
 * keeps them until the next daemon has it restored.
 */
#include "lifecycle.h"
#include "park.h"
#include "pool.h"
#include "settle.h"
#include "source.h"
#include "tally.h"

#define NAP_NS 500000ULL

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The daemon keeps the driver shut; one that died does not. *asked: the requests stand, whether it lives or not. */
static bool shut(bool *asked)
{
	struct ds_device *device;
	bool lasts = false;

	*asked = false;
	ds_each_managed(device) {
		const struct ds_pages *pages = device->pages;

		if (!pages || !__atomic_load_n(&pages->policy->deep, __ATOMIC_ACQUIRE))
			continue;
		*asked = true;
		lasts |= __atomic_load_n(&pages->policy->lease_ns, __ATOMIC_RELAXED) > ds_now_ns();
	}
	return lasts;
}

static void want(uint32_t value)
{
	struct ds_counters *counters;
	struct ds_device *device;

	ds_each_counted(device, counters) __atomic_store_n(&counters->wants_back, value, __ATOMIC_RELAXED);
}

/* under the lock */
static void open_driver(void)
{
	struct ds_counters *counters;
	struct ds_device *device;

	ds_driver_wakes();
	want(0);
	ds_each_counted(device, counters) __atomic_store_n(&counters->deep, 0, __ATOMIC_RELEASE);
}

static void wait_awake(void)
{
	bool asked;

	if (ds_thread.passes)
		return;
	want(1);
	while (shut(&asked))
		ds_nap(NAP_NS);
	if (asked)
		return;
	pthread_mutex_lock(&lock);
	if (atomic_load(&ds_process.asleep) && !shut(&asked) && !asked)
		open_driver();
	pthread_mutex_unlock(&lock);
}

/* Whoever polled for another GPU of the process is out of the driver, and who made green contexts. */
static bool others_out(const struct ds_board *board)
{
	struct ds_device *device;

	ds_each_managed(device) {
		struct ds_board *other = ds_board_of(device);

		if (ds_pool_busy(device))
			return false;
		if (!other || other == board)
			continue;
		if (pthread_mutex_trylock(&other->driver))
			return false;
		pthread_mutex_unlock(&other->driver);
	}
	return true;
}

static bool due(const struct ds_board *board)
{
	return __atomic_load_n(&board->pages.policy->deep, __ATOMIC_RELAXED) != __atomic_load_n(&board->pages.counters->deep, __ATOMIC_RELAXED);
}

static bool look(struct ds_board *board)
{
	uint32_t wanted = __atomic_load_n(&board->pages.policy->deep, __ATOMIC_ACQUIRE);
	bool asked, later = false;

	pthread_mutex_lock(&lock);
	if (!wanted) {
		if (atomic_load(&ds_process.asleep) && !shut(&asked) && !asked)
			open_driver();
		__atomic_store_n(&board->pages.counters->deep, 0, __ATOMIC_RELEASE);
	} else if (!ds_park_shuts(wait_awake)) {
		/* it came back: the daemon sees that, and takes its request back */
		later = true;
	} else if (!others_out(board)) {
		later = true;
	} else {
		ds_barrier(); /* who called before is in the driver now, as good as: its lock waits for that */
		__atomic_store_n(&board->pages.counters->deep, wanted, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return later;
}

static const struct ds_chore chore = { .due = due, .look = look };
DS_LIST_ADD(ds_chores, chore);

static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	if (atomic_load(&ds_process.asleep))
		ds_driver_wakes();
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);
