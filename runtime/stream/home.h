/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the program's memory is on its GPUs. The folder memory/ takes it away and brings it back.
 *
 * While it is away, or about to leave, each stream of the program has DS_WORD_PARKED, so that its next work takes the slow turn and comes here;
 * a launch pays nothing for that. Every other call that may name memory stands between ds_home_enter() and ds_home_leave(). Who takes the
 * memory away stores `now` and the bits first, then waits until nobody is inside: whoever entered before is seen, whoever enters later waits.
 */
#ifndef DS_HOME_H
#define DS_HOME_H

#include <stdatomic.h>

#include "compiler.h"
#include "list.h"
#include "thread.h"

struct ds_stream;

/* LENT: streams may run over host memory, other calls that name memory have all of it brought home first */
enum { DS_HOME, DS_HOME_LEAVING, DS_HOME_AWAY, DS_HOME_LENT };

struct ds_home {
	_Atomic(uint32_t) now;
	_Atomic(uint32_t) users; /* threads inside */
	_Atomic(bool) parks; /* memory of this process may go away */
} __attribute__((aligned(64)));
extern struct ds_home ds_home;

/* `static const struct ds_keeper x = {...}; DS_LIST_ADD(ds_keepers, x);` */
struct ds_keeper {
	/* Returns when the memory is home, and `stream` (NULL: none) has no DS_WORD_PARKED and its work may follow. */
	void (*fetch)(struct ds_stream *stream);
	/* A launch while memory is lent; what it names is hot. */
	void (*name)(CUfunction function, void **params, void **extra);
};

void ds_home_fetch(struct ds_stream *stream);
void ds_home_wait(void);
void ds_home_name(CUfunction function, void **params, void **extra);

/* Nests. Without device->lock, and not while a stream is in use. */
static inline void ds_home_enter(void)
{
	if (ds_likely(!atomic_load_explicit(&ds_home.parks, memory_order_relaxed)) || ds_thread.home++)
		return;
	atomic_fetch_add(&ds_home.users, 1);
	if (ds_unlikely(atomic_load(&ds_home.now) != DS_HOME))
		ds_home_wait();
}

static inline void ds_home_leave(void)
{
	if (ds_unlikely(ds_thread.home) && !--ds_thread.home)
		atomic_fetch_sub(&ds_home.users, 1);
}

/* As ds_home_call(), for a call that makes memory and names none: work that waits for what the program does after it is no reason to wait for ever. */
#define ds_home_make(call)                              \
	({                                              \
		CUresult home_made;                     \
                                                        \
		ds_thread.makes = true;                 \
		ds_home_enter();                        \
		ds_thread.makes = false;                \
		home_made = (call);                     \
		ds_home_leave();                        \
		home_made;                              \
	})

/* a call of the driver with all memory there */
#define ds_home_call(call)                              \
	({                                              \
		CUresult home_result;                   \
                                                        \
		ds_home_enter();                        \
		home_result = (call);                   \
		ds_home_leave();                        \
		home_result;                            \
	})

#endif
