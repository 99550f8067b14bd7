/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DS_PARK_H
#define DS_PARK_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"
#include "entry.h"
#include "home.h"

/* One for all that moves memory. */
void ds_park_lock(void);
void ds_park_unlock(void);
/* All three under the lock. Away: DS_PARK_OK, or why not. */
uint32_t ds_park_leave(void);
/* Of a park in parts, what there is host memory for now. Under the lock, as ds_park_rests(): whether some is still on the GPU. */
void ds_park_more(void);
bool ds_park_rests(void);
/* Back, wholly or lent. false: the GPU has no room now, and all is as it was. */
bool ds_park_come(void);
/* Some of what is lent comes home, at a kernel boundary. false: not now. */
bool ds_park_step(void);

/* Where the program's memory is away and nobody brings it back now, the driver sleeps from now on (ds_driver_sleeps()). Waits for nobody. */
bool ds_park_shuts(void (*wait)(void));

/*
 * The program is in exit(), and its memory is away or lent: what it gives back is taken as it is, for nobody may ever make room for it. Then the lock is
 * held until ds_park_unlock().
 */
bool ds_park_exits_now(void);
static inline bool ds_park_exits(void)
{
	return ds_unlikely(atomic_load_explicit(&ds_process.exiting, memory_order_relaxed)) && ds_park_exits_now();
}

/* As ds_home_call(), for a call by which the program gives memory back: at its exit that may be away. */
#define ds_park_give(call)                                \
	({                                                \
		bool give_exits = ds_park_exits();        \
		CUresult give_result;                     \
                                                          \
		if (!give_exits)                          \
			ds_home_enter();                  \
		give_result = (call);                     \
		if (give_exits)                           \
			ds_park_unlock();                 \
		else                                      \
			ds_home_leave();                  \
		give_result;                              \
	})

#endif
