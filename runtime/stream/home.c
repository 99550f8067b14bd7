/* SPDX-License-Identifier: Apache-2.0 */
#include "entry.h"
#include "home.h"
#include "lifecycle.h"

DS_LIST(ds_keepers, struct ds_keeper);

struct ds_home ds_home;

void ds_home_fetch(struct ds_stream *stream)
{
	const struct ds_keeper *const *at;
	int before;

	/* it naps with its lock held; the driver's calls are no points of cancellation either */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	ds_list_each(at, ds_keepers)
		(*at)->fetch(stream);
	pthread_setcancelstate(before, NULL);
}

void ds_home_name(CUfunction function, void **params, void **extra)
{
	const struct ds_keeper *const *at;

	ds_list_each(at, ds_keepers)
		(*at)->name(function, params, extra);
}

void ds_home_wait(void)
{
	/* a profiler's call from inside one of ours: as the driver has it */
	if (ds_thread.locked)
		return;
	do {
		atomic_fetch_sub(&ds_home.users, 1);
		ds_home_fetch(NULL);
		atomic_fetch_add(&ds_home.users, 1);
	} while (atomic_load(&ds_home.now) != DS_HOME && !(ds_thread.makes && atomic_load(&ds_home.now) == DS_HOME_LENT));
}

/* The memory of the parent is not ours to bring back. */
static void child(void)
{
	atomic_store(&ds_home.now, DS_HOME);
	atomic_store(&ds_process.lent, false);
	atomic_store(&ds_home.users, 0);
	atomic_store(&ds_home.parks, false);
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);
