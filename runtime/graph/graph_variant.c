/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variants are made by a helper thread of the process as soon as a tier is known to be wanted, for an instantiation
 * takes milliseconds, and as long as the running work where it needs memory. Their number is bounded by their nodes
 * (about 2.5 kB of device memory and 6 kB of host memory each): the one not launched for the longest time goes first.
 */

#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "gate.h"
#include "graph_template.h"
#include "graph_variant.h"
#include "home.h"
#include "log.h"
#include "pool.h"

#define MOST_NODES 65536 /* of all variants of the process; $DETSHARE_GRAPH_NODES */

/* a variant takes 7 us a node; where the driver waits for running work, the launch may be what that work waits for */
#define AWAIT_NS 250000000ULL
#define AWAIT_POLL_NS 50000ULL

struct job {
	struct ds_exec *exec;
	unsigned int tier;
	struct job *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_cond_t rest = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static bool running, working;
static _Atomic(bool) stopping;
static _Atomic(uint64_t) clock_now; /* counts launches and births of variants */
static _Atomic(size_t) nodes_held;
static _Atomic(uint32_t) used_tiers[DS_MAX_DEVICES];

static struct {
	CUstream stream;
	uint32_t generation;
} uploads[DS_MAX_DEVICES];

static size_t most_nodes(void)
{
	static _Atomic(size_t) most;
	size_t now = atomic_load_explicit(&most, memory_order_relaxed);
	const char *given;

	if (now)
		return now;
	given = getenv("DETSHARE_GRAPH_NODES");
	now = given ? strtoull(given, NULL, 10) : 0;
	if (!now)
		now = MOST_NODES;
	atomic_store_explicit(&most, now, memory_order_relaxed);
	return now;
}

static struct ds_variant *variant_at(struct ds_exec *exec, CUcontext context)
{
	unsigned int index;

