/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A channel's host side: GPFIFO entries, pushbuffer segments, host methods, the simulated kernels'
 * methods. Plain C, like engine_sched.h; GPU memory is reached through two functions.
 */
#ifndef NVSIM_RING_H
#define NVSIM_RING_H

#include "engine_sched.h"

#define RING_FETCH 32 /* dwords read from the pushbuffer at once */

/* 0, or negative where memory is not mapped */
struct ring_memory {
	int (*read)(void *vas, u64 va, void *buf, size_t n);
	int (*write)(void *vas, u64 va, const void *buf, size_t n);
};

enum ring_result {
	RING_IDLE,    /* every entry was consumed */
	RING_MORE,    /* the budget ran out */
	RING_KERNEL,  /* LAUNCH: ring->kernel says what */
	RING_ACQUIRE, /* a semaphore is not there yet: call again */
	RING_FAULT,   /* memory not mapped, or a word that means nothing; ring->fault says where */
};

struct ring_kernel {
	u64 ns;	   /* SIM_KERNEL_ENDLESS */
	u64 until; /* address, or 0 */
	u64 count; /* address, or 0 */
	u32 sms;
	u32 until_not;
};

struct ring {
	const struct ring_memory *memory;
	void *vas;
	u64 gpfifo;
	u32 entries;
	u32 get; /* first entry not fetched: as on a GPU, it says nothing about ends */
	u32 put; /* as it was when it was last looked at */
	/* the segment of the entry before `get` */
	u64 segment;
	u32 left; /* dwords not read yet; 0 with open: the entry is done */
	bool open;
	u32 fetched, taken;
	u32 fetch[RING_FETCH];
	/* the header at work */
	u32 op, method, count;
	/* what methods have set */
	u64 sem_addr, sem_payload;
	u32 acquire; /* SEM_EXECUTE word of an acquire that waits; 0: none */
	bool acquiring;
	struct ring_kernel kernel;
	bool only_copies; /* LAUNCH means nothing here */
	u64 fault;
};

void ring_init(struct ring *ring, const struct ring_memory *memory, void *vas, u64 gpfifo,
	       u32 entries);
/*
 * GP_PUT as read from USERD. False: not below the number of entries, nothing changed.
 * /
 */
bool ring_put(struct ring *ring, u32 put);
bool ring_pending(const struct ring *ring);
/* False while the acquire that stopped ring_step() is still unmet. */
bool ring_ready(struct ring *ring);
/* Forget entries that were not begun. */
void ring_rewind(struct ring *ring);
/* Process up to `budget` dwords at GPU time `now` (ns), up to the first launch or unmet acquire. */
enum ring_result ring_step(struct ring *ring, u64 now, u32 budget);

#endif
