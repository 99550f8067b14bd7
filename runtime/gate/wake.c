// SPDX-License-Identifier: Apache-2.0
/* The two helper threads of a board: how they begin, sleep and are woken. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wake.h"

bool ds_helper_start(void *(*run)(void *), struct ds_board *board)
{
	int error;

	atomic_fetch_add(&board->helpers, 1);
	error = ds_thread_start(run, board);
	if (!error)
		return true;
	atomic_fetch_sub(&board->helpers, 1);
	errno = error;
	return false;
}

static long futex(_Atomic(uint32_t) *word, int what, uint32_t value, const struct timespec *time)
{
	return syscall(SYS_futex, (uint32_t *)word, what | FUTEX_PRIVATE_FLAG, value, time, NULL, 0);
}

void ds_wake(struct ds_board *board)
{
	int who;

	for (who = DS_WATCHDOG; who <= DS_POLLER; who++)
		if (!atomic_load(&board->awake[who]) && !atomic_exchange(&board->awake[who], 1))
			futex(&board->awake[who], FUTEX_WAKE, INT32_MAX, NULL);
}

void ds_linger(struct ds_board *board)
{
	atomic_fetch_add(&board->lingers, 1);
	futex(&board->lingers, FUTEX_WAKE, INT32_MAX, NULL);
}

void ds_sleep(struct ds_board *board, enum ds_sleeper who, uint64_t ns)
{
	struct timespec time = ds_timespec(ns);

	futex(&board->awake[who], FUTEX_WAIT, 0, &time);
	atomic_store(&board->awake[who], 1);
}

void ds_nap_lingering(struct ds_board *board, uint64_t ns)
{
	uint32_t lingers = atomic_load(&board->lingers);
	uint64_t idle_at = atomic_load(&board->idle_at_ns), now = ds_now_ns();
	struct timespec time;

	if (idle_at)
		ns = idle_at <= now ? 1 : idle_at - now < ns ? idle_at - now : ns;
	time = ds_timespec(ns);
	futex(&board->lingers, FUTEX_WAIT, lingers, &time);
}
