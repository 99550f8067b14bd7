/* SPDX-License-Identifier: Apache-2.0 */
/* nvstress: a program that works, and does to its doorbell and its address space what programs may do. */
#ifndef STRESS_H
#define STRESS_H

#include "nvclient.h"

#define STRESS_CHANNELS 4
#define STRESS_MEMORIES 8

struct stress {
	struct nv_program program;
	struct nv_channel channels[STRESS_CHANNELS];
	u32 channel_count;
	u32 memories[STRESS_MEMORIES]; /* handles; 0: none */
	u64 random;
	u64 most_ns;	 /* of a kernel */
	double patience; /* s without an end of any kernel, after which work counts as lost */
	double longest;	 /* s from a launch to its end */
	u64 refused;	 /* allocations */
};

struct stress_way {
	const char *name;
	u32 share; /* of all choices */
	void (*go)(struct stress *stress);
	u64 count;
};

extern struct stress_way stress_ways[]; /* ends with a NULL name */

u64 stress_random(struct stress *stress, u64 below);
struct nv_kernel stress_kernel(struct stress *stress);
/* Waits for all that was submitted; ends the program with exit code 3 where it never ends. */
void stress_settle(struct stress *stress);

#endif
