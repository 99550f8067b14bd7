// SPDX-License-Identifier: GPL-2.0-only
/*
 * A GPU's memory, as arithmetic: how much is taken and how much ever was. Addresses are handed out in rising order and
 * mean nothing; only memory that somebody touches has host pages behind it.
 */
#include "sim.h"

bool sim_heap_take(struct sim_heap *heap, u64 bytes, u64 *offset)
{
	bool ok;

	spin_lock(&heap->lock);
	ok = bytes <= heap->size - heap->used;
	if (ok) {
		heap->used += bytes;
		heap->peak = max(heap->peak, heap->used);
		if (bytes > heap->size - heap->next)
			heap->next = 0;
		if (offset)
			*offset = heap->next;
		heap->next += bytes;
	}
	spin_unlock(&heap->lock);
	return ok;
}

void sim_heap_give(struct sim_heap *heap, u64 bytes)
{
	spin_lock(&heap->lock);
	WARN_ON(bytes > heap->used);
	heap->used -= bytes;
	spin_unlock(&heap->lock);
}

u64 sim_heap_free(struct sim_heap *heap)
{
	u64 free;

	spin_lock(&heap->lock);
	free = heap->size - heap->used;
	spin_unlock(&heap->lock);
	return free;
}
