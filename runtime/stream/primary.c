/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of primary contexts. A device is attached when its primary context is first seen: at the program's
 * retain, or at the first use if the program got it in a way we do not see.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "besides.h"
#include "context.h"
#include "fork.h"
#include "home.h"
#include "lifecycle.h"
#include "log.h"
#include "move.h"
#include "pool.h"
#include "primary.h"

/* of a program with common libraries: its context, and the code that is loaded with it */
#define CONTEXT_BYTES ((size_t)768 << 20)

static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void at_exit(void)
{
	atomic_store(&ds_process.exiting, true);
	for (unsigned int i = 0; i < DS_MAX_DEVICES; i++)
		if (atomic_load(&ds_devices[i].state) == DS_DEVICE_MANAGED)
			ds_pool_settle(&ds_devices[i]);
}

/* The child of a fork cannot use the parent's contexts, and the driver tells it so. It starts as if nothing had been seen; what it inherited is left
 * where it is. */
static void child(void)
{
	ds_life_child();
	for (unsigned int i = 0; i < DS_MAX_DEVICES; i++) {
		struct ds_device *device = &ds_devices[i];
		uint32_t generation = atomic_load(&device->generation);

		/* before the child can have closed it, and have another by its number */
		ds_pages_ask_no_more((int)i);
		memset(device, 0, sizeof(*device));
		pthread_mutex_init(&device->lock, NULL);
		atomic_store(&device->ready, 1);
		atomic_store(&device->generation, generation + 1);
	}
	memset(&ds_thread, 0, sizeof(ds_thread));
	atomic_store(&ds_process.managed, 0);
	atomic_store(&ds_process.aside, 0);
	ds_contexts_changed();
}

static const struct ds_fork forks = { .child = child };
DS_LIST_ADD(ds_forks, forks);

static void process_once_do(void)
{
	int version = 0;

	/* its newer functions may change the current context, too */
	if (real->cuDriverGetVersion(&version) != CUDA_SUCCESS || version > DS_CUDA_VERSION)
		ds_context_unseen();
	/* after the driver was loaded, so before its own exit handlers */
	atexit(at_exit);
}

