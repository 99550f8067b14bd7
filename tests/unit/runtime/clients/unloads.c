/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program loads the library at run time, has its memory parked, and closes it: `unloads LIBRARY`, with DETSHARE_PARK=1 and nothing preloaded. Threads of
 * the library are at work then, in the midst of a park too; what is away comes back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "parked.h"

#define BYTES (64 * MIB)

#define OF(library, name) __typeof__(&name) own_##name = (__typeof__(&name))dlsym(library, #name)

int main(int count, char **words)
{
	void *library = dlopen(count > 1 ? words[1] : "", RTLD_NOW);
	CUdeviceptr at;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	OF(library, cuDevicePrimaryCtxRetain);
	OF(library, cuCtxSetCurrent);
	OF(library, cuMemAlloc_v2);
	OF(library, cuMemcpyHtoD_v2);
	OF(library, cuMemcpyDtoH_v2);
	uint32_t word = 7;

	daemon_start();
	CHECK(cuInit(0));
	CHECK(own_cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(own_cuCtxSetCurrent(context));
	CHECK(own_cuMemAlloc_v2(&at, BYTES));
	CHECK(own_cuMemcpyHtoD_v2(at, &word, sizeof(word)));
	daemon_park(true);
	while (state() == DS_PARK_HOME && daemon_counters()->park_ack != daemon_policy()->park)
		;
	EXPECT(!dlclose(library));
	EXPECT(daemon_park_wait() == DS_PARK_OK);
	word = 0;
	CHECK(own_cuMemcpyDtoH_v2(&word, at, sizeof(word)));
	EXPECT(word == 7);
	return 0;
}
