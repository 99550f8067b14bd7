/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Memory with several payers: the inside of tree.h's struct rm_memory. */
#ifndef DETSHARE_RM_MEMORY_H
#define DETSHARE_RM_MEMORY_H

#include "tree.h"

/* One payer's holds of one memory; in a list of each. */
struct rm_holding {
	struct rm_memory *memory;
	struct rm_payer *payer;
	u32 holds;
	struct rm_holding *next;		/* of the memory */
	struct rm_holding *payer_next;
	struct rm_holding **payer_prev;		/* what points here */
};

struct rm_memory {
	u64 bytes;
	u64 holds;		/* all */
	u64 unpaid;		/* of these, without a payer */
	struct rm_holding *holdings;
};

#endif /* DETSHARE_RM_MEMORY_H */
