/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own functions, found when the first of them is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "entry.h"
#include "fork.h"
#include "log.h"

struct ds_process ds_process = {.contexts = 1};
struct ds_real ds_real_table;

static _Atomic(ds_dlsym_type) next_dlsym;
static void (*_Atomic waits)(void);
static pthread_mutex_t loading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool inside; /* under loading */

CUresult ds_absent(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

ds_dlsym_type ds_dlsym(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	ds_dlsym_type found = atomic_load_explicit(&next_dlsym, memory_order_acquire);

	if (ds_likely(found))
		return found;
	for (unsigned int i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
		found = (ds_dlsym_type)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	atomic_store_explicit(&next_dlsym, found, memory_order_release);
	return found;
}

/* library: a handle of libcuda, or NULL. The handle is kept: the driver stays as long as we point into it. */
static void fill(void *library)
{
	ds_dlsym_type find = ds_dlsym();

	for (unsigned int i = 0; i < ds_place_count; i++) {
		void *function = library ? find(library, ds_places[i].name) : NULL;

		if (!function)
			function = (void *)ds_absent;
		memcpy((char *)&ds_real_table + ds_places[i].place, &function, sizeof(function));
	}
	atomic_store_explicit(&ds_process.ready, true, memory_order_release);
}

/* filled, whether the driver may be called or not */
static bool filled(void)
{
	/* in this order: who wakes the driver sets ready first */
	return atomic_load(&ds_process.asleep) || atomic_load(&ds_process.ready);
}

void ds_driver_sleeps(void (*wait)(void))
{
	atomic_store(&waits, wait);
	atomic_store(&ds_process.asleep, true);
	atomic_store(&ds_process.ready, false);
}

void ds_driver_wakes(void)
{
	atomic_store(&ds_process.ready, true);
	atomic_store(&ds_process.asleep, false);
}

bool ds_load_present(int flags)
{
	bool ready = filled();

	if (ready)
		return true;
	ds_fork_watch();
	pthread_mutex_lock(&loading);
	/* inside: the driver's own constructors look for symbols while we load it */
	if (!inside && !filled()) {
		void *library;

		inside = true;
		library = dlopen("libcuda.so.1", RTLD_LAZY | flags);
		if (library)
			fill(library);
		inside = false;
	}
	ready = filled();
	pthread_mutex_unlock(&loading);
	return ready;
}

void ds_load(void)
{
	if (atomic_load(&ds_process.asleep)) {
		atomic_load(&waits)();
		return;
	}
	if (ds_load_present(RTLD_NOLOAD) || ds_load_present(0))
		return;
	pthread_mutex_lock(&loading);
	if (!inside && !filled()) {
		ds_info("a driver function was called and libcuda.so.1 cannot be loaded: %s; calls are answered with NOT_FOUND",
			dlerror());
		fill(NULL);
	}
	pthread_mutex_unlock(&loading);
}

/* What another thread had found is found anew. */
static void child(void)
{
	loading = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	inside = false;
}

static const struct ds_fork forks = { .child = child };
DS_LIST_ADD(ds_forks, forks);
