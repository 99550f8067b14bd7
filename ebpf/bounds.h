/* SPDX-License-Identifier: GPL-2.0-only */
/* What is known of each process as a whole: where its allocations lie, what is captured, what was unloaded. */
#ifndef DETSHARE_EBPF_BOUNDS_H
#define DETSHARE_EBPF_BOUNDS_H

#include "dirty.h"

MAP(BPF_MAP_TYPE_HASH, bounds, 4, sizeof(struct ds_bounds))

/* Those of a process, made where there are none; 0: the table is full, which is noted. */
static __always_inline struct ds_bounds *bounds_of(u32 pid)
{
	struct ds_bounds none = { .low = ~0ull }, *known = map_find(bounds, &pid);

	if (!known) {
		map_set(bounds, &pid, &none, BPF_NOEXIST);
		known = map_find(bounds, &pid);
	}
	if (!known)
		note_trouble(DS_FULL);
	return known;
}

static __always_inline void unload(u32 pid)
{
	struct ds_bounds *known = bounds_of(pid);

	if (known)
		__sync_fetch_and_add(&known->unloads, 1);
}

static __always_inline void capture(u32 pid, s64 more)
{
	struct ds_bounds *known = bounds_of(pid);

	if (known && (more > 0 || known->captures))
		__sync_fetch_and_add(&known->captures, more);
}

static __always_inline void widen(u32 pid, u64 low, u64 size)
{
	struct ds_bounds *known = bounds_of(pid);

	if (!known)
		return;
	if (low < known->low)
		known->low = low;
	if (low + size > known->high)
		known->high = low + size;
}

#endif
