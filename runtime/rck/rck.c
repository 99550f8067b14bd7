// SPDX-License-Identifier: Apache-2.0
/*
 * The tenant's side of the resident control kernel (rck.ptx, detshare.runtime.rck): gates wait on words in device memory that it mirrors.
 * Not the default: on an H100 the host's word releases sooner (5 to 6 us, not 8 to 9), needs no SM, and a killed RCK helper takes every client of
 * the MPS server with it. Asked for by DETSHARE_GATE=rck (`detshare run --gate rck`).
 */
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "source.h"

#define IPC_LAZY_PEER_ACCESS 1

/* Of the board that a GPU has now; the poller's, but for the time before it lives. */
struct mirror {
	const struct ds_board *board;
	bool wanted;
	CUdeviceptr words;
	uint32_t generation, failed;
};

static struct mirror mirrors[DS_MAX_DEVICES];

static void attached(struct ds_board *board)
{
	const char *gate = getenv("DETSHARE_GATE");

	mirrors[board->device->ordinal] = (struct mirror){ .board = board, .wanted = gate && !strcmp(gate, "rck") };
}

static bool alive(const struct ds_activity *activity, uint64_t now)
{
	return __atomic_load_n(&activity->rck_generation, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&activity->rck_beat, __ATOMIC_RELAXED) + DS_RCK_STALE_NS > now;
}

/* The kernel is gone: new gates use the host's word; what waits at the old one is let go, for nobody writes it any more. */
static void give_up(struct ds_board *board, struct mirror *mirror)
{
	atomic_store_explicit(&board->gate_word, board->host_word, memory_order_release);
	__atomic_store_n(&board->pages.counters->gate_source, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&board->pages.slot->rck_generation, 0, __ATOMIC_RELAXED);
	mirror->generation = 0;
	if (real->cuStreamWriteValue32_v2(board->samples.own, mirror->words + (CUdeviceptr)board->pages.index * DS_RCK_STRIDE, 0, 0))
		ds_debug("the resident control kernel's word could not be cleared");
	ds_info("the resident control kernel is gone: gates wait on the host's word");
}

/* In the device's context. */
static void look(struct ds_board *board, uint64_t now)
{
	struct mirror *mirror = &mirrors[board->device->ordinal];
	const struct ds_activity *activity = board->pages.activity;
	uint32_t generation;
	CUipcMemHandle handle;
	CUresult result;

	/* host_word 1: nothing can be registered here, so no gates at all */
	if (mirror->board != board || board->host_word <= 1 || !board->samples.own || !atomic_load(&board->gate_word))
		return;
	if (mirror->generation) {
		if (!alive(activity, now) || activity->rck_generation != mirror->generation)
			give_up(board, mirror);
		return;
	}
	generation = __atomic_load_n(&activity->rck_generation, __ATOMIC_ACQUIRE);
	if (!alive(activity, now) || generation == mirror->failed || !mirror->wanted)
		return;
	memcpy(handle.reserved, activity->rck_handle, sizeof(handle.reserved));
	/* changed while it was copied: next time */
	if (__atomic_load_n(&activity->rck_generation, __ATOMIC_ACQUIRE) != generation)
		return;
	/* memory of an earlier generation stays mapped: streams may still wait there */
	result = real->cuIpcOpenMemHandle_v2(&mirror->words, handle, IPC_LAZY_PEER_ACCESS);
	if (result) {
		mirror->failed = generation;
		ds_info("the resident control kernel's words cannot be had, gates wait on the host's: %s", ds_error_name(result));
		return;
	}
	mirror->generation = generation;
	__atomic_store_n(&board->pages.slot->rck_generation, generation, __ATOMIC_RELAXED);
	__atomic_store_n(&board->pages.counters->gate_source, 2, __ATOMIC_RELAXED);
	atomic_store_explicit(&board->gate_word, mirror->words + (CUdeviceptr)board->pages.index * DS_RCK_STRIDE,
			      memory_order_release);
}

static const struct ds_source source = { .attached = attached, .look = look };
DS_LIST_ADD(ds_sources, source);
