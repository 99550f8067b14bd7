/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Turns among tenants of one GPU: who may run now, and until when. Plain arithmetic; times are ns of one clock.
 *
 * Of those that want the GPU, those of the highest rank take turns, in proportion to their weights. A turn ends when its time is over and
 * somebody else waits, and at once when its holder wants nothing any more: then it has the rest of it when it is back, before the next
 * holder goes on. Who has a floor and no turns (others rank higher, or the
 * foreground leaves no gaps: `closed`) is owed that part of the time, and has it in whole windows, in the midst of a turn too, whose
 * holder has the rest afterwards.
 */
#ifndef DETSHARE_RM_ROTA_H
#define DETSHARE_RM_ROTA_H

#include "port.h"

#define RM_ROTA_NEVER	  ((u64)-1)
#define RM_ROTA_WINDOW_NS 10000000ull	/* of a floor, at most */
#define RM_ROTA_SHORT_NS  4000000ull	/* the same, at least */
#define RM_ROTA_WHOLE	  1000000u	/* of this floors are parts: many who divide one have little each, and no more than it together */
#define RM_ROTA_FLOORS	  900000u	/* all floors together, so that something is left to whom they are defended against */
#define RM_ROTA_EACH_NS	  600000000ull	/* in so long who lives off a floor has a window, if it is not too short */
#define RM_ROTA_OWED_NS	  2000000000ull	/* what a floor gives in so long is all that is paid for windows that were too long: nobody starves */
#define RM_ROTA_SPAN_NS  1000000000000ull /* who has not been served for so long has what is kept at most, and no time is multiplied that is longer */
#define RM_ROTA_ROUND_NS  900000000ull	/* all turns of a round, at most: nobody waits for a second */
#define RM_ROTA_LEAST_NS  5000000ull	/* a turn; shorter ones are not worth two calls of the driver */

enum rm_rota_kind {
	RM_ROTA_NONE,
	RM_ROTA_TURN,
	RM_ROTA_WINDOW,
};

/* All but `deficit`, `over`, `saved` and `rested` is told anew for each step. */
struct rm_rota_tenant {
	u64 key;	/* whose; not 0 */
	u32 rank, weight;
	u32 floor;	/* millionths of the time */
	u32 share;	/* for rm_rota_divide(): with whom it divides its floor, a name to compare */
	u64 turn;	/* ns at weight 1 */
	bool wants;	/* it has something to do */
	u64 ran;	/* ns since the last step in which it was on: that of its turn is used by */
	u64 deficit;	/* of its floor, ns */
	u64 over;	/* ns that it ran beyond its turns and windows while others waited, and did not pay for yet */
	u64 saved;	/* ns of its turn that are left to it, while another one has the GPU */
	bool rested;	/* for it wanted nothing any more; else it let such a one through */
};

struct rm_rota {
	struct rm_rota_tenant *tenants;	/* those that are there, in the order of their turns */
	unsigned int count;
	u64 stepped;	/* when the last step was made, 0: none */
	u64 holder;	/* key, 0: nobody */
	u64 last;	/* key of who had the last turn, not window; who is let through does not count */
	enum rm_rota_kind kind;
	u64 left;	/* ns of the turn or window that are not used */
	u64 used;	/* ns that are, since the holder has it */
	bool waited;	/* at the last step somebody else waited for a turn */
	u64 apart;	/* ns until another window may begin */
};

/* A floor is told as its class's: those of it who want the GPU divide it. */
void rm_rota_divide(struct rm_rota_tenant *tenants, unsigned int count);
/*
 * Goes on to `now`. closed: nobody but windows. When to step again, if nothing changes before: RM_ROTA_NEVER, or a time after now.
 */
u64 rm_rota_step(struct rm_rota *rota, u64 now, bool closed);
/* The same where somebody else has the GPU, and all of these wait: who had the turn has the rest of it afterwards. */
void rm_rota_yield(struct rm_rota *rota, u64 now, bool closed);

#endif
