/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts of one device, one per tier of the policy. A helper thread makes them: the driver waits for all work of the process in the
 * meantime. They share the primary context's memory and modules, and retain it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "log.h"
#include "pool.h"

#define SETTLE_NS 500000000ULL

struct member {
	CUgreenCtx green;
	CUcontext context;
	unsigned int sms;
	bool failed;
};

/* Of a device, once made never freed: other threads may wish at any time. */
struct ds_pool {
	struct ds_device *device;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool busy; /* the helper thread lives */
	bool again; /* wished for something after it looked */
	bool closed;
	uint64_t bytes, create_ns; /* of all that were made */
	struct member members[DS_TIERS];
};

static CUresult make(struct ds_device *device, struct ds_tier tier, struct member *member)
{
	CUdevResource all, first, rest, *chosen = &first;
	unsigned int groups = 1, wanted = tier.sms;
	CUdevResourceDesc description;
	CUresult result;

	memset(&first, 0, sizeof(first));
	memset(&rest, 0, sizeof(rest));
	result = real->cuDeviceGetDevResource(device->ordinal, &all, CU_DEV_RESOURCE_TYPE_SM);
	if (result == CUDA_SUCCESS)
		result = real->cuDevSmResourceSplitByCount(&first, &groups, &all, &rest, 0, tier.sms);
	if (result != CUDA_SUCCESS)
		return result;
	if (tier.kind == DS_TIER_REST) {
		chosen = &rest;
		wanted = device->sms - tier.sms;
	}
	/* a size that the driver rounds is another set of SMs than its neighbours count on */
	if (groups != 1 || chosen->sm.smCount != wanted || !wanted)
		return CUDA_ERROR_INVALID_VALUE;
	result = real->cuDevResourceGenerateDesc(&description, chosen, 1);
	if (result == CUDA_SUCCESS)
		result = real->cuGreenCtxCreate(&member->green, description, device->ordinal, CU_GREEN_CTX_DEFAULT_STREAM);
	if (result != CUDA_SUCCESS) {
		member->green = NULL;
		return result;
	}
	result = real->cuCtxFromGreenCtx(&member->context, member->green);
	if (result != CUDA_SUCCESS) {
		real->cuGreenCtxDestroy(member->green);
		member->green = NULL;
	}
	member->sms = wanted;
	return result;
}

static void make_one(struct ds_pool *pool, unsigned int tier, struct ds_tier wish)
{
	struct ds_device *device = pool->device;
	size_t before = 0, after = 0, total;
	uint64_t start;
	CUresult result;

	real->cuMemGetInfo_v2(&before, &total);
	start = ds_now_ns();
	result = make(device, wish, &pool->members[tier]);
	if (result != CUDA_SUCCESS) {
		pool->members[tier].failed = true;
		ds_info("GPU %d: tier %u (%s %u SMs) cannot be made: %s; its work runs on all SMs", device->ordinal, tier,
			wish.kind == DS_TIER_REST ? "all but the first" : "the first", wish.sms, ds_error_name(result));
		return;
	}
	start = ds_now_ns() - start;
	real->cuMemGetInfo_v2(&after, &total);
	pool->bytes += before > after ? before - after : 0;
	pool->create_ns += start;
	ds_pages_pool(device->pages, pool->bytes, pool->create_ns);
	ds_debug("GPU %d: tier %u of %u SMs in %llu us, %zd KiB", device->ordinal, tier, pool->members[tier].sms,
		 (unsigned long long)start / 1000, (ssize_t)(before - after) / 1024);
	atomic_fetch_or(&device->ready, 1U << tier);
}

static bool lacks(const struct ds_pool *pool, unsigned int tier, struct ds_tier wish)
{
	return wish.kind != DS_TIER_FULL && !pool->members[tier].green && !pool->members[tier].failed;
}

static void *work(void *data)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct ds_pool *pool = data;
	struct ds_device *device = pool->device;
	bool current;

	pthread_setname_np(pthread_self(), "ds-pool");
	/* calls of profilers from in here are not the program's */
	ds_thread.locked = true;
	ds_thread.passes = true;
	real->cuThreadExchangeStreamCaptureMode(&mode);
	current = real->cuCtxSetCurrent(device->primary) == CUDA_SUCCESS;
	pthread_mutex_lock(&pool->lock);
	do {
		pool->again = false;
		for (unsigned int tier = 1; tier < DS_TIERS && !pool->closed && !ds_process.exiting; tier++) {
			struct ds_tier wish = ds_pages_tier(device->pages, tier);

			if (!lacks(pool, tier, wish))
				continue;
			if (!current) {
				pool->members[tier].failed = true;
				continue;
			}
			pthread_mutex_unlock(&pool->lock);
			make_one(pool, tier, wish);
			pthread_mutex_lock(&pool->lock);
			pthread_cond_broadcast(&pool->changed);
		}
	} while (pool->again && !pool->closed);
	real->cuCtxSetCurrent(NULL);
	pool->busy = false;
	pthread_cond_broadcast(&pool->changed);
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static bool start_helper(struct ds_pool *pool)
{
	int error = ds_thread_start(work, pool);

	if (error)
		ds_info("no thread for the pool of GPU %d: %s; its tiers run on all SMs", pool->device->ordinal, strerror(error));
	return !error;
}