/* why this device stays native; NULL: nothing is missing */
static const char *lacking(struct ds_device *device)
{
	CUdevResource resource;

	if (!ds_has(cuGreenCtxCreate) || !ds_has(cuGreenCtxStreamCreate) || !ds_has(cuDevSmResourceSplitByCount) ||
	    !ds_has(cuDeviceGetDevResource) || !ds_has(cuDevResourceGenerateDesc) || !ds_has(cuCtxFromGreenCtx))
		return "the driver has no green contexts (550 or newer has)";
	memset(&resource, 0, sizeof(resource));
	if (real->cuDeviceGetDevResource(device->ordinal, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
	    !resource.sm.smCount)
		return "the GPU's SMs cannot be divided";
	device->sms = resource.sm.smCount;
	device->sm_step = resource.sm.smCoscheduledAlignment > resource.sm.minSmPartitionSize ? resource.sm.smCoscheduledAlignment
											    : resource.sm.minSmPartitionSize;
	if (!device->sm_step)
		return "the driver does not say how its SMs can be divided";
	if (!ds_has(cuDeviceGetUuid_v2) || real->cuDeviceGetUuid_v2(&device->uuid, device->ordinal) != CUDA_SUCCESS)
		return "the GPU has no UUID";
	return NULL;
}

static void aside(struct ds_device *device)
{
	if (atomic_exchange(&device->state, DS_DEVICE_ASIDE) == DS_DEVICE_MANAGED)
		atomic_fetch_sub(&ds_process.managed, 1);
	atomic_fetch_add(&ds_process.aside, 1);
	ds_contexts_changed();
}

/* The daemon answers while the driver makes the context. */
static void ask_ahead(struct ds_device *device, CUdevice ordinal)
{
	/* before the first lock: another thread may fork while it is held */
	ds_fork_watch();
	ds_lock(device);
	if (atomic_load(&device->state) == DS_DEVICE_UNKNOWN) {
		device->ordinal = ordinal;
		if (!lacking(device)) {
			struct ds_gpu gpu = ds_device_gpu(device);

			ds_pages_ask_ahead(&gpu);
		}
	}
	ds_unlock(device);
}

static void ask_no_more(struct ds_device *device)
{
	ds_lock(device);
	ds_pages_ask_no_more(device->ordinal);
	ds_unlock(device);
}

/* under device->lock; `context` is its primary context and alive */
static void attach(struct ds_device *device, CUcontext context)
{
	const char *why = lacking(device);

	if (why) {
		ds_info("GPU %d is not shared by SMs: %s; the program runs natively", device->ordinal, why);
		aside(device);
		return;
	}
	device->primary = context;
	atomic_fetch_add(&device->generation, 1);
	device->legacy = ds_stream_add(device, CU_STREAM_LEGACY, DS_STREAM_LEGACY, 0);
	if (!device->legacy || !ds_pool_open(device)) {
		ds_info("GPU %d is not shared by SMs: no memory; the program runs natively", device->ordinal);
		aside(device);
		return;
	}
	if (!ds_life_context_new(device)) {
		/* it said why */
		aside(device);
		return;
	}
	atomic_store(&device->state, DS_DEVICE_MANAGED);
	atomic_fetch_add(&ds_process.managed, 1);
	ds_pool_wish(device);
}

static void attach_if_new(struct ds_device *device, CUdevice ordinal, CUcontext context)
{
	bool fresh = false;

	pthread_once(&process_once, process_once_do);
	ds_lock(device);
	if (atomic_load(&device->state) == DS_DEVICE_UNKNOWN) {
		device->ordinal = ordinal;
		attach(device, context);
		ds_pages_ask_no_more(device->ordinal);
		fresh = atomic_load(&device->state) == DS_DEVICE_MANAGED;
		ds_contexts_changed();
	}
	ds_unlock(device);
	if (fresh)
		ds_life_context_ready(device);
	else if (atomic_load(&device->state) == DS_DEVICE_ASIDE && !ds_thread.home)
		ds_home_fetch(NULL); /* nobody sees its next launch */
}

static struct ds_device *known(CUcontext context)
{
	for (unsigned int i = 0; i < DS_MAX_DEVICES; i++)
		if (ds_devices[i].primary == context && atomic_load(&ds_devices[i].state) == DS_DEVICE_MANAGED)
			return &ds_devices[i];
	return NULL;
}

/* Whether the context is none that is steered or was; it is current in this thread. */
static bool beside(struct ds_device *device, CUcontext context)
{
	int state = atomic_load(&device->state);

	return state == DS_DEVICE_ASIDE || context != (state == DS_DEVICE_UNKNOWN ? device->past : device->primary);
}

/* People should see that its work runs on all SMs. */
static void note(struct ds_device *device, CUcontext context)
{
	bool fresh;

	ds_lock(device);
	fresh = ds_besides_seen(context);
	if (fresh && atomic_load(&device->state) == DS_DEVICE_MANAGED) {
		ds_pages_unmanaged(device->pages);
		ds_debug("GPU %d: a context that is not its primary one runs natively", device->ordinal);
	}
	ds_unlock(device);
	/* it reaches memory of others, which leaves no more from now on; another thread may be fetching it */
	if (!ds_thread.home && (fresh || atomic_load(&ds_home.now) != DS_HOME))
		ds_home_fetch(NULL);
}

/* a context that we see for the first time: is it the primary context of a device that is not attached? It is current in this thread. */
static struct ds_device *discover(CUcontext context)
{
	struct ds_device *device = NULL;
	CUcontext primary = NULL;
	unsigned int flags;
	CUdevice ordinal;
	int active = 0;

	ds_thread.locked = true;
	if (real->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 || ordinal >= DS_MAX_DEVICES)
		goto out;
	device = &ds_devices[ordinal];
	if (atomic_load(&device->state) != DS_DEVICE_UNKNOWN)
		goto out;
	if (real->cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || !active ||
	    real->cuDevicePrimaryCtxRetain(&primary, ordinal) != CUDA_SUCCESS)
		goto out;
	if (primary == context)
		attach_if_new(device, ordinal, context);
	ds_thread.locked = true;
	real->cuDevicePrimaryCtxRelease_v2(ordinal);
out:
	ds_thread.locked = false;
	if (device && beside(device, context))
		note(device, context);
	return known(context);
}

struct ds_device *ds_device_of(CUcontext context)
{
	uint32_t generation = atomic_load_explicit(&ds_process.contexts, memory_order_acquire);
	struct ds_device *device;

	if (ds_likely(ds_thread.context == context && ds_thread.generation == generation))
		return ds_thread.device;
	if (!context || ds_thread.locked)
		return NULL;
	device = known(context);
	if (!device) {
		if (ds_context_current() != context)
			return NULL;
		device = discover(context);
		generation = atomic_load(&ds_process.contexts);
	}
	ds_thread.context = context;
	ds_thread.device = device;
	ds_thread.generation = generation;
	return device;
}

struct ds_device *ds_device_current(void)
{
	return ds_device_of(ds_context_current());
}

/* everything goes home, and further work stays there (end of a context, step aside for good) */
static void all_home(struct ds_device *device)
{
	struct ds_own own;
	bool away;

	do {
		away = false;
		ds_lock(device);
		if (!device->primary) {
			ds_unlock(device);
			return;
		}
		ds_own_begin(&own, device);
		for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
			if (stream->tier && !ds_move(stream, 0, 1000000))
				away = true;
		ds_own_end(&own);
		ds_unlock(device);
		if (away)
			sched_yield();
	} while (away);
}

/* Green contexts retain the primary context: gone before the program's last release, so that it is the last one. */
static void empty(struct ds_device *device)
{
	struct ds_own own;

	/* gates open: nothing below waits for a higher class */
	ds_life_context_ends(device);
	ds_pool_close(device);
	all_home(device);
	ds_life_context_gone(device);
	ds_lock(device);
	ds_own_begin(&own, device);
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next) {
		for (unsigned int tier = 1; tier < DS_TIERS; tier++)
			if (stream->mirrors[tier])
				real->cuStreamSynchronize(stream->mirrors[tier]);
		ds_stream_strip(stream);
	}
	ds_pool_empty(device);
	ds_life_context_last(device);
	ds_own_end(&own);
	ds_unlock(device);
}

