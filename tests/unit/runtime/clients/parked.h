/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs about memory that leaves the GPU share. */
#ifndef PARKED_H
#define PARKED_H

#include "client.h"
#include "outside.h"

#define MIB (1UL << 20)
#define KIB (1UL << 10)

static size_t found; /* on the GPU at the start */

static inline size_t on_gpu(void)
{
	return fakecuda_used(0) - found;
}

/* What green contexts take is there. */
static inline void settled(void)
{
	client_pool();
	found = 0;
	found = on_gpu();
}

static inline uint32_t park(void)
{
	daemon_park(true);
	return daemon_park_wait();
}

static inline bool away(void)
{
	return daemon_counters()->park_state == DS_PARK_AWAY;
}

static inline void fill(CUdeviceptr at, size_t bytes, uint32_t seed)
{
	uint32_t *words = malloc(bytes);

	for (size_t n = 0; n < bytes / 4; n++)
		words[n] = (uint32_t)n * 2654435761U + seed;
	CHECK(cuMemcpyHtoD_v2(at, words, bytes));
	free(words);
}

static inline bool filled(CUdeviceptr at, size_t bytes, uint32_t seed)
{
	uint32_t *words = malloc(bytes);
	bool same = true;

	CHECK(cuMemcpyDtoH_v2(words, at, bytes));
	for (size_t n = 0; n < bytes / 4 && same; n++)
		same = words[n] == (uint32_t)n * 2654435761U + seed;
	free(words);
	return same;
}

static inline uint32_t state(void)
{
	return __atomic_load_n(&daemon_counters()->park_state, __ATOMIC_ACQUIRE);
}

static inline size_t left(void)
{
	size_t total;

	CHECK(cuDeviceTotalMem_v2(&total, 0));
	return total - fakecuda_used(0);
}

struct parked_case {
	const char *name;
	void (*run)(void);
};

static inline int parked_main(const char *name, const struct parked_case *cases, unsigned int count)
{
	client_start(0);
	settled();
	for (unsigned int n = 0; n < count; n++)
		if (!strcmp(name, cases[n].name)) {
			cases[n].run();
			return 0;
		}
	return 2;
}

#endif
