/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What the RM core takes from its surroundings: types, memory, atomics, one
 * mutex. The kernel and user space give the same names; nothing else in this
 * folder may include a header of either.
 *
 * Memory: rm_zalloc() may sleep and may fail; in the kernel it is charged to
 * the memory cgroup of the caller, for tables grow as a tenant asks, but never
 * waits for that one.
 */
#ifndef DETSHARE_RM_PORT_H
#define DETSHARE_RM_PORT_H

#ifdef __KERNEL__

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/prefetch.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>

typedef struct {
	atomic64_t v;
} rm_atomic64;

static inline s64 rm_atomic_read(const rm_atomic64 *a)
{
	return atomic64_read(&a->v);
}

static inline void rm_atomic_set(rm_atomic64 *a, s64 value)
{
	atomic64_set(&a->v, value);
}

static inline s64 rm_atomic_add_return(rm_atomic64 *a, s64 value)
{
	return atomic64_add_return(value, &a->v);
}

/* On failure *old holds what was found. */
static inline bool rm_atomic_try_cmpxchg(rm_atomic64 *a, s64 *old, s64 value)
{
	return atomic64_try_cmpxchg(&a->v, old, value);
}

/*
 * For who may hold locks that others wait for. A full cgroup is charged past its limit: nobody searches it for memory here. Where the machine
 * is short of memory, and only there, it is searched, and nobody is charged.
 */
static inline void *rm_zalloc(size_t size)
{
	unsigned int flags = memalloc_noreclaim_save();
	void *p = kvzalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOMEMALLOC | __GFP_NOWARN);

	memalloc_noreclaim_restore(flags);
	return p ?: kvzalloc(size, GFP_KERNEL);
}

static inline void rm_mfree(const void *p)
{
	kvfree(p);
}

static inline u64 rm_random64(void)
{
	return get_random_u64();
}

static inline u64 rm_mod64(u64 value, u64 by)
{
	u64 rest;

	div64_u64_rem(value, by, &rest);
	return rest;
}

#define RM_DEFINE_MUTEX(name) DEFINE_MUTEX(name)
#define rm_mutex_lock(m) mutex_lock(m)
#define rm_mutex_unlock(m) mutex_unlock(m)
#define rm_prefetch(p) prefetch(p)
/* An invariant of this code is broken: say so once, go on. True if broken. */
#define RM_BUG(cond) WARN_ON_ONCE(cond)

#else /* user space */

#ifndef _GNU_SOURCE
#error "compile with -D_GNU_SOURCE"
#endif
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

typedef struct {
	s64 v;
} rm_atomic64;

static inline s64 rm_atomic_read(const rm_atomic64 *a)
{
	return __atomic_load_n(&a->v, __ATOMIC_RELAXED);
}

static inline void rm_atomic_set(rm_atomic64 *a, s64 value)
{
	__atomic_store_n(&a->v, value, __ATOMIC_RELAXED);
}

static inline s64 rm_atomic_add_return(rm_atomic64 *a, s64 value)
{
	return __atomic_add_fetch(&a->v, value, __ATOMIC_SEQ_CST);
}

static inline bool rm_atomic_try_cmpxchg(rm_atomic64 *a, s64 *old, s64 value)
{
	return __atomic_compare_exchange_n(&a->v, old, value, false,
					   __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Tests make allocations fail by this hook; NULL: none fails. */
extern bool (*rm_fail_alloc)(size_t size);

static inline void *rm_zalloc(size_t size)
{
	void *p = NULL;

	/* whole cache lines, as the kernel's allocator gives from 64 bytes on */
	if ((rm_fail_alloc && rm_fail_alloc(size)) || posix_memalign(&p, 64, size))
		return NULL;
	return memset(p, 0, size);
}

static inline void rm_mfree(const void *p)
{
	free((void *)p);
}

static inline u64 rm_random64(void)
{
	u64 value = 0;

	if (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value))
		abort();
	return value;
}

static inline u64 rm_mod64(u64 value, u64 by)
{
	return value % by;
}

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define noinline __attribute__((noinline))
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))

#define RM_DEFINE_MUTEX(name) pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER
#define rm_mutex_lock(m) pthread_mutex_lock(m)
#define rm_mutex_unlock(m) pthread_mutex_unlock(m)
#define rm_prefetch(p) __builtin_prefetch(p)
#define RM_BUG(cond) \
	(unlikely(cond) ? (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond), \
			   abort(), true) : false)

#endif /* __KERNEL__ */

#define RM_U64_MAX ((u64)-1)
#define RM_S64_MAX ((s64)(RM_U64_MAX >> 1))

static inline u64 rm_min64(u64 a, u64 b)
{
	return a < b ? a : b;
}

static inline u64 rm_max64(u64 a, u64 b)
{
	return a > b ? a : b;
}

#endif /* DETSHARE_RM_PORT_H */
