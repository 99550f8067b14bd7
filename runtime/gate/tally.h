/* SPDX-License-Identifier: Apache-2.0 */
/* What each thread launched, and a barrier for all of them. */
#ifndef DS_TALLY_H
#define DS_TALLY_H

#include "state.h"

/* every thread of the process executes one; see state.h */
void ds_barrier(void);
void ds_barrier_register(void); /* once per process, before the first launch on a board */
struct ds_tally *ds_tally_slow(struct ds_board *board);
/* All launches so far; *inside: some thread is in one, which may not be counted yet. */
uint64_t ds_launches(struct ds_board *board, bool *inside);

static inline struct ds_tally *ds_tally_of(struct ds_board *board)
{
	struct ds_tally *tally = ds_thread.tally;

	return ds_likely(tally && tally->board == board) ? tally : ds_tally_slow(board);
}

#endif
