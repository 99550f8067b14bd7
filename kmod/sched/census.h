/* SPDX-License-Identifier: GPL-2.0-only */
/* All compute channel groups at one moment: what each has by us, and what it is to have by orders, rows of classes and weights. */
#ifndef DETSHARE_CENSUS_H
#define DETSHARE_CENSUS_H

#include "process.h"
#include "shares.h"

/* Hangs on a channel group's object (priv) from its first order on. Under client->tree. */
struct ds_managed {
	u64 slice_before;	/* 0: never set by us */
	u64 slice;		/* set by us, 0: as it was */
	s32 level;		/* set by us, -1: as it was */
	u32 tpc_percent;	/* ceiling in force, 0: none */
	bool ordered;		/* an order is in force for it */
	bool defaults;		/* what its program chose for itself before is set back */
	bool failed;		/* the driver refused something: not yet as it is to be */
};

struct ds_target {
	struct ds_process *process;	/* held */
	u32 client, tsg, gpu;
	struct ds_managed is;
	u64 turn;			/* whose turn it runs in, a name to compare; 0: it has none */
	bool fixed;			/* it cannot be off (MPS): it runs in everybody's */
	unsigned int share;		/* 1 + its account's place among the shares; 0: no weight */
	struct {
		bool managed;
		u64 slice;		/* 0: as it was */
		bool own;		/* that is the order's own */
		s32 level;		/* -1: as it was */
		u32 tpc_percent;	/* 0: no ceiling */
		bool defaults;
	} want;
};

struct ds_census {
	struct ds_target *targets;
	struct ds_share *shares;
	unsigned int count, room, shared;
};

#define for_each_target(target, census) \
	for (target = (census)->targets; target < (census)->targets + (census)->count; target++)

/* -ENOMEM. `nothing`: nobody is to have anything any more. */
int ds_census_take(struct ds_census *census, bool nothing);
void ds_census_free(struct ds_census *census);

/* Has it all that it is to have? */
bool ds_target_in_line(const struct ds_target *target);

#endif
