/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rck.ptx of detshare.runtime does, as code for the stand-in (FAKECUDA_PLUGINS): copies each slot's word to device memory until `stop` is set or `pulse` stays
 * the same for `stale` ns, and opens all words at its end. control points to {u32 stop, u32 pulse, u32 loops}.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fakecuda.h"

enum { STRIDE = 64 };

struct state {
	uint32_t pulse;
	uint64_t since;
};

static uint64_t wide(const struct fakecuda_call *call, unsigned int index)
{
	uint64_t value;

	memcpy(&value, call->args[index], sizeof(value));
	return value;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static int run(struct fakecuda_call *call)
{
	unsigned char *host = (unsigned char *)(uintptr_t)wide(call, 0), *device = (unsigned char *)(uintptr_t)wide(call, 1);
	uint32_t *control = (uint32_t *)(uintptr_t)wide(call, 2), slots, pulse = __atomic_load_n(&control[1], __ATOMIC_RELAXED);
	struct state *state = call->state;
	int over;

	memcpy(&slots, call->args[3], sizeof(slots));
	if (!state) {
		state = call->state = calloc(1, sizeof(*state));
		state->pulse = pulse - 1;
	}
	if (pulse != state->pulse)
		*state = (struct state){pulse, now_ns()};
	over = __atomic_load_n(&control[0], __ATOMIC_RELAXED) || now_ns() - state->since > wide(call, 4);
	for (uint32_t n = 0; n < slots; n++)
		__atomic_store_n((uint32_t *)(device + STRIDE * n),
				 over ? 0 : __atomic_load_n((uint32_t *)(host + STRIDE * n), __ATOMIC_RELAXED), __ATOMIC_RELEASE);
	control[2]++;
	if (over)
		free(state);
	return !over;
}

void fakecuda_plugin(void)
{
	fakecuda_register_kernel("detshare_rck", run);
}