	for (index = 0; index < DS_VARIANTS; index++)
		if (exec->variants[index].context == context)
			return &exec->variants[index];
	return NULL;
}

void ds_variant_clear(struct ds_exec *exec, struct ds_variant *variant)
{
	(void)exec;
	if (variant->exec) {
		real->cuGraphExecDestroy(variant->exec);
		atomic_fetch_sub(&nodes_held, variant->nodes);
	}
	ds_template_put(variant->from);
	memset(variant, 0, sizeof(*variant));
}

void ds_variant_clear_all(struct ds_exec *exec)
{
	unsigned int index;

	for (index = 0; index < DS_VARIANTS; index++)
		if (exec->variants[index].context)
			ds_variant_clear(exec, &exec->variants[index]);
}

void ds_variant_wait(struct ds_exec *exec)
{
	struct job **at;

	pthread_mutex_lock(&lock);
	for (at = &first; *at;) {
		struct job *job = *at;

		if (job->exec != exec) {
			at = &job->next;
			continue;
		}
		*at = job->next;
		free(job);
	}
	last = at;
	while (exec->building)
		pthread_cond_wait(&rest, &lock);
	pthread_mutex_unlock(&lock);
}

static void building(struct ds_exec *exec, int change)
{
	pthread_mutex_lock(&lock);
	exec->building += change;
	if (change < 0)
		pthread_cond_broadcast(&rest);
	pthread_mutex_unlock(&lock);
}

/* ---- building ---- */

static void upload(struct ds_device *device, CUgraphExec exec)
{
	unsigned int index = device - ds_devices;
	uint32_t generation = atomic_load(&device->generation);

	if (!uploads[index].stream || uploads[index].generation != generation) {
		uploads[index].stream = NULL;
		if (real->cuStreamCreate(&uploads[index].stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
			return;
		uploads[index].generation = generation;
	}
	if (real->cuGraphUpload(exec, uploads[index].stream) == CUDA_SUCCESS)
		real->cuStreamSynchronize(uploads[index].stream);
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (ds_has(cuGraphInstantiateWithFlags))
		return real->cuGraphInstantiateWithFlags(exec, graph, flags);
	return real->cuGraphInstantiate_v2(exec, graph, NULL, NULL, 0);
}

/* template->lock held. *made: what the caller publishes. */
static CUresult make(struct ds_exec *exec, struct ds_template *template, unsigned int tier, const CUgraphNode *off,
		     size_t off_count, struct ds_variant *made)
{
	CUresult result = ds_template_target(template, exec->device, tier, &made->full);
	size_t index;

	if (result != CUDA_SUCCESS)
		return result;
	result = instantiate(&made->exec, template->graph, exec->flags);
	if (result != CUDA_SUCCESS) {
		made->exec = NULL;
		return result;
	}
	for (index = 0; index < off_count && result == CUDA_SUCCESS; index++)
		result = real->cuGraphNodeSetEnabled(made->exec, off[index], 0);
	if (result != CUDA_SUCCESS) {
		real->cuGraphExecDestroy(made->exec);
		made->exec = NULL;
	}
	return result;
}

static void publish(struct ds_exec *exec, struct ds_template *template, unsigned int version, struct ds_variant *made,
		    CUresult result)
{
	struct ds_variant *variant = variant_at(exec, made->context);

	if (variant && exec->template == template && exec->version == version && !variant->exec) {
		variant->queued = false;
		variant->failed = result != CUDA_SUCCESS;
		if (made->exec) {
			ds_template_get(template);
			variant->from = template;
			variant->exec = made->exec;
			variant->nodes = template->nodes;
			variant->full = made->full;
			variant->tier = made->tier;
			variant->used = atomic_fetch_add_explicit(&clock_now, 1, memory_order_relaxed) + 1;
			atomic_fetch_add(&nodes_held, variant->nodes);
			made->exec = NULL;
		}
	} else if (variant && !variant->exec) {
		/* older than the program's last change: the next launch asks again */
		memset(variant, 0, sizeof(*variant));
	}
}

static void build(struct ds_exec *exec, unsigned int tier, bool background)
{
	struct ds_device *device = exec->device;
	struct ds_variant made = {.context = NULL, .tier = tier, .full = -1};
	struct ds_template *template;
	CUgraphNode *off = NULL;
	size_t off_count;
	unsigned int version;
	struct ds_own own;
	CUresult result;

	pthread_mutex_lock(&exec->lock);
	template = exec->template;
	version = exec->version;
	off_count = exec->off_count;
	if (off_count && (off = malloc(off_count * sizeof(*off))))
		memcpy(off, exec->off, off_count * sizeof(*off));
	if (!template || (off_count && !off)) {
		pthread_mutex_unlock(&exec->lock);
		free(off);
		return;
	}
	ds_template_get(template);
	pthread_mutex_unlock(&exec->lock);

	ds_home_enter();
	ds_own_begin(&own, device);
	made.context = ds_pool_ctx(device, tier);
	pthread_mutex_lock(&template->lock);
	result = make(exec, template, tier, off, off_count, &made);
	if (result == CUDA_SUCCESS && background)
		upload(device, made.exec);
	if (result != CUDA_SUCCESS)
		ds_debug("graph: no executable for tier %u: %s; it runs on the whole GPU", tier, ds_error_name(result));
	pthread_mutex_lock(&exec->lock);
	publish(exec, template, version, &made, result);
	pthread_mutex_unlock(&exec->lock);
	pthread_mutex_unlock(&template->lock);
	if (made.exec)
		real->cuGraphExecDestroy(made.exec);
	ds_template_put(template);
	ds_own_end(&own);
	ds_home_leave();
	free(off);
}

/* ---- the bound ---- */

struct oldest {
	struct ds_exec *exec;
	uint64_t used;
};

static void find_oldest(struct ds_exec *exec, void *data)
{
	struct oldest *oldest = data;
	unsigned int index;

	pthread_mutex_lock(&exec->lock);
	for (index = 0; index < DS_VARIANTS; index++)
		if (exec->variants[index].exec && exec->variants[index].used < oldest->used) {
			oldest->exec = exec;
			oldest->used = exec->variants[index].used;
		}
	pthread_mutex_unlock(&exec->lock);
}

static void keep_bound(struct ds_device *device)
{
	unsigned int rounds = 0;

	while (atomic_load(&nodes_held) > most_nodes() && rounds++ < 64) {
		struct oldest oldest = {NULL, UINT64_MAX};
		unsigned int index;
		struct ds_own own;

		ds_exec_each(device, find_oldest, &oldest);
		if (!oldest.exec)
			return;
		ds_own_begin(&own, device);
		pthread_mutex_lock(&oldest.exec->lock);
		for (index = 0; index < DS_VARIANTS && !atomic_load(&oldest.exec->launching); index++)
			if (oldest.exec->variants[index].exec && oldest.exec->variants[index].used == oldest.used)
				ds_variant_clear(oldest.exec, &oldest.exec->variants[index]);
		pthread_mutex_unlock(&oldest.exec->lock);
		ds_own_end(&own);
	}
}

/* ---- the helper thread ---- */

static void *helper(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "ds-graph");
	pthread_mutex_lock(&lock);
	while (!stopping) {
		struct job *job = first;
		struct ds_device *device;

		if (!job) {
			pthread_cond_wait(&work, &lock);
			continue;
		}
		first = job->next;
		if (!first)
			last = &first;
		/* Noted before the queue is let go: who ends the executable, or its context, waits. */
		device = job->exec->device;
		job->exec->building++;
		working = true;
		pthread_mutex_unlock(&lock);
		build(job->exec, job->tier, true);
		keep_bound(device);
		pthread_mutex_lock(&lock);
		job->exec->building--;
		working = false;
		pthread_cond_broadcast(&rest);
		free(job);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* The driver ends in a handler of its own at exit: nobody may be inside it then. */
static void stop(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_broadcast(&work);
	while (working && pthread_cond_timedwait(&rest, &lock, &until) == 0)
		;
	pthread_mutex_unlock(&lock);
}

static bool start(void)
{
	static bool registered;

	if (running)
		return true;
	running = !ds_thread_start(helper, NULL);
	if (running && !registered) {
		registered = true;
		atexit(stop);
	}
	return running;
}

/* exec->lock held */
static void ask(struct ds_exec *exec, unsigned int tier, CUcontext context)
{
	struct ds_variant *slot = variant_at(exec, NULL), *oldest = NULL;
	struct job *job;
	unsigned int index;

	for (index = 0; index < DS_VARIANTS && !slot; index++) {
		struct ds_variant *each = &exec->variants[index];

		if (!each->queued && (!oldest || each->used < oldest->used))
			oldest = each;
	}
	if (!slot && oldest) {
		ds_variant_clear(exec, oldest);
		slot = oldest;
	}
	job = slot ? malloc(sizeof(*job)) : NULL;
	if (!job)
		return;
	*job = (struct job){exec, tier, NULL};
	*slot = (struct ds_variant){.context = context, .tier = tier, .full = -1, .queued = true};
	pthread_mutex_lock(&lock);
	if (start()) {
		*last = job;
		last = &job->next;
		pthread_cond_signal(&work);
		job = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (job) {
		slot->queued = false;
		slot->failed = true;
		free(job);
	}
}

CUgraphExec ds_variant_for(struct ds_exec *exec, unsigned int tier, unsigned int *reason)
{
	CUcontext context = ds_pool_ctx(exec->device, tier);
	struct ds_variant *variant = variant_at(exec, context);

	*reason = DS_FULL_GRAPH;
	if (ds_likely(variant && variant->exec)) {
		variant->used = atomic_fetch_add_explicit(&clock_now, 1, memory_order_relaxed) + 1;
		if (ds_unlikely(variant->full >= 0))
			*reason = variant->full;
		else
			*reason = DS_FULL_REASONS;
		return variant->exec;
	}
	if (exec->template && context && !variant) {
		atomic_fetch_or_explicit(&used_tiers[exec->device - ds_devices], 1u << tier, memory_order_relaxed);
		ask(exec, tier, context);
	}
	return NULL;
}

/* exec->lock held; true: a launch that waits would get it soon */
static bool coming(struct ds_exec *exec, unsigned int tier, CUcontext context)
{
	struct ds_variant *variant = variant_at(exec, context);

	if (variant && (variant->exec || variant->failed))
		return false;
	if (!variant) {
		atomic_fetch_or_explicit(&used_tiers[exec->device - ds_devices], 1u << tier, memory_order_relaxed);
		ask(exec, tier, context);
		variant = variant_at(exec, context);
	}
	return variant && variant->queued && !atomic_load(&stopping);
}

void ds_variant_await(struct ds_exec *exec, unsigned int tier)
{
	CUcontext context = ds_pool_ctx(exec->device, tier);
	uint64_t end = 0;
	bool waits;

	while (1) {
		pthread_mutex_lock(&exec->lock);
		if (exec->awaited_version != exec->version)
			exec->awaited = 0;
		exec->awaited_version = exec->version;
		waits = exec->template && context && !(exec->awaited >> tier & 1);
		if (waits && (!coming(exec, tier, context) || (end && ds_now_ns() > end))) {
			exec->awaited |= 1u << tier;
			waits = false;
		}
		pthread_mutex_unlock(&exec->lock);
		if (ds_likely(!waits))
			return;
		if (!end)
			end = ds_now_ns() + AWAIT_NS;
		ds_nap(AWAIT_POLL_NS);
	}
}

void ds_variant_build(struct ds_exec *exec, unsigned int tier)
{
	CUcontext context = ds_pool_ctx(exec->device, tier);
	struct ds_variant *variant;
	bool wanted;

	pthread_mutex_lock(&exec->lock);
	variant = variant_at(exec, context);
	wanted = exec->template && context && (!variant || (!variant->exec && !variant->failed));
	if (wanted && !variant) {
		variant = variant_at(exec, NULL);
		if (variant)
			*variant = (struct ds_variant){.context = context, .tier = tier, .full = -1, .queued = true};
		else
			wanted = false;
	}
	pthread_mutex_unlock(&exec->lock);
	if (!wanted)
		return;
	building(exec, 1);
	build(exec, tier, false);
	keep_bound(exec->device);
	building(exec, -1);
}

void ds_variant_wish(struct ds_exec *exec)
{
	struct ds_device *device = exec->device;
	uint32_t tiers = atomic_load_explicit(&used_tiers[device - ds_devices], memory_order_relaxed);
	unsigned int tier;

	tiers |= 1u << ds_board_tier(device);
	pthread_mutex_lock(&exec->lock);
	for (tier = 1; tier < DS_TIERS && exec->template; tier++)
		if (tiers >> tier & 1 && ds_pool_ready(device, tier) && !variant_at(exec, ds_pool_ctx(device, tier)))
			ask(exec, tier, ds_pool_ctx(device, tier));
	pthread_mutex_unlock(&exec->lock);
}

void ds_variant_reset(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&work, NULL);
	pthread_cond_init(&rest, NULL);
	first = NULL;
	last = &first;
	running = working = false;
	atomic_store(&nodes_held, 0);
	memset(uploads, 0, sizeof(uploads));
	memset(used_tiers, 0, sizeof(used_tiers));
}
