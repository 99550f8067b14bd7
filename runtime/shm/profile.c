// SPDX-License-Identifier: Apache-2.0
/*
 * How long launches take: some are enclosed in a pair of events, the poller reads them. Learned per (function, grid); the histograms of
 * kernels and graphs count from the launch on the CPU to the end on the GPU, that of delays to the first event, so a wait at a gate or
 * behind other work of the stream is in them and not in the estimate.
 */
#include <string.h>

#include "entry.h"
#include "profile.h"
#include "shape.h"
#include "thread.h"

/* more often than this only the first launches of a kernel are timed */
/* of kernels that were timed already; the first times of one are taken at once */
#define SAMPLE_EVERY_NS 4000000ULL
#define LEARNING 8
/* how long one common point of both clocks is good for: a float of milliseconds has 0.5 us at 8 s */
#define BASE_EVERY_NS 4000000000ULL
#define BASE_PATIENCE_NS 200000ULL

enum { FREE, LAUNCHING, PENDING }; /* and DS_SAMPLE_NO_EVENTS */

void ds_samples_init(struct ds_samples *samples, struct ds_counters *counters, unsigned int sms)
{
	unsigned int n;

	memset(samples, 0, sizeof(*samples));
	for (n = 0; n < DS_SAMPLES; n++)
		atomic_init(&samples->samples[n].state, DS_SAMPLE_NO_EVENTS);
	samples->counters = counters;
	samples->sms = sms;
}

/* The entry's own place was taken: its neighbour, else the one that all others share. */
struct ds_profile *ds_profile_slow(struct ds_profile *profiles, uint64_t key)
{
	uint64_t place = key >> (64 - DS_PROFILE_BITS), none;
	unsigned int n;

	for (n = 0; n < 2; n++) {
		struct ds_profile *profile = &profiles[place ^ n];

		none = 0;
		if (atomic_load(&profile->key) == key || atomic_compare_exchange_strong(&profile->key, &none, key) || none == key)
			return profile;
	}
	return &profiles[1U << DS_PROFILE_BITS];
}

void ds_sample_begin(struct ds_samples *samples, struct ds_profile *profile, struct ds_launch *launch)
{
	uint64_t now = ds_now_ns(), last = atomic_load_explicit(&samples->sampled_ns, memory_order_relaxed);
	unsigned int n, first = (unsigned int)(now >> 10);

	if (!__atomic_load_n(&samples->own, __ATOMIC_RELAXED))
		return; /* the poller has made no events yet */
	if (now - last < SAMPLE_EVERY_NS && atomic_load_explicit(&profile->count, memory_order_relaxed) > LEARNING)
		return;
	for (n = 0; n < DS_SAMPLES; n++) {
		struct ds_sample *sample = &samples->samples[(first + n) % DS_SAMPLES];
		uint32_t free_ = FREE;

		if (!atomic_compare_exchange_strong(&sample->state, &free_, LAUNCHING))
			continue;
		sample->profile = profile;
		sample->kind = launch->kind;
		sample->launched_ns = now;
		sample->blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
		sample->threads = launch->block[0] * launch->block[1] * launch->block[2];
		if (real->cuEventRecord(sample->before, launch->actual)) {
			atomic_store(&sample->state, FREE);
			return;
		}
		atomic_store_explicit(&samples->sampled_ns, now, memory_order_relaxed);
		launch->gate[0] = (uint64_t)(sample - samples->samples) + 1;
		return;
	}
}

void ds_sample_end(struct ds_samples *samples, struct ds_launch *launch, CUresult result)
{
	struct ds_sample *sample = &samples->samples[launch->gate[0] - 1];

	if (!result && !real->cuEventRecord(sample->after, launch->actual))
		atomic_store_explicit(&sample->state, PENDING, memory_order_release);
	else
		atomic_store_explicit(&sample->state, FREE, memory_order_release);
}

bool ds_samples_pending(struct ds_samples *samples)
{
	unsigned int n;

	for (n = 0; n < DS_SAMPLES; n++) {
		uint32_t state = atomic_load_explicit(&samples->samples[n].state, memory_order_relaxed);

		if (state == LAUNCHING || state == PENDING)
			return true;
	}
	return false;
}

/* ---- the poller's, in the device's context ---- */

/*
 * A point of both clocks: an event on a stream of ours that has nothing else, seen done. For a launch that has ended only: work of ours in a
 * program that has none would take the GPU from others, and say that the program still computes.
 */
