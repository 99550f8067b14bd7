// SPDX-License-Identifier: Apache-2.0
/* What each thread launched: a tally of its own, which others add up. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "tally.h"

#define MEMBARRIER_REGISTER 16
#define MEMBARRIER_BARRIER 8

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end;

void ds_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!ds_process.fences)
		syscall(SYS_membarrier, MEMBARRIER_BARRIER, 0, 0);
}

static void ended(void *arg)
{
	struct ds_tally *tally = arg, *next;

	ds_thread.tally = NULL;
	for (; tally; tally = next) {
		next = tally->mine;
		tally->mine = NULL;
		/* a thread can be cancelled inside a launch */
		atomic_store_explicit(&tally->seq, (atomic_load_explicit(&tally->seq, memory_order_relaxed) + 1) & ~1U,
				      memory_order_release);
		atomic_store_explicit(&tally->ended, 1, memory_order_release);
	}
}

static void prepare(void)
{
	if (pthread_key_create(&thread_end, ended))
		ds_debug("no thread key: counts of ended threads stay where they are");
}

void ds_barrier_register(void)
{
	/* seccomp may forbid it; a forked child registers again */
	ds_process.fences = syscall(SYS_membarrier, MEMBARRIER_REGISTER, 0, 0) != 0;
}

/* Registering takes the kernel 10 ms and more once the process has threads, and the driver starts some: so it is done before the program begins. */
static __attribute__((constructor)) void register_early(void)
{
	const char *path = getenv("DETSHARE_SOCKET");

	if (path && *path)
		ds_barrier_register();
}

static struct ds_tally spare __attribute__((aligned(64)));

struct ds_tally *ds_tally_slow(struct ds_board *board)
{
	struct ds_tally *first = ds_thread.tally, *tally;
	uint32_t one = 1;

	pthread_once(&once, prepare);
	for (tally = first; tally; tally = tally->mine)
		if (tally->board == board)
			return tally;
	for (tally = atomic_load(&board->tallies); tally; tally = tally->next) {
		one = 1;
		if (atomic_load(&tally->ended) && atomic_compare_exchange_strong(&tally->ended, &one, 0))
			break;
	}
	if (!tally) {
		tally = aligned_alloc(64, sizeof(*tally));
		if (!tally)
			return &spare; /* shared by whoever has no memory: counts get vague, nothing breaks */
		*tally = (struct ds_tally){ .board = board };
		tally->next = atomic_load(&board->tallies);
		while (!atomic_compare_exchange_weak(&board->tallies, &tally->next, tally))
			;
	}
	tally->mine = first;
	ds_thread.tally = tally;
	pthread_setspecific(thread_end, tally);
	return tally;
}

uint64_t ds_launches(struct ds_board *board, bool *inside)
{
	struct ds_tally *tally;
	uint64_t sum = 0;

	*inside = false;
	for (tally = atomic_load_explicit(&board->tallies, memory_order_acquire); tally; tally = tally->next) {
		if (atomic_load_explicit(&tally->seq, memory_order_acquire) & 1)
			*inside = true;
		sum += atomic_load_explicit(&tally->kernels, memory_order_relaxed) +
		       atomic_load_explicit(&tally->graphs, memory_order_relaxed);
	}
	return sum;
}
