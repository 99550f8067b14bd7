/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"
#include "done.h"
#include "home.h"
#include "settle.h"
#include "word.h"

#define SETTLE_NS 5000000000ULL /* for work that runs when memory is to leave */
#define LOOK_NS 50000ULL

struct ds_device *ds_managed(struct ds_device *device)
{
	for (device = device ? device + 1 : ds_devices; device < ds_devices + DS_MAX_DEVICES; device++)
		if (atomic_load(&device->state) == DS_DEVICE_MANAGED && device->primary && device->board)
			return device;
	return NULL;
}

void ds_settle_stop(void)
{
	struct ds_device *device;
	struct ds_board *board;

	atomic_store(&ds_home.now, DS_HOME_LEAVING);
	ds_each_managed(device) {
		pthread_mutex_lock(&device->lock);
		for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
			atomic_fetch_or(&stream->word, DS_WORD_PARKED);
		board = ds_board_of(device);
		if (board)
			atomic_store(&board->draining, 1);
		pthread_mutex_unlock(&device->lock);
	}
}

/* DS_PARK_OK: this GPU has no work of ours, and no thread is in a call that could put some there. */
static uint32_t quiet(struct ds_device *device)
{
	struct ds_board *board = device->board;
	uint32_t reason = DS_PARK_OK;
	struct ds_own own;

	if (!board || atomic_load(&board->stopping))
		return DS_PARK_ENDING;
	ds_upkeep(board, ds_now_ns());
	pthread_mutex_lock(&device->lock);
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
		if (atomic_load(&stream->word) & DS_WORD_USERS)
			reason = DS_PARK_BUSY;
	if (atomic_load(&device->captures))
		reason = DS_PARK_CAPTURE;
	if (reason == DS_PARK_OK) {
		ds_own_begin(&own, device);
		if (!ds_ask_all(board, ds_now_ns()))
			reason = DS_PARK_BUSY;
		ds_own_end(&own);
	}
	pthread_mutex_unlock(&device->lock);
	return reason;
}

bool ds_settle_idle(struct ds_device *device)
{
	return quiet(device) == DS_PARK_OK;
}

bool ds_settle_lost(void)
{
	struct ds_device *device;
	struct ds_own own;
	bool lost = false;

	for (device = ds_managed(NULL); device && !lost; device = ds_managed(device)) {
		ds_own_begin(&own, device);
		lost = real->cuCtxSynchronize() != CUDA_SUCCESS;
		ds_own_end(&own);
	}
	return lost;
}

uint32_t ds_settle(void)
{
	uint64_t end = ds_now_ns() + SETTLE_NS;
	struct ds_device *device;
	uint32_t reason;

	while (1) {
		reason = atomic_load(&ds_home.users) ? DS_PARK_BUSY : DS_PARK_OK;
		/* those too whose context ends: they work still */
		for (device = ds_devices; device < ds_devices + DS_MAX_DEVICES && reason == DS_PARK_OK; device++)
			if (atomic_load(&device->state) == DS_DEVICE_MANAGED)
				reason = quiet(device);
		/* a capture ends by calls that wait for us */
		if (reason == DS_PARK_OK || reason == DS_PARK_CAPTURE || reason == DS_PARK_ENDING || ds_now_ns() > end)
			break;
		ds_nap(LOOK_NS);
	}
	/* default streams of other threads cannot be asked, and were only quiet for a while */
	if (reason == DS_PARK_OK && ds_settle_lost())
		reason = DS_PARK_DRIVER;
	ds_each_managed(device) {
		struct ds_board *board = ds_board_of(device);

		if (board)
			atomic_store(&board->draining, 0);
	}
	return reason;
}
