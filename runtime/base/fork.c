/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fork.h"

DS_LIST(ds_forks, struct ds_fork);

/* begun in another thread at a fork, it begins anew in the child */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(bool) watches;

static void child(void)
{
	const struct ds_fork *const *at;

	if (!atomic_load(&watches))
		return;
	ds_list_each(at, ds_forks)
		(*at)->child();
}

static void handle(void)
{
	pthread_atfork(NULL, NULL, child);
}

/* Before the process has threads: a fork calls no handler that came since it began, though it may copy a lock that was taken since then. */
static __attribute__((constructor)) void handle_early(void)
{
	pthread_once(&once, handle);
}

void ds_fork_watch(void)
{
	/* constructors of other libraries may be sooner */
	handle_early();
	atomic_store(&watches, true);
}
