/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>

#include "besides.h"
#include "context.h"
#include "lifecycle.h"

/* of those beyond that number nobody hears that they are gone */
#define MOST 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[MOST];
static _Atomic(unsigned int) count; /* changes under the lock */

/* under the lock; `count` if it is none of them */
static unsigned int place(CUcontext context)
{
	unsigned int n = 0;

	while (n < atomic_load(&count) && contexts[n] != context)
		n++;
	return n;
}

bool ds_besides_seen(CUcontext context)
{
	unsigned int n;
	bool fresh;

	pthread_mutex_lock(&lock);
	n = place(context);
	fresh = n == atomic_load(&count);
	/* the last place is nobody's in particular, and never free again */
	if (fresh && n < MOST) {
		contexts[n] = n + 1 < MOST ? context : NULL;
		atomic_store(&count, n + 1);
	}
	pthread_mutex_unlock(&lock);
	return fresh;
}

void ds_besides_gone(CUcontext context)
{
	unsigned int n, all;

	pthread_mutex_lock(&lock);
	n = place(context);
	all = atomic_load(&count);
	if (context && n < all) {
		contexts[n] = contexts[all - 1];
		atomic_store(&count, all - 1);
	}
	pthread_mutex_unlock(&lock);
	/* another one can come to stand at the same address */
	ds_contexts_changed();
}

bool ds_besides_any(void)
{
	return atomic_load(&count) != 0;
}

static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&count, 0);
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);
