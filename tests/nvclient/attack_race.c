// SPDX-License-Identifier: Apache-2.0
/*
 * Races between lanes that use the same handles, clients and files: a charge must be given back once, neither twice nor
 * never, and not before the memory is free.
 */
#include <unistd.h>

#include "attack.h"

/* All lanes fill what is left, by any of three calls, until they are refused; then all is freed. */
static u32 near_the_limit(struct lane *lane)
{
	struct attack *attack = lane->attack;
	u32 handle = lane->handle, first = handle, status = 0;
	u64 size;

	while (!status && handle < first + 64) {
		size = PIECE << lane_random(lane) % 4;
		if (lane_random(lane) & 1)
			status = nv_vid_heap(&attack->nv, attack->client, attack->device, &handle, NVOS32_FUNCTION_ALLOC_SIZE, &size,
					     NULL, NULL);
		else
			status = attack_memory(lane, attack->client, attack->device, handle, size);
		lane_count(lane, status);
		handle++;
	}
	while (handle-- > first)
		nv_free(&attack->nv, attack->client, attack->device, handle);
	return status;
}

/* Lanes of a pair allocate and free the same handle; who comes second must not be given anything back. */
static u32 same_handle(struct lane *lane)
{
	struct attack *attack = lane->attack;
	u32 handle = attack->lane[lane->nr & ~1u].handle, status;

	status = attack_memory(lane, attack->client, attack->device, handle, lane->small);
	nv_free(&attack->nv, attack->client, attack->device, handle);
	if (lane_random(lane) & 1)
		nv_free(&attack->nv, attack->client, attack->device, handle);
	return status;
}

/* Copies outlive the original, which is freed while it is copied: what they hold stays charged. */
static u32 copies(struct lane *lane)
{
	struct attack *attack = lane->attack;
	struct lane *beside = &attack->lane[lane->nr ^ 1];
	u32 copy = lane->other + lane->dup_count, status;

	if (lane->dup_count == MOST_DUPS || (lane->dup_count && lane_random(lane) % 16 == 0)) {
		while (lane->dup_count)
			nv_free(&attack->nv, attack->second, attack->second_device, lane->dups[--lane->dup_count]);
		return NV_ERR_BUSY_RETRY;
	}
	status = attack_memory(lane, attack->client, attack->device, lane->handle, lane->small);
	if (beside < attack->lane + attack->lanes && (lane_random(lane) & 1))
		nv_dup(&attack->nv, attack->second, attack->second_device, &copy, attack->client, beside->handle);
	else
		nv_dup(&attack->nv, attack->second, attack->second_device, &copy, attack->client, lane->handle);
	nv_free(&attack->nv, attack->client, attack->device, lane->handle);
	lane->dups[lane->dup_count++] = copy;
	return status;
}

static void stop_copies(struct attack *attack)
{
	struct lane *lane;

	for (lane = attack->lane; lane < attack->lane + attack->lanes; lane++)
		while (lane->dup_count)
			nv_free(&attack->nv, attack->second, attack->second_device, lane->dups[--lane->dup_count]);
}

static u32 fresh_client(struct attack *attack, int file, u32 *client)
{
	u8 params[256] = { 0 };
	u32 device = NV_OBJECTS + 1, status;

	*client = 0;
	status = nv_alloc_on(&attack->nv, file, 0, 0, client, NV01_ROOT_CLIENT, NULL, 0);
	if (!status)
		status = nv_alloc_on(&attack->nv, file, *client, *client, &device, NV01_DEVICE_0, params,
				     attack->nv.abi->device.len);
	return status;
}

static u32 memory_on(struct lane *lane, int file, u32 client, u32 handle)
{
	const struct rm_abi *abi = lane->attack->nv.abi;
	u8 params[512] = { 0 };

	rm_put32(params, abi->memory.owner, client);
	rm_put64(params, abi->memory.size, lane->small);
	return nv_alloc_on(&lane->attack->nv, file, client, NV_OBJECTS + 1, &handle, NV01_MEMORY_LOCAL_USER, params,
			   abi->memory.len);
}

/* Lane 0 frees the client in which the others allocate, and makes another one. */
static u32 dying_client(struct lane *lane)
{
	struct attack *attack = lane->attack;
	u32 client = atomic_load(&attack->racing_client), fresh, status;

	if (lane->nr)
		return memory_on(lane, attack->nv.ctl, client, lane->handle + (u32)(lane_random(lane) & 0xff));
	status = fresh_client(attack, attack->nv.ctl, &fresh);
	atomic_store(&attack->racing_client, fresh);
	if (client)
		nv_free(&attack->nv, client, client, client);
	return status;
}

static void stop_dying_client(struct attack *attack)
{
	u32 client = atomic_exchange(&attack->racing_client, 0);

	nv_free(&attack->nv, client, client, client);
}

/* Lane 0 closes the file on which the others allocate, and opens another one. */
static u32 dying_file(struct lane *lane)
{
	struct attack *attack = lane->attack;
	int file = atomic_load(&attack->racing_file), fresh;
	u32 client = atomic_load(&attack->racing_client), status;

	if (lane->nr)
		return file < 0 ? NV_ERR_BUSY_RETRY :
				  memory_on(lane, file, client, lane->handle + (u32)(lane_random(lane) & 0xff));
	fresh = nv_open_device("nvidiactl");
	status = fresh < 0 ? NV_ERRNO(-fresh) : fresh_client(attack, fresh, &client);
	atomic_store(&attack->racing_client, client);
	atomic_store(&attack->racing_file, fresh);
	if (file >= 0)
		close(file);
	return status;
}

static void start_dying_file(struct attack *attack)
{
	atomic_store(&attack->racing_file, -1);
}

static void stop_dying_file(struct attack *attack)
{
	int file = atomic_exchange(&attack->racing_file, -1);

	if (file >= 0)
		close(file);
	atomic_store(&attack->racing_client, 0);
}

const struct way racing_ways[] = {
	{ "parallel", "all lanes fill what is left, by several calls", NULL, near_the_limit, NULL, NULL, NULL, false },
	{ "same-handle", "two lanes allocate and free one handle", NULL, same_handle, NULL, NULL, NULL, true },
	{ "copies", "copies in another client outlive what they were made of", NULL, copies, NULL, NULL, stop_copies, true },
	{ "dying-client", "a client is freed below lanes that allocate in it", NULL, dying_client, NULL, NULL, stop_dying_client,
	  true },
	{ "dying-file", "a file is closed below lanes that allocate on it", NULL, dying_file, NULL, start_dying_file,
	  stop_dying_file, true },
	{ 0 }
};
