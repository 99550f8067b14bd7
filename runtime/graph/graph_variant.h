/* SPDX-License-Identifier: Apache-2.0 */
/* The executables of one graph for the tiers. */
#ifndef DS_GRAPH_VARIANT_H
#define DS_GRAPH_VARIANT_H

#include "graph_table.h"

/* The exec of the tier for a launch now (exec->lock held); NULL: not there, and then *reason is why. Asks for it to be
 * made in the background. With an exec *reason says why nodes of it stay on the full GPU, or is DS_FULL_REASONS. */
CUgraphExec ds_variant_for(struct ds_exec *exec, unsigned int tier, unsigned int *reason);
/* Waits until it is there or cannot be made, once for each tier and change of the graph and no longer than that takes as a rule; exec->lock not held. */
void ds_variant_await(struct ds_exec *exec, unsigned int tier);
/* Makes it in this thread; exec->lock not held. */
void ds_variant_build(struct ds_exec *exec, unsigned int tier);
/* asks for the tiers on which graphs of the device run */
void ds_variant_wish(struct ds_exec *exec);
void ds_variant_clear(struct ds_exec *exec, struct ds_variant *variant);
void ds_variant_clear_all(struct ds_exec *exec);
/* drops what is asked for and waits until no thread builds for it (exec->lock not held) */
void ds_variant_wait(struct ds_exec *exec);
void ds_variant_reset(void);

#endif
