// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that is kept without its handle, while the handle is freed and made anew: lanes go in pairs, one allocates and frees
 * the handle that the other maps, exports or imports. Whatever memory the driver then keeps must stay charged.
 */
#include <unistd.h>

#include "attack.h"
#include "keep.h"

#define FIRST_AT	0x400000000ull
#define LANE_ROOM	(1ull << 32)
#define RANGE		(2ull << 20)

static struct nv_program program;

static void start(struct attack *attack)
{
	nv_must_program(&program, attack->gpu_number, attack->version);
}

static u32 pair_handle(const struct lane *lane)
{
	return lane->attack->lane[lane->nr & ~1u].handle;
}

/* Bytes that a mapping can be made of, whichever of the sizes that it may have the memory has. */
static u32 make_and_free(struct lane *lane)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER,
					       .size = RANGE << lane_random(lane) % 3 };
	u32 handle = pair_handle(lane), status;

	status = nv_memory(&program.nv, program.client, program.device, &handle, &ask, NULL);
	nv_free(&program.nv, program.client, program.device, pair_handle(lane));
	return status;
}

static bool full(struct lane *lane)
{
	return lane->kept_count == MOST_DUPS || (lane->kept_count && lane_random(lane) % 8 == 0);
}

static void unmap_all(struct lane *lane)
{
	while (lane->kept_count)
		nv_uvm_free(&program, lane->kept[--lane->kept_count], RANGE);
}

static u32 mapped(struct lane *lane)
{
	u64 va = FIRST_AT + lane->nr * LANE_ROOM + lane->kept_count * RANGE;
	u32 status;

	if (!(lane->nr & 1))
		return make_and_free(lane);
	if (full(lane)) {
		unmap_all(lane);
		return NV_ERR_BUSY_RETRY;
	}
	status = nv_uvm_map(&program, pair_handle(lane), va, RANGE);
	if (status)
		nv_uvm_free(&program, va, RANGE);
	else
		lane->kept[lane->kept_count++] = va;
	return status;
}

static void close_all(struct lane *lane)
{
	while (lane->kept_count)
		close((int)lane->kept[--lane->kept_count]);
}

static u32 exported(struct lane *lane)
{
	u32 status;
	int fd;

	if (!(lane->nr & 1))
		return make_and_free(lane);
	if (full(lane)) {
		close_all(lane);
		return NV_ERR_BUSY_RETRY;
	}
	if (lane_random(lane) & 1)
		status = nv_export(&program.nv, program.client, program.device, pair_handle(lane), &fd);
	else
		status = nv_dmabuf(&program.nv, program.gpu, program.client, pair_handle(lane), RANGE, &fd);
	if (!status)
		lane->kept[lane->kept_count++] = (u64)fd;
	return status;
}

static void free_all(struct lane *lane)
{
	while (lane->kept_count)
		nv_free(&program.nv, program.client, program.device, (u32)lane->kept[--lane->kept_count]);
}

/* The descriptor is closed as soon as it was imported. */
static u32 imported(struct lane *lane)
{
	u32 handle = lane->other + lane->kept_count, status;
	int fd;

	if (!(lane->nr & 1))
		return make_and_free(lane);
	if (full(lane)) {
		free_all(lane);
		return NV_ERR_BUSY_RETRY;
	}
	status = nv_export(&program.nv, program.client, program.device, pair_handle(lane), &fd);
	if (status)
		return status;
	status = nv_import(&program.nv, program.client, program.device, &handle, fd);
	close(fd);
	if (!status)
		lane->kept[lane->kept_count++] = handle;
	return status;
}

static void stop(struct attack *attack)
{
	struct lane *lane;

	for (lane = attack->lane; lane < attack->lane + attack->lanes; lane++) {
		if (attack->way->ask == mapped)
			unmap_all(lane);
		else if (attack->way->ask == exported)
			close_all(lane);
		else
			free_all(lane);
	}
	nv_close_program(&program);
}

const struct way keeping_ways[] = {
	{ "mapped", "a handle is freed and made anew while it is mapped through nvidia-uvm", NULL, mapped, NULL, start, stop,
	  true },
	{ "exported", "the same while it is exported to a descriptor or a DMA buffer", NULL, exported, NULL, start, stop, true },
	{ "imported", "the same, and what was exported is imported", NULL, imported, NULL, start, stop, true },
	{ 0 }
};
