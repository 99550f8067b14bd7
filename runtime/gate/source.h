/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another word than the host's for gates to wait on. Who has one adds itself to the list and puts its address into board->gate_word, and
 * board->host_word there when it ends.
 */
#ifndef DS_SOURCE_H
#define DS_SOURCE_H

#include "list.h"
#include "state.h"

/* `static const struct ds_source x = {...}; DS_LIST_ADD(ds_sources, x);` */
struct ds_source {
	void (*attached)(struct ds_board *board); /* in a thread of the program, before the poller lives */
	void (*look)(struct ds_board *board, uint64_t now); /* by the poller, in the device's context, each time it asks the driver */
};

/* Work for the poller that may take long. `static const struct ds_chore x = {...}; DS_LIST_ADD(ds_chores, x);` */
struct ds_chore {
	bool (*due)(const struct ds_board *board); /* at each pass, without a lock */
	bool (*look)(struct ds_board *board); /* under board->driver alone; true: it wants to look again soon */
};

#endif
