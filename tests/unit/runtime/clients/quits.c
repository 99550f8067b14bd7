/* SPDX-License-Identifier: Apache-2.0 */
/* A program that ends by exit() while the library's helper threads are at work: none of them is inside the driver when that ends. */
#include "graph_kit.h"

int main(int count, char **words)
{
	CUgraphExec exec;

	client_start(0);
	/* green contexts are in the making, and the board's page is being registered */
	if (count > 1 && !strcmp(words[1], "begun")) {
		usleep(30000);
		exit(0);
	}
	load_library();
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&where, BLOCKS * 4));
	CHECK(cuMemAlloc_v2(&value, 256));
	begin();
	CHECK(launch_census(census, BLOCKS));
	exec = executable(end());
	/* a launch that wants an executable for another tier, while a higher class is active */
	client_pool();
	__atomic_store_n(&daemon_policy()->plan, 3 << 8 | (uint64_t)daemon_policy()->epoch << 32, __ATOMIC_SEQ_CST);
	__atomic_store_n(&daemon_activity()->slots[0].word, 1 << 5, __ATOMIC_SEQ_CST);
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(launch_mix(mix, 1, 1));
	exit(0);
}
