/* SPDX-License-Identifier: Apache-2.0 */
/* What one launch is, for whoever looks at it on its way. */
#ifndef DS_LAUNCH_H
#define DS_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"

struct ds_board;
struct ds_stream;

enum ds_launch_kind { DS_LAUNCH_KERNEL, DS_LAUNCH_COOPERATIVE, DS_LAUNCH_GRAPH };

/* One launch, from before the gate to after the driver's call. */
struct ds_launch {
	struct ds_stream *stream;
	CUstream actual; /* where it goes */
	void *function; /* CUfunction, CUkernel or CUgraphExec as the program passed it */
	unsigned int grid[3], block[3];
	unsigned int shared; /* dynamic bytes per block */
	enum ds_launch_kind kind;
	const CUlaunchConfig *config; /* of the -Ex variants, else NULL */
	unsigned int tier; /* of actual */
	struct ds_board *board; /* whose gate it passed; NULL: none */
	bool captured; /* it becomes a node of a graph: no gate, no figures */
	uint64_t gate[2]; /* its sample by number, from 1, 0: not timed; and how many ns it is taken to need */
};

#endif
