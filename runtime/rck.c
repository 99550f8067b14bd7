// SPDX-License-Identifier: Apache-2.0
/*
 * The tenant's side of the resident control kernel (rck.ptx, detshare.runtime.rck): gates wait on words in device memory that it mirrors.
 * Not the default: on an H100 the host's word releases sooner (5 to 6 us, not 8 to 9), needs no SM, and a killed RCK helper takes every client of
 * the MPS server with it. Asked for by DETSHARE_GATE=rck (`detshare run --gate rck`).
 */
#include <stdlib.h>
#include <string.h>

#include "gate.h"

#define IPC_LAZY_PEER_ACCESS 1

bool ds_rck_wanted(void)
{
	const char *gate = getenv("DETSHARE_GATE");

	return gate && !strcmp(gate, "rck");
}

static bool alive(const struct ds_activity *activity, uint64_t now)
{
	return __atomic_load_n(&activity->rck_generation, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&activity->rck_beat, __ATOMIC_RELAXED) + DS_RCK_STALE_NS > now;
}

/* The kernel is gone: new gates use the host's word; what waits at the old one is let go, for nobody writes it any more. */
static void give_up(struct ds_board *board)
{
	atomic_store_explicit(&board->gate_word, board->host_word, memory_order_release);
	__atomic_store_n(&board->counters->gate_source, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&board->slot->rck_generation, 0, __ATOMIC_RELAXED);
	board->rck_generation = 0;
	if (real->cuStreamWriteValue32_v2(board->own, board->rck_words + (CUdeviceptr)board->index * DS_RCK_STRIDE, 0, 0))
		ds_debug("the resident control kernel's word could not be cleared");
	ds_info("the resident control kernel is gone: gates wait on the host's word");
}

/* In the device's context. */
void ds_rck_look(struct ds_board *board, uint64_t now)
{
	const struct ds_activity *activity = board->activity;
	uint32_t generation;
	CUipcMemHandle handle;
	CUresult result;

	/* host_word 1: nothing can be registered here, so no gates at all */
	if (board->host_word <= 1 || !board->own || !atomic_load(&board->gate_word))
		return;
	if (board->rck_generation) {
		if (!alive(activity, now) || activity->rck_generation != board->rck_generation)
			give_up(board);
		return;
	}
	generation = __atomic_load_n(&activity->rck_generation, __ATOMIC_ACQUIRE);
	if (!alive(activity, now) || generation == board->rck_failed || !board->rck)
		return;
	memcpy(handle.reserved, activity->rck_handle, sizeof(handle.reserved));
	/* changed while it was copied: next time */
	if (__atomic_load_n(&activity->rck_generation, __ATOMIC_ACQUIRE) != generation)
		return;
	/* memory of an earlier generation stays mapped: streams may still wait there */
	result = real->cuIpcOpenMemHandle_v2(&board->rck_words, handle, IPC_LAZY_PEER_ACCESS);
	if (result) {
		board->rck_failed = generation;
		ds_info("the resident control kernel's words cannot be had, gates wait on the host's: %s", ds_error_name(result));
		return;
	}
	board->rck_generation = generation;
	__atomic_store_n(&board->slot->rck_generation, generation, __ATOMIC_RELAXED);
	__atomic_store_n(&board->counters->gate_source, 2, __ATOMIC_RELAXED);
	atomic_store_explicit(&board->gate_word, board->rck_words + (CUdeviceptr)board->index * DS_RCK_STRIDE,
			      memory_order_release);
}
