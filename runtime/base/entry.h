/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own functions, and what each call of the program reads. */
#ifndef DS_ENTRY_H
#define DS_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"
#include "real.h"

/* What every call of the program reads, in one line of the cache. */
struct ds_process {
	_Atomic(bool) ready; /* ds_real_table is filled, and the driver may be called */
	_Atomic(bool) asleep; /* filled, and the driver is not to be called: ready is false */
	_Atomic(bool) lent; /* memory is away or comes home, what launches name first */
	_Atomic(bool) exiting; /* the program is in exit(): no move, no new object */
	_Atomic(bool) unseen; /* the current context may change in ways that we do not see */
	bool fences; /* no membarrier here, launches fence by themselves */
	_Atomic(uint32_t) managed; /* devices in state MANAGED */
	_Atomic(uint32_t) aside; /* devices in state ASIDE */
	_Atomic(uint32_t) contexts; /* counts contexts that came or went; never 0 */
	_Atomic(uint32_t) streams_changed; /* counts handles that became ours or ceased to be */
} __attribute__((aligned(64)));

extern struct ds_process ds_process;
extern struct ds_real ds_real_table;
void ds_load(void);
/* From now on a call of the driver waits in `wait` first, which returns once it may go on; it costs those who do not wait nothing. */
void ds_driver_sleeps(void (*wait)(void));
void ds_driver_wakes(void);
CUresult ds_absent(void);

static inline const struct ds_real *ds_real_get(void)
{
	if (ds_unlikely(!atomic_load_explicit(&ds_process.ready, memory_order_acquire)))
		ds_load();
	return &ds_real_table;
}
#define real ds_real_get()

/* whether the loaded driver exports it */
#define ds_has(function) ((void (*)(void))real->function != (void (*)(void))ds_absent)

/* nothing is left to do for the library in this process */
static inline bool ds_native(void)
{
	return !atomic_load_explicit(&ds_process.managed, memory_order_relaxed) && atomic_load_explicit(&ds_process.aside, memory_order_relaxed);
}

/* Fills ds_real_table if dlopen() with these flags gives the driver; RTLD_NOLOAD: false if it is not in this process yet. */
bool ds_load_present(int flags);

typedef void *(*ds_dlsym_type)(void *handle, const char *name);
/* the C library's */
ds_dlsym_type ds_dlsym(void);

/* where a function lies in struct ds_real */
struct ds_place {
	const char *name;
	size_t place;
};
extern const struct ds_place ds_places[];
extern const unsigned int ds_place_count;

#endif
