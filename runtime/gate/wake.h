/* SPDX-License-Identifier: Apache-2.0 */
/* The two helper threads of a board: how they begin, sleep and are woken. */
#ifndef DS_WAKE_H
#define DS_WAKE_H

#include "state.h"

enum ds_sleeper { DS_WATCHDOG, DS_POLLER };

/* a thread that counts in board->helpers until it ends; false: errno says why */
bool ds_helper_start(void *(*run)(void *), struct ds_board *board);
/* A launch after idleness, a held thread, a new policy: watchdog and poller are wanted. Cheap when they are awake. */
void ds_wake(struct ds_board *board);
void ds_linger(struct ds_board *board); /* idle_at_ns was set: the watchdog naps no longer than that */
/* a sleep that ds_wake() ends, if `awake` was set to 0 before the last look at what there is to do */
void ds_sleep(struct ds_board *board, enum ds_sleeper who, uint64_t ns);
/* A nap that ends when the program has lingered long enough: who is held longer than that is held for nothing. */
void ds_nap_lingering(struct ds_board *board, uint64_t ns);

#endif
