/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvhostile: a tenant that wants more than it was given. A trick is one attempt; whether it worked is for who watches the
 * simulated GPU to say, not for the trick.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "base.h"

#define PARAMS 32768	/* above every parameter block used here */
#define NOBODY 0	/* status of a trick that ends before the driver was asked */

struct hostile {
	struct nv_program program;
	struct nv_channel channel;	/* in the compute TSG, scheduled */
	u32 raw;			/* NV2081_BINAPI; 0: could not be made */
	/* of the neighbour: named by who watches */
	u32 other_client, other_tsg, other_channel;
};

struct trick {
	const char *name;
	/*
	 * What it wants, so what to look at:
	 *   order      another slice, level, mode or policy than ordered
	 *   run        to run while it is paused
	 *   ring       a ring that gets through while its gate is shut
	 *   door       a doorbell that no gate can shut
	 *   neighbour  channels, slice or mode of the neighbour
	 *   tell       numbers of the neighbour
	 */
	const char *goal;
	const char *about;
	u32 (*play)(struct hostile *h);	/* the driver's status */
};

extern const struct trick order_tricks[], run_tricks[], ring_tricks[], door_tricks[], neighbour_tricks[];

/* Zeroed parameters, the same each time. */
u8 *fresh_params(void);
void put_word(u8 *params, u32 at, u32 value);
u32 control(struct hostile *h, u32 object, u32 cmd, void *params, u32 size);

/* SET_TIMESLICE's parameters for a slice that nobody would order. */
u8 *slice_params(void);
#define SLICE_US 77777

/* Switch channels of a client; the parameters of FIFO_DISABLE_CHANNELS. */
u8 *channels_off(struct hostile *h, u32 client, u32 channel, bool off);

/* Runs `play` in a child for at most `ms`; its status, NV_ERRNO(ETIME) if it hung. */
u32 in_child(struct hostile *h, u32 (*play)(struct hostile *h), u32 ms);

/* An endless kernel into the ring, and a ring of the doorbell. */
void submit_endless(struct nv_channel *channel);
/* The token of the program's channel to a doorbell page that may have to wait. */
void ring_at(volatile u32 *doorbell, u32 token);
/* A new TSG of the program's client with a channel, scheduled, and an endless kernel in it. */
u32 run_new_group(struct hostile *h);
/* A program of its own with an endless kernel. */
u32 run_new_program(struct hostile *h);

#endif
