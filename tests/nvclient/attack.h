/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvattack: threads that try to get more of a GPU's memory than an account allows.
 *
 * A lane is a thread that asks, and the two sets of blocks that it asks with: `small` is what fits in the account, `big`
 * what does not. A way by rewriting turns small into big and back while the call runs; a way by racing lets lanes do
 * contradicting things with the same handles.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include <pthread.h>
#include <stdatomic.h>

#include "nvclient.h"

#define PIECE		(64ull << 10)	/* the least that a GPU's memory is handed out by */
#define PAGE		4096u
#define MOST_LANES	64
#define MOST_STATUSES	12
#define MOST_DUPS	16

/* Where a lane's blocks lie in its arena, in pages. Those of *_BIG hold the big request. */
enum { NESTED, NESTED_BIG, OUTER, OUTER_BIG, WRAPPER, ARENA_PAGES };

struct count {
	u32 status;
	u64 times;
};

struct lane {
	struct attack *attack;
	u32 nr;
	u8 *arena;
	u32 handle, other;	/* the two handles that it uses */
	u64 small, big;
	u64 random;
	u64 attempts, granted, refused;
	struct count statuses[MOST_STATUSES];
	u32 dups[MOST_DUPS], dup_count;
	u64 kept[MOST_DUPS];	/* addresses or descriptors, of what is kept without a handle */
	u32 kept_count;
};

struct attack {
	struct nv nv;
	int gpu;		/* file */
	u32 gpu_number;
	const char *version;
	u32 client, device, second, second_device;
	u64 slack;		/* bytes of the account that are left for the lanes */
	int pages[2];		/* memory files: small and big nested block of all lanes, for the ways by remapping */
	int uffd;
	const struct way *way;
	u32 lanes, rewriters;
	struct lane lane[MOST_LANES];
	_Atomic bool asking, rewriting;
	_Atomic u32 racing_client;	/* which lanes use and one of them frees */
	_Atomic int racing_file;	/* which lanes use and one of them closes */
};

/*
 * One way. `prepare` runs before each call, `ask` makes it and gives the driver's status, `rewrite` is called over and
 * over by other threads. Ways without `rewrite` are races between lanes; their `prepare` is NULL.
 */
struct way {
	const char *name, *about;
	void (*prepare)(struct lane *lane);
	u32 (*ask)(struct lane *lane);
	void (*rewrite)(struct lane *lane, bool big);
	void (*start)(struct attack *attack);	/* before the threads start; may be NULL */
	void (*stop)(struct attack *attack);	/* after they ended; may be NULL */
	bool blind;	/* what the block says afterwards is not to be trusted: free whatever may be there */
};

extern const struct way rewriting_ways[], racing_ways[], keeping_ways[];	/* ends with a NULL name */

u64 lane_random(struct lane *lane);
void lane_count(struct lane *lane, u32 status);
void lane_free(struct lane *lane);	/* both handles, whether or not they exist */
u32 attack_memory(struct lane *lane, u32 client, u32 device, u32 handle, u64 bytes);

static inline u8 *lane_at(struct lane *lane, u32 page)
{
	return lane->arena + page * PAGE;
}

#endif