/*
 * After a release or a reset. A reset takes all there was in the context, but not the program's references: it is inactive until the next retain,
 * which gives the same handle, and then attached anew.
 */
static void look(struct ds_device *device, bool reset)
{
	unsigned int flags;
	bool again = false, over = false;
	int active = 0;

	if (real->cuDevicePrimaryCtxGetState(device->ordinal, &flags, &active) != CUDA_SUCCESS)
		active = 0;
	ds_lock(device);
	if (active && !reset) {
		/* somebody retained it in a way that we do not see */
		again = ds_pool_open(device) && ds_life_context_new(device);
		if (again)
			ds_pool_wish(device);
		else
			aside(device);
	} else {
		while (device->streams)
			ds_stream_remove(device->streams, false);
		device->legacy = NULL;
		device->past = device->primary;
		device->primary = NULL;
		atomic_fetch_add(&device->generation, 1);
		atomic_store(&device->mirrored, 0);
		atomic_store(&device->state, DS_DEVICE_UNKNOWN);
		atomic_fetch_sub(&ds_process.managed, 1);
		ds_contexts_changed();
		over = true;
	}
	ds_unlock(device);
	if (again)
		ds_life_context_ready(device);
	else if (over)
		ds_life_context_over(device);
	else
		ds_home_fetch(NULL); /* nobody sees its next launch */
}

