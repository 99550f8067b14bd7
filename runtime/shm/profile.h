/* SPDX-License-Identifier: Apache-2.0 */
/* How long launches take. */
#ifndef DS_PROFILE_H
#define DS_PROFILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch.h"
#include "pages.h"

#define DS_PROFILE_BITS 12
/* of a table of profiles: the last one is for all that found no room */
#define DS_PROFILES_BYTES (((1U << DS_PROFILE_BITS) + 1) * sizeof(struct ds_profile))
#define DS_SAMPLES 64
#define DS_SAMPLE_NO_EVENTS 3

/* One (function, grid). ewma_ns is 0 until a launch of it was timed; the poller alone writes it. count may lose some. */
struct ds_profile {
	_Atomic(uint64_t) key;
	_Atomic(uint32_t) ewma_ns;
	_Atomic(uint32_t) count;
};

/* One timed launch. Owner by `state`: 0 free, 1 a launching thread, 2 the poller. */
struct ds_sample {
	_Atomic(uint32_t) state;
	enum ds_launch_kind kind;
	CUevent before, after;
	struct ds_profile *profile;
	uint64_t launched_ns;
	uint64_t blocks; /* of a kernel */
	uint32_t threads; /* of a block */
};

/* Those of one GPU. */
struct ds_samples {
	struct ds_sample samples[DS_SAMPLES];
	_Atomic(uint64_t) sampled_ns;
	CUevent base;
	CUstream own; /* a stream of ours; NULL until there are events */
	uint64_t base_ns;
	struct ds_counters *counters;
	unsigned int sms;
};

void ds_samples_init(struct ds_samples *samples, struct ds_counters *counters, unsigned int sms);
struct ds_profile *ds_profile_slow(struct ds_profile *profiles, uint64_t key);
unsigned int ds_bucket(double ns); /* of a histogram of the board */
void ds_sample_begin(struct ds_samples *samples, struct ds_profile *profile, struct ds_launch *launch);
void ds_sample_end(struct ds_samples *samples, struct ds_launch *launch, CUresult result);
bool ds_samples_pending(struct ds_samples *samples);
/* the poller's, in the device's context */
void ds_samples_make(struct ds_samples *samples);
void ds_samples_reap(struct ds_samples *samples);

static inline uint64_t ds_profile_key(const struct ds_launch *launch)
{
	uint64_t key = (uint64_t)(uintptr_t)launch->function * 0x9e3779b97f4a7c15ULL;

	key ^= (launch->grid[0] | (uint64_t)launch->grid[1] << 32) * 0xc2b2ae3d27d4eb4fULL;
	key = (key ^ key >> 29 ^ launch->grid[2]) * 0xbf58476d1ce4e5b9ULL;
	return (key ^ key >> 32) | 1;
}

#endif
