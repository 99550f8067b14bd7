// SPDX-License-Identifier: GPL-2.0-only
/*
 * Device memory behind managed ranges: chunks of at most 2 MiB, taken when UVM_MIGRATE asks or when the GPU touches an
 * address, given back when the memory goes elsewhere or ends. Nothing is evicted.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "uvm.h"

#define BLOCK_SHIFT	21

/* Named as the driver's: all device memory of managed ranges comes and goes by these two. */
noinline NV_STATUS uvm_pmm_gpu_alloc(struct sim_gpu *gpu, size_t chunks, u64 chunk_size);
noinline void uvm_pmm_gpu_free(struct sim_gpu *gpu, u64 chunk_size);

noinline NV_STATUS uvm_pmm_gpu_alloc(struct sim_gpu *gpu, size_t chunks, u64 chunk_size)
{
	return sim_uvm_take(gpu, chunks * chunk_size) ? NV_OK : NV_ERR_NO_MEMORY;
}

noinline void uvm_pmm_gpu_free(struct sim_gpu *gpu, u64 chunk_size)
{
	sim_uvm_give(gpu, chunk_size);
}

static unsigned long index_of(u64 block, unsigned int gpu)
{
	return block * SIM_GPUS_MAX + gpu;
}

static u64 resident(struct uvm_range *range, u64 block, unsigned int gpu)
{
	void *entry = xa_load(&range->chunks, index_of(block, gpu));

	return entry ? (u64)xa_to_value(entry) << PAGE_SHIFT : 0;
}

static NV_STATUS set_resident(struct uvm_range *range, u64 block, unsigned int gpu, u64 bytes)
{
	if (!bytes) {
		xa_erase(&range->chunks, index_of(block, gpu));
		return NV_OK;
	}
	return xa_err(xa_store(&range->chunks, index_of(block, gpu), xa_mk_value(bytes >> PAGE_SHIFT), GFP_KERNEL)) ?
	       NV_ERR_NO_MEMORY : NV_OK;
}

/* Bytes of [from, to) in a block. */
static u64 part_of(u64 block, u64 from, u64 to)
{
	u64 begin = max(block << BLOCK_SHIFT, from), end = min((block + 1) << BLOCK_SHIFT, to);

	return end > begin ? end - begin : 0;
}

static void give(struct uvm_range *range, u64 block, unsigned int gpu, u64 bytes)
{
	u64 have = resident(range, block, gpu);

	bytes = min(have, bytes);
	if (!bytes)
		return;
	set_resident(range, block, gpu, have - bytes);
	uvm_pmm_gpu_free(&sim_gpus[gpu], bytes);
}

static NV_STATUS take(struct uvm_range *range, u64 block, unsigned int gpu, u64 bytes)
{
	u64 have = resident(range, block, gpu);
	NV_STATUS status;

	if (have >= bytes)
		return NV_OK;
	status = uvm_pmm_gpu_alloc(&sim_gpus[gpu], 1, bytes - have);
	if (status != NV_OK)
		return status;
	status = set_resident(range, block, gpu, bytes);
	if (status != NV_OK)
		uvm_pmm_gpu_free(&sim_gpus[gpu], bytes - have);
	return status;
}

void uvm_chunks_leave(struct uvm_range *range, u64 from, u64 to, struct sim_gpu *except)
{
	for (u64 block = from >> BLOCK_SHIFT; part_of(block, from, to); block++)
		for (unsigned int i = 0; i < SIM_GPUS_MAX; i++)
			if (&sim_gpus[i] != except)
				give(range, block, i, part_of(block, from, to));
}

/* All of it or, without enough memory, none: what was there leaves too. */
NV_STATUS uvm_chunks_enter(struct uvm_range *range, u64 from, u64 to, struct sim_gpu *gpu)
{
	NV_STATUS status = NV_OK;

	for (u64 block = from >> BLOCK_SHIFT; part_of(block, from, to) && status == NV_OK; block++)
		status = take(range, block, gpu->index, part_of(block, from, to));
	uvm_chunks_leave(range, from, to, status == NV_OK ? gpu : NULL);
	return status;
}

/* gpu -1: of all */
void uvm_chunks_drop(struct uvm_range *range, int gpu)
{
	unsigned long index;
	void *entry;

	xa_for_each(&range->chunks, index, entry)
		if (gpu < 0 || index % SIM_GPUS_MAX == gpu)
			give(range, index / SIM_GPUS_MAX, index % SIM_GPUS_MAX, U64_MAX);
}

/* What lies from the tail's beginning on becomes the tail's. */
void uvm_chunks_split(struct uvm_range *range, struct uvm_range *tail)
{
	u64 end = tail->base + tail->length;
	unsigned long index;
	void *entry;

	xa_for_each(&range->chunks, index, entry) {
		u64 block = index / SIM_GPUS_MAX, have = resident(range, block, index % SIM_GPUS_MAX);
		u64 moved = min(have, part_of(block, tail->base, end));

		/* without memory for the note it stays charged to the head until that ends */
		if (moved && set_resident(tail, block, index % SIM_GPUS_MAX, moved) == NV_OK)
			set_resident(range, block, index % SIM_GPUS_MAX, have - moved);
	}
}

/* ---- what the GPU touches ---- */

/* Under a VA space's lock, where ranges cannot be looked up: the worker does. */
static void touched(void *owner, struct sim_gpu *gpu, u64 va)
{
	struct uvm_space *space = owner;
	unsigned long index = index_of(va >> BLOCK_SHIFT, gpu->index);

	if (xa_load(&space->touched, index) || xa_err(xa_store(&space->touched, index, xa_mk_value(1), GFP_KERNEL)))
		return;
	if (!kref_get_unless_zero(&space->ref))
		return;
	if (!queue_work(uvm_faults, &space->service))
		uvm_space_put(space);
}

void uvm_service_faults(struct work_struct *work)
{
	struct uvm_space *space = container_of(work, struct uvm_space, service);
	struct uvm_range *range;
	unsigned long index;
	void *entry;

	mutex_lock(&space->lock);
	xa_for_each(&space->touched, index, entry) {
		u64 block = index / SIM_GPUS_MAX, from = block << BLOCK_SHIFT, to = from + (1 << BLOCK_SHIFT);

		xa_erase(&space->touched, index);
		list_for_each_entry(range, &space->ranges, link)
			if (range->kind == UVM_MANAGED && part_of(block, range->base, range->base + range->length))
				uvm_chunks_enter(range, max(from, range->base), min(to, range->base + range->length),
						 &sim_gpus[index % SIM_GPUS_MAX]);
	}
	mutex_unlock(&space->lock);
	uvm_space_put(space);
}

void uvm_watch(struct uvm_space *space, struct uvm_range *range)
{
	range->memory->toucher = space;
	range->memory->touched = touched;
}