static struct ds_device *managed(CUdevice ordinal)
{
	if (ordinal < 0 || ordinal >= DS_MAX_DEVICES || ds_thread.locked ||
	    atomic_load(&ds_devices[ordinal].state) != DS_DEVICE_MANAGED)
		return NULL;
	return &ds_devices[ordinal];
}

/* The GPU has no room for the context: its daemon's policy makes some, as for an allocation. */
static CUresult retain_with_room(struct ds_device *device, CUcontext *context)
{
	struct ds_room room = {.most_ms = DS_ROOM_OWN_MS};
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	struct ds_pages pages;
	bool has;

	ds_lock(device);
	has = atomic_load(&device->state) == DS_DEVICE_UNKNOWN && !lacking(device);
	if (has) {
		struct ds_gpu gpu = ds_device_gpu(device);

		has = ds_pages_early(&gpu, &pages);
	}
	ds_unlock(device);
	if (!has)
		return result;
	while (result == CUDA_ERROR_OUT_OF_MEMORY && ds_pages_room_wait(&pages, &room, CONTEXT_BYTES))
		result = real->cuDevicePrimaryCtxRetain(context, device->ordinal);
	ds_pages_room_over(&pages, &room, CONTEXT_BYTES);
	return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
	struct ds_device *device;
	CUresult result;

	if (ordinal < 0 || ordinal >= DS_MAX_DEVICES || ds_thread.locked)
		return real->cuDevicePrimaryCtxRetain(context, ordinal);
	device = &ds_devices[ordinal];
	if (atomic_load(&device->state) == DS_DEVICE_UNKNOWN)
		ask_ahead(device, ordinal);
	result = real->cuDevicePrimaryCtxRetain(context, ordinal);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		result = retain_with_room(device, context);
	if (result != CUDA_SUCCESS) {
		ask_no_more(device);
		return result;
	}
	if (atomic_load(&device->state) == DS_DEVICE_UNKNOWN)
		attach_if_new(device, ordinal, *context);
	atomic_fetch_add(&device->retains, 1);
	return result;
}

static CUresult release(CUdevice ordinal, CUresult (*next)(CUdevice))
{
	struct ds_device *device = managed(ordinal);
	bool last = false;
	CUresult result;

	if (ordinal >= 0 && ordinal < DS_MAX_DEVICES && !ds_thread.locked) {
		uint32_t had = atomic_load(&ds_devices[ordinal].retains);

		while (had && !atomic_compare_exchange_weak(&ds_devices[ordinal].retains, &had, had - 1))
			;
		last = had <= 1;
	}
	if (!device || !last)
		return next(ordinal);
	empty(device);
	result = next(ordinal);
	look(device, false);
	return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
	return release(ordinal, real->cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
	return release(ordinal, real->cuDevicePrimaryCtxRelease_v2);
}

static CUresult reset(CUdevice ordinal, CUresult (*next)(CUdevice))
{
	struct ds_device *device = managed(ordinal);
	CUresult result;

	if (device)
		empty(device);
	result = next(ordinal);
	if (device)
		look(device, result == CUDA_SUCCESS);
	return result;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
	return reset(ordinal, real->cuDevicePrimaryCtxReset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
	return reset(ordinal, real->cuDevicePrimaryCtxReset_v2);
}

/* The driver means the work of the primary context; ours in green contexts has to be there for that. */
CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
	struct ds_device *device = ds_native() ? NULL : ds_device_of(context);

	if (device && !ds_thread.locked)
		all_home(device);
	return real->cuCtxRecordEvent(context, event);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
	struct ds_device *device = ds_native() ? NULL : ds_device_of(context);
	CUresult result;

	if (!device || ds_thread.locked)
		return real->cuCtxWaitEvent(context, event);
	all_home(device);
	result = real->cuCtxWaitEvent(context, event);
	ds_lock(device);
	/* none of them counts as idle: the next move has to carry this wait along */
	for (struct ds_stream *stream = device->streams; stream; stream = stream->next)
		atomic_fetch_add(&stream->word, DS_WORD_CALL);
	ds_unlock(device);
	return result;
}
