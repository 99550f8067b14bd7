/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "fork.h"

DS_LIST(ds_forks, struct ds_fork);

/* begun in another thread at a fork, it begins anew in the child */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void child(void)
{
	const struct ds_fork *const *at;

	ds_list_each(at, ds_forks)
		(*at)->child();
}

static void watch(void)
{
	pthread_atfork(NULL, NULL, child);
}

void ds_fork_watch(void)
{
	pthread_once(&once, watch);
}
