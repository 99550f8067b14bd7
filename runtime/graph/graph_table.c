/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs by handle. Looking one up takes no lock where it is found: records stay records for ever, so a
 * chain that changes under a reader can at worst lead him to another record or to the end, and then he looks again
 * under the lock.
 */

#include <stdlib.h>

#include "graph_table.h"

#define BUCKETS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct ds_exec *) buckets[BUCKETS];
static struct ds_exec *unused;

static _Atomic(struct ds_exec *) *bucket_of(CUgraphExec app)
{
	return &buckets[((uint64_t)(uintptr_t)app >> 4) * 0x9e3779b97f4a7c15ull >> 52];
}

static struct ds_exec *walk(CUgraphExec app)
{
	struct ds_exec *exec = atomic_load_explicit(bucket_of(app), memory_order_acquire);

	while (exec && atomic_load_explicit(&exec->app, memory_order_acquire) != app)
		exec = atomic_load_explicit(&exec->next, memory_order_acquire);
	return exec;
}

struct ds_exec *ds_exec_find(CUgraphExec app)
{
	struct ds_exec *exec;

	if (!app)
		return NULL;
	exec = walk(app);
	if (ds_likely(exec))
		return exec;
	pthread_mutex_lock(&lock);
	exec = walk(app);
	pthread_mutex_unlock(&lock);
	return exec;
}

struct ds_exec *ds_exec_add(CUgraphExec app, struct ds_device *device)
{
	_Atomic(struct ds_exec *) *bucket = bucket_of(app);
	struct ds_exec *exec;

	pthread_mutex_lock(&lock);
	exec = unused;
	if (exec) {
		unused = atomic_load_explicit(&exec->next, memory_order_relaxed);
	} else {
		exec = calloc(1, sizeof(*exec));
		if (exec)
			pthread_mutex_init(&exec->lock, NULL);
	}
	if (exec) {
		exec->device = device;
		atomic_store_explicit(&exec->next, atomic_load_explicit(bucket, memory_order_relaxed), memory_order_relaxed);
		atomic_store_explicit(&exec->app, app, memory_order_release);
		atomic_store_explicit(bucket, exec, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return exec;
}

void ds_exec_remove(struct ds_exec *exec)
{
	_Atomic(struct ds_exec *) *at;
	struct ds_exec *each;

	pthread_mutex_lock(&lock);
	at = bucket_of(atomic_load_explicit(&exec->app, memory_order_relaxed));
	while ((each = atomic_load_explicit(at, memory_order_relaxed)) && each != exec)
		at = &each->next;
	if (each) {
		atomic_store_explicit(at, atomic_load_explicit(&exec->next, memory_order_relaxed), memory_order_release);
		atomic_store_explicit(&exec->app, NULL, memory_order_release);
		exec->device = NULL;
		exec->flags = 0;
		exec->overtaken = 0;
		exec->last_stream = NULL;
		exec->last = NULL;
		atomic_store_explicit(&exec->next, unused, memory_order_release);
		unused = exec;
	}
	pthread_mutex_unlock(&lock);
}

void ds_exec_each(struct ds_device *device, void (*each)(struct ds_exec *exec, void *data), void *data)
{
	struct ds_exec **found = NULL;
	size_t count = 0, room = 0, index;

	/* `each` may take locks that come before the table's. */
	pthread_mutex_lock(&lock);
	for (index = 0; index < BUCKETS; index++) {
		struct ds_exec *exec = atomic_load_explicit(&buckets[index], memory_order_relaxed);

		for (; exec; exec = atomic_load_explicit(&exec->next, memory_order_relaxed)) {
			if (exec->device != device)
				continue;
			if (count == room) {
				struct ds_exec **wider = realloc(found, (room + 256) * sizeof(*wider));

				if (!wider)
					break;
				found = wider;
				room += 256;
			}
			found[count++] = exec;
		}
	}
	pthread_mutex_unlock(&lock);
	for (index = 0; index < count; index++)
		each(found[index], data);
	free(found);
}

void ds_exec_reset(void)
{
	size_t index;

	pthread_mutex_init(&lock, NULL);
	for (index = 0; index < BUCKETS; index++)
		atomic_store(&buckets[index], NULL);
	unused = NULL;
}
