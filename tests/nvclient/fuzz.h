/* SPDX-License-Identifier: Apache-2.0 */
/* Random ioctls from a seed: what nvfuzz.c and fuzz_escapes.c have of each other. */
#ifndef NVCLIENT_FUZZ_H
#define NVCLIENT_FUZZ_H

#include "nvclient.h"

#define ARENA		0x20000000ul	/* all pointers that are not garbage point here */
#define ARENA_SIZE	0x10000
#define CLIENTS		4
#define SHOWN		64		/* bytes of a block in a traced line */

enum device { CTL, GPU, UVM, DEVICES };

extern struct fuzz {
	const struct rm_abi *abi;
	int fd[DEVICES];
	u32 clients[CLIENTS], client_count;
	u64 state, hash, calls, errors, statuses, trace_first, trace_last;
	u8 asked[SHOWN];	/* of this call */
	u32 asked_size;
} fuzz;

struct escape {
	u32 nr, size, status;	/* offset of the status in the block */
	void (*fill)(u8 *block);
	enum device device;
};

u64 fuzz_next(void);
u32 fuzz_below(u32 n);
u64 fuzz_pointer(void);
u32 fuzz_size(u32 right);
void fuzz_bytes(u8 *at, u32 size);
/* One of the escapes, and how its block is filled; true: it would change the machine or wait, and is not to be sent. */
bool fuzz_escape(struct escape *e);

#endif
