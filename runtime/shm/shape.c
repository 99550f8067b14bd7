// SPDX-License-Identifier: Apache-2.0
/*
 * How long kernels of each shape take, for policies: shapes that take most time keep an entry of the counters' page. One thread writes
 * it, the poller; a reader may see a count without its time, or an entry that is changing hands as free.
 */
#include "shape.h"

#define PUT(where, value) __atomic_store_n(&(where), value, __ATOMIC_RELAXED)

void ds_shape_note(struct ds_counters *counters, const struct ds_sample *sample, double ns)
{
	uint32_t blocks = sample->blocks > UINT32_MAX ? UINT32_MAX : (uint32_t)sample->blocks;
	uint32_t *hist;
	unsigned int n, least = 0;

	if (!blocks)
		return;
	PUT(counters->last_blocks, blocks);
	for (n = 0; n < DS_SHAPES; n++) {
		if (counters->shape_blocks[n] == blocks && counters->shape_threads[n] == sample->threads)
			break;
		if (counters->shape_ns[n] < counters->shape_ns[least])
			least = n;
	}
	if (n == DS_SHAPES) {
		/* it inherits the time: who comes seldom does not push out who comes often, and what comes often gets in at last */
		n = least;
		__atomic_store_n(&counters->shape_blocks[n], 0, __ATOMIC_SEQ_CST);
		for (unsigned int i = 0; i < DS_HIST_BUCKETS; i++)
			PUT(counters->shape_hist[n * DS_HIST_BUCKETS + i], 0);
		PUT(counters->shape_threads[n], sample->threads);
		__atomic_store_n(&counters->shape_blocks[n], blocks, __ATOMIC_RELEASE);
	}
	PUT(counters->shape_ns[n], counters->shape_ns[n] + (uint64_t)ns);
	hist = &counters->shape_hist[n * DS_HIST_BUCKETS + ds_bucket(ns)];
	PUT(*hist, *hist + 1);
}
