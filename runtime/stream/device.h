/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs of this process.
 *
 * Words. Home: tier 0, the program's own stream, all SMs. Mirror: a stream of ours in the green context of a tier, in which
 * the work of one of the program's streams runs. A stream *moves* when its next work goes to another of these handles.
 *
 * Rules. No function of the library is called while a program's call is under way in the same thread and holds ds_device.lock
 * (ds_thread.locked): a profiler may call the driver from inside the driver; such calls go on natively.
 * Calls into the driver that make or destroy objects run between ds_own_begin() and ds_own_end().
 */
#ifndef DS_DEVICE_H
#define DS_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "attach.h"
#include "entry.h"
#include "thread.h"

enum ds_device_state {
	DS_DEVICE_UNKNOWN, /* no context seen yet, or its context is gone */
	DS_DEVICE_MANAGED, /* attached to a board: streams are known and move */
	DS_DEVICE_ASIDE, /* something is missing: everything is native until the process ends */
};

struct ds_board;
struct ds_pool;
struct ds_stream;

/* One GPU of this process. Everything is about its primary context. */
struct ds_device {
	/* read by each launch */
	CUcontext primary; /* NULL unless MANAGED */
	CUdevice ordinal;
	_Atomic(uint32_t) ready; /* bit t: the green context of tier t exists; bit 0 is always set */
	_Atomic(uint32_t) mirrored; /* default and blocking streams that are not at home */
	_Atomic(uint32_t) captures; /* streams that are being captured */
	_Atomic(uint32_t) ordered_captures; /* of them, blocking ones: the legacy stream cannot be touched */
	_Atomic(uint32_t) legacy_seq; /* counts work of the legacy stream while mirrored */
	_Atomic(uint32_t) blocking_seq; /* counts work of blocking streams while mirrored */
	struct ds_board *board; /* what the folder gate/ has of it; NULL until attached */

	/* below: under lock, if nothing else is said */
	pthread_mutex_t lock;
	_Atomic(int) state; /* enum ds_device_state */
	_Atomic(uint32_t) generation; /* counts contexts of this device; cached pointers of an older one are void */
	_Atomic(uint32_t) retains; /* what the program retained and has not released */
	CUcontext past; /* the primary context that was; the next one may have its handle */
	struct ds_stream *legacy;
	struct ds_stream *streams; /* all of them, the default ones included */
	struct ds_pool *pool;
	const struct ds_pages *pages; /* those of board; NULL with it */
	unsigned int sms; /* of the whole device */
	unsigned int sm_step; /* green contexts have multiples of this many */
	CUuuid uuid;
} __attribute__((aligned(64)));

extern struct ds_device ds_devices[DS_MAX_DEVICES];

static inline struct ds_gpu ds_device_gpu(const struct ds_device *device)
{
	return (struct ds_gpu){.ordinal = device->ordinal, .sms = device->sms, .sm_step = device->sm_step, .uuid = device->uuid};
}

/* Under device->lock, which is never taken inside a driver's call of this thread. */
static inline void ds_lock(struct ds_device *device)
{
	pthread_mutex_lock(&device->lock);
	ds_thread.locked = true;
}

static inline void ds_unlock(struct ds_device *device)
{
	ds_thread.locked = false;
	pthread_mutex_unlock(&device->lock);
}

#endif
