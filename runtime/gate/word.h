/* SPDX-License-Identifier: Apache-2.0 */
/* What the policy and the other tenants want of us, kept up to date. */
#ifndef DS_WORD_H
#define DS_WORD_H

#include "state.h"

/* Copies what launches need from the policy's page, if a change is complete there. */
void ds_policy_refresh(struct ds_board *board);
/* Makes our word what it should be. Any thread may call it. */
void ds_upkeep(struct ds_board *board, uint64_t now);

#endif
