/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before and after a launch by the driver, whoever wrote the wrapper: activity, tier of now (given up for one that holds the launch as a
 * whole), host wait, move, gate. launch->stream and what describes the launch are set; then launch->actual is where it goes.
 */
#ifndef DS_BEGIN_H
#define DS_BEGIN_H

#include "fast.h"
#include "meet.h"
#include "move.h"
#include "pool.h"
#include "resident.h"

void ds_launch_begin(struct ds_launch *launch);
void ds_launch_end(struct ds_launch *launch, CUresult result);

/* the same, inline */
static inline void ds_begin(struct ds_launch *launch)
{
	struct ds_stream *stream = launch->stream;
	struct ds_device *device = stream->device;
	struct ds_board *board = device->board;
	unsigned int tier;

	launch->board = NULL;
	launch->captured = false;
	launch->tier = 0;
	if (ds_unlikely(atomic_load_explicit(&stream->capturing, memory_order_relaxed))) {
		launch->captured = true;
		launch->actual = ds_stream_use(stream, 0);
		ds_pages_full_run(device->pages, DS_FULL_CAPTURE);
		return;
	}
	if (ds_unlikely(!board)) {
		launch->actual = ds_stream_use(stream, 0);
		return;
	}
	launch->board = board;
	ds_fast_active(board);
	if (ds_unlikely(atomic_load_explicit(&board->ahead_ns, memory_order_relaxed) != UINT32_MAX))
		ds_ahead_before(board, stream);
	if (ds_unlikely(atomic_load_explicit(&board->job, memory_order_relaxed)) && ds_resident_meets(launch))
		ds_meet(board);
	tier = ds_fast_tier(board);
	if (tier) {
		if (ds_unlikely(!ds_pool_ready(device, tier))) {
			ds_pages_full_run(device->pages, DS_FULL_POOL);
			tier = 0;
		} else if (ds_unlikely(!ds_resident_fits(device, tier, launch))) {
			tier = 0;
		}
	}
	launch->actual = ds_stream_use(stream, tier);
	launch->tier = stream->tier;
	if (ds_unlikely(launch->tier != tier))
		ds_pages_full_run(device->pages, DS_FULL_OTHER);
	ds_fast_before(board, launch);
}

static inline void ds_end(struct ds_launch *launch, CUresult result)
{
	if (ds_likely(launch->board))
		ds_fast_after(launch->board, launch, result);
	ds_stream_done(launch->stream);
}

#endif
