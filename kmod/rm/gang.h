/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Turns of tenants that work on several GPUs, ranks of one job mostly: each has its turn on all of them at the same time, for a rank that
 * is off holds the others up. Plain arithmetic; times are ns of one clock.
 *
 * Gangs take turns with each other and with all others on their GPUs, who count as one here and have the time between, by the rota of each
 * GPU (rota.h). Where the foreground of one of its GPUs leaves no gaps a gang lives off its floor, in windows, on all of them.
 */
#ifndef DETSHARE_RM_GANG_H
#define DETSHARE_RM_GANG_H

#include "rota.h"
#include "tree.h"

#define RM_GANG_KEEP_NS 1000000000ull	/* who wanted two GPUs within so long is one: a rank rests while it waits for the others */

/* A tenant on a GPU. */
struct rm_gang_place {
	u64 wanted;	/* when it was seen to want it last, 0: never */
	u64 ran;	/* ns in which it was on since the turn passed */
	u32 floor;	/* as rm_rota_tenant.floor */
	bool wants;
};

struct rm_gang {
	struct rm_rota_tenant tenant;
	u32 rank;	/* while it has turns: tenant.rank is 0 while it has none */
	struct rm_gang_place at[RM_GPUS];
	u64 told;	/* of the most that it ran anywhere: that was counted */
	u32 on;		/* GPUs on which it wanted to run lately, a bit each */
};

/* Those on a GPU that are no gangs. */
struct rm_gang_others {
	bool want;
	u32 rank, floor;
	u64 turn;	/* ns of all of their turns */
};

struct rm_gangs {
	struct rm_gang *tenants;	/* all that wanted a GPU lately, gangs or not */
	struct rm_rota_tenant *scratch;	/* one more than `room` */
	unsigned int count, room;
	struct rm_rota rota;
	u64 since;			/* when the turn passed last */
	struct rm_rota_tenant rest;	/* what stands for the others there */
	struct rm_gang_others others[RM_GPUS];
	u32 covered;			/* GPUs of gangs, a bit each */
	u32 closed;			/* the same: the foreground leaves no gaps */
};

/* What comes of it on one GPU. */
struct rm_gang_word {
	bool here;		/* some that have turns on it are gangs */
	bool taken;		/* one of them has it: all others wait */
	u64 holder;		/* its key */
	enum rm_rota_kind kind;
	u64 left;		/* as rm_rota.left */
	u64 next;		/* when to step again, as rm_rota_step() says it */
	u32 again;		/* other GPUs for which something changed, a bit each */
};

/*
 * Goes on to `now`. tenants: all that have turns on the GPU, as for rm_rota_step(), each with its part of its class's floor. Gangs are taken out
 * of them. Of more tenants than there is room for the last are no gangs.
 */
void rm_gang_step(struct rm_gangs *gangs, u32 gpu, struct rm_rota_tenant *tenants, unsigned int *count, bool closed, u64 now,
		  struct rm_gang_word *word);

#endif
