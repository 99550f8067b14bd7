/* SPDX-License-Identifier: Apache-2.0 */
/* From idle to active and back, as tenants of lower classes see it. */
#ifndef DS_EDGE_H
#define DS_EDGE_H

#include "state.h"

void ds_active_slow(struct ds_board *board);
/* Everything that was launched up to the `launches`th is done: stop holding lower classes, unless a launch came since. */
void ds_idle_edge(struct ds_board *board, uint64_t launches);
void ds_idle_later(struct ds_board *board, uint64_t launches); /* all done: idle now, or after the linger time */
void ds_bits_clear(struct ds_board *board); /* our bit in the words of others */

#endif
