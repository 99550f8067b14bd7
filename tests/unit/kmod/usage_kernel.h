/* SPDX-License-Identifier: GPL-2.0-only */
/* What kmod/sched/usage.c and turns.c use of the kernel and of entity.h, for a shared object in user space. A lock counts what is done in it. */
#ifndef USAGE_KERNEL_H
#define USAGE_KERNEL_H
#define DETSHARE_ENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef int32_t s32;

#define U64_MAX UINT64_MAX
#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define READ_ONCE(x) (x)
#define max3(a, b, c) max(max(a, b), c)
#define clamp(x, low, high) min(max(x, low), high)
#define check_add_overflow __builtin_add_overflow
#define check_mul_overflow __builtin_mul_overflow

static inline u64 min(u64 a, u64 b)
{
	return a < b ? a : b;
}

static inline u64 max(u64 a, u64 b)
{
	return a > b ? a : b;
}

struct list_head {
	struct list_head *next, *prev;
};

#define list_for_each_entry(at, head, member) \
	for (at = (void *)((char *)(head)->next - offsetof(struct ds_entity, member)); &at->member != (head); \
	     at = (void *)((char *)at->member.next - offsetof(struct ds_entity, member)))

struct lock {
	bool held;
	u64 sections, sums;	/* sums: made while it was held */
	u64 traps;	/* quotients that do not fit, which a processor refuses */
};

extern struct lock *usage_lock;

static inline void spin_lock_irq(struct lock *lock)
{
	lock->held = true;
	lock->sections++;
}

static inline void spin_unlock_irq(struct lock *lock)
{
	lock->held = false;
}

static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 c)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	usage_lock->sums += usage_lock->held;
	if (!c || product / c > U64_MAX) {
		usage_lock->traps++;
		return 0;
	}
	return product / c;
}

#include "usage.h"

struct ds_runq {
	struct list_head entities;
	struct lock lock;
	u64 charged_ns;
};

struct ds_entity_pause {
	bool off;
	u64 moving_ns, off_ns, on_ns;
};

struct ds_entity {
	struct list_head link;
	struct ds_runq *runq;
	bool watched, active;
	u64 since_ns, launched_ns, ended_ns, known_ns, used_ns, slice_us;
	unsigned int tsgs;
	s32 level;
	struct ds_spell rest;
	struct ds_usage usage;
	struct ds_entity_pause pause;
};

static inline u64 ds_entity_ended(const struct ds_entity *entity)
{
	return entity->ended_ns > entity->launched_ns ? entity->ended_ns : 0;
}

#endif