static void rebase(struct ds_samples *samples)
{
	uint64_t before = ds_now_ns(), after;
	CUresult result = real->cuEventRecord(samples->base, samples->own);

	samples->base_ns = 0;
	do {
		if (!result)
			result = real->cuEventQuery(samples->base);
		after = ds_now_ns();
	} while (result == CUDA_ERROR_NOT_READY && (result = CUDA_SUCCESS, after - before < BASE_PATIENCE_NS));
	/* not ready within the patience: the launch-to-finish times wait for a better moment */
	if (!result && after - before < BASE_PATIENCE_NS)
		samples->base_ns = before + (after - before) / 2;
}

void ds_samples_make(struct ds_samples *samples)
{
	CUstream own;
	unsigned int n;

	if (samples->own || real->cuStreamCreate(&own, CU_STREAM_NON_BLOCKING))
		return;
	__atomic_store_n(&samples->own, own, __ATOMIC_RELAXED); /* launches look at it meanwhile */
	if (real->cuEventCreate(&samples->base, 0))
		return; /* samples stay without */
	for (n = 0; n < DS_SAMPLES; n++) {
		struct ds_sample *sample = &samples->samples[n];

		if (real->cuEventCreate(&sample->before, 0) || real->cuEventCreate(&sample->after, 0))
			break;
		atomic_store_explicit(&sample->state, FREE, memory_order_release);
	}
}

unsigned int ds_bucket(double ns)
{
	uint64_t whole = ns < 1 ? 1 : ns > 4e9 ? 4000000000ULL : (uint64_t)ns;

	return 63U - (unsigned int)__builtin_clzll(whole);
}

static void learn(struct ds_profile *profile, double ns)
{
	uint32_t old = atomic_load_explicit(&profile->ewma_ns, memory_order_relaxed);
	uint32_t now = ns < 1 ? 1 : ns > 4e9 ? 4000000000U : (uint32_t)(ns + 0.5);

	/* by an eighth, but quickly where it is far off: the first launches of a kernel are slower */
	if (old && now < old * 2ULL && now > old / 2)
		now = (uint32_t)((7ULL * old + now) / 8);
	else if (old)
		now = (uint32_t)(((uint64_t)old + now) / 2);
	atomic_store_explicit(&profile->ewma_ns, now ? now : 1, memory_order_relaxed);
}

/* A grid with fewer blocks than the GPU has SMs leaves the others idle, whatever its blocks do. */
static void filled(struct ds_samples *samples, const struct ds_sample *sample, double ns)
{
	unsigned int sms = samples->sms;
	double share = sms && sample->blocks < sms ? (double)sample->blocks / sms : 1.0;

	__atomic_fetch_add(&samples->counters->timed_ns, (uint64_t)ns, __ATOMIC_RELAXED);
	__atomic_fetch_add(&samples->counters->filled_ns, (uint64_t)(ns * share), __ATOMIC_RELAXED);
}

void ds_samples_reap(struct ds_samples *samples)
{
	struct ds_counters *counters = samples->counters;
	bool based = false;
	unsigned int n;

	for (n = 0; n < DS_SAMPLES; n++) {
		struct ds_sample *sample = &samples->samples[n];
		float ran, since;
		CUresult result;

		if (atomic_load_explicit(&sample->state, memory_order_acquire) != PENDING)
			continue;
		result = real->cuEventQuery(sample->after);
		if (result == CUDA_ERROR_NOT_READY)
			continue;
		if (!based && (!samples->base_ns || ds_now_ns() - samples->base_ns > BASE_EVERY_NS))
			rebase(samples);
		based = true;
		if (!result && !real->cuEventElapsedTime(&ran, sample->before, sample->after)) {
			learn(sample->profile, ran * 1e6);
			__atomic_fetch_add(&counters->samples, 1, __ATOMIC_RELAXED);
			if (sample->kind != DS_LAUNCH_GRAPH) {
				filled(samples, sample, ran * 1e6);
				ds_shape_note(counters, sample, ran * 1e6);
			}
			/* less than nothing where the base is the later one */
			if (samples->base_ns && !real->cuEventElapsedTime(&since, samples->base, sample->after)) {
				uint64_t *hist = sample->kind == DS_LAUNCH_GRAPH ? counters->hist_graph : counters->hist_kernel;
				double took = (double)samples->base_ns + since * 1e6 - (double)sample->launched_ns;

				/* the two clocks agree to some microseconds only: never less than the kernel itself */
				took = took > ran * 1e6 ? took : ran * 1e6;
				__atomic_fetch_add(&hist[ds_bucket(took)], 1, __ATOMIC_RELAXED);
				/* the first event is behind all that the stream had before */
				__atomic_fetch_add(&counters->hist_delay[ds_bucket(took - ran * 1e6)], 1, __ATOMIC_RELAXED);
			}
		}
		atomic_store_explicit(&sample->state, FREE, memory_order_release);
	}
}