void ds_pool_wish(struct ds_device *device)
{
	struct ds_pool *pool = device->pool;
	bool lack = false;

	if (!pool || atomic_load(&ds_process.exiting) || atomic_load(&ds_process.asleep))
		return;
	pthread_mutex_lock(&pool->lock);
	for (unsigned int tier = 1; tier < DS_TIERS && !lack; tier++)
		lack = lacks(pool, tier, ds_pages_tier(device->pages, tier));
	if (pool->busy)
		pool->again = true;
	else if (!pool->closed && lack)
		pool->busy = start_helper(pool);
	pthread_mutex_unlock(&pool->lock);
}

bool ds_pool_busy(struct ds_device *device)
{
	struct ds_pool *pool = device->pool;
	bool busy;

	if (!pool)
		return false;
	pthread_mutex_lock(&pool->lock);
	busy = pool->busy;
	pthread_mutex_unlock(&pool->lock);
	return busy;
}

bool ds_pool_settled(struct ds_device *device, unsigned int tier)
{
	struct ds_pool *pool = device->pool;
	bool settled;

	if (!pool || ds_pool_ready(device, tier) || ds_pages_tier(device->pages, tier).kind == DS_TIER_FULL)
		return true;
	pthread_mutex_lock(&pool->lock);
	settled = pool->members[tier].failed;
	pthread_mutex_unlock(&pool->lock);
	return settled;
}

/* under pool->lock; false: `ns` passed */
static bool wait_change(struct ds_pool *pool, uint64_t until)
{
	struct timespec time = ds_timespec(until);

	return pthread_cond_timedwait(&pool->changed, &pool->lock, &time) != ETIMEDOUT;
}

void ds_pool_wait(struct ds_device *device, unsigned int tier, uint64_t ns)
{
	struct ds_pool *pool = device->pool;
	uint64_t until = ds_now_ns() + ns;

	if (!pool || !tier || tier >= DS_TIERS)
		return;
	pthread_mutex_lock(&pool->lock);
	while (pool->busy && !ds_pool_ready(device, tier) && !pool->members[tier].failed)
		if (!wait_change(pool, until))
			break;
	pthread_mutex_unlock(&pool->lock);
}

void ds_pool_settle(struct ds_device *device)
{
	struct ds_pool *pool = device->pool;
	uint64_t until = ds_now_ns() + SETTLE_NS;

	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	while (pool->busy && wait_change(pool, until))
		;
	pthread_mutex_unlock(&pool->lock);
}

bool ds_pool_open(struct ds_device *device)
{
	struct ds_pool *pool = device->pool;
	pthread_condattr_t attr;

	if (!pool) {
		pool = calloc(1, sizeof(*pool));
		if (!pool)
			return false;
		pool->device = device;
		pthread_mutex_init(&pool->lock, NULL);
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&pool->changed, &attr);
		pthread_condattr_destroy(&attr);
		device->pool = pool;
	}
	pthread_mutex_lock(&pool->lock);
	pool->closed = false;
	pthread_mutex_unlock(&pool->lock);
	atomic_store(&device->ready, 1);
	return true;
}

void ds_pool_close(struct ds_device *device)
{
	struct ds_pool *pool = device->pool;

	if (!pool)
		return;
	atomic_store(&device->ready, 1);
	pthread_mutex_lock(&pool->lock);
	pool->closed = true;
	while (pool->busy)
		pthread_cond_wait(&pool->changed, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	atomic_store(&device->ready, 1);
}

void ds_pool_empty(struct ds_device *device)
{
	struct ds_pool *pool = device->pool;

	for (unsigned int tier = 1; pool && tier < DS_TIERS; tier++) {
		CUresult result = pool->members[tier].green ? real->cuGreenCtxDestroy(pool->members[tier].green) : CUDA_SUCCESS;

		if (result != CUDA_SUCCESS)
			ds_debug("GPU %d: tier %u cannot be given back: %s", device->ordinal, tier, ds_error_name(result));
	}
	if (pool) {
		memset(pool->members, 0, sizeof(pool->members));
		pool->bytes = pool->create_ns = 0;
	}
}

CUcontext ds_pool_ctx(struct ds_device *device, unsigned int tier)
{
	if (!tier || !ds_pool_ready(device, tier))
		return device->primary;
	return device->pool->members[tier].context;
}

unsigned int ds_pool_sms(struct ds_device *device, unsigned int tier)
{
	if (!tier || !ds_pool_ready(device, tier))
		return device->sms;
	return device->pool->members[tier].sms;
}

CUstream ds_pool_stream(struct ds_device *device, unsigned int tier, int priority)
{
	CUstream stream = NULL;
	CUresult result;

	result = real->cuGreenCtxStreamCreate(&stream, device->pool->members[tier].green, CU_STREAM_NON_BLOCKING, priority);
	if (result == CUDA_SUCCESS)
		return stream;
	ds_debug("GPU %d: no stream on tier %u: %s", device->ordinal, tier, ds_error_name(result));
	return NULL;
}
