/* SPDX-License-Identifier: Apache-2.0 */
/* The child of a fork has one thread: a lock that another thread held is held there for good, and what it was changing is half changed. */
#ifndef DS_FORK_H
#define DS_FORK_H

#include "list.h"

/* `static const struct ds_fork x = {...}; DS_LIST_ADD(ds_forks, x);` */
struct ds_fork {
	void (*child)(void);
};

/* Before a lock can be held at a fork: those of `ds_forks` are called in each child from now on. */
void ds_fork_watch(void);

#endif
