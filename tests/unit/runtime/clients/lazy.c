/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that comes back lazily: the program runs over host memory while its pieces come home. `lazy CASE`; FAKECUDA_TAKEN names a file. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "parked.h"

#define PIECE (32 * MIB)
#define BLOCKS 4

static CUdeviceptr blocks[BLOCKS];

static void wait_state(uint32_t wanted)
{
	while (state() != wanted)
		usleep(200);
}

static void make(void)
{
	for (unsigned int n = 0; n < BLOCKS; n++) {
		CHECK(cuMemAlloc_v2(&blocks[n], PIECE));
		fill(blocks[n], PIECE, n);
	}
}

static bool all_filled(void)
{
	bool same = true;

	for (unsigned int n = 0; n < BLOCKS; n++)
		same = same && filled(blocks[n], PIECE, n);
	return same;
}

/* The GPU has room for so many pieces, once all are parked. */
static void room_for(unsigned int pieces)
{
	others_have(0);
	others_have(left() - pieces * PIECE);
}

static void mixed(unsigned int n)
{
	CHECK(client_mix(NULL, blocks[n], 64, 1, 5));
	CHECK(cuStreamSynchronize(NULL));
}

/* what mixed() did to block n is taken back */
static void unmixed(unsigned int n)
{
	CHECK(client_mix(NULL, blocks[n], 64, 1, (uint32_t)-5));
	CHECK(cuStreamSynchronize(NULL));
}

static void round_trip(void)
{
	make();
	for (unsigned int n = 0; n < 3; n++) {
		EXPECT(park() == DS_PARK_OK && away());
		EXPECT(fakecuda_on_host(blocks[0]) && daemon_counters()->parked_bytes == BLOCKS * PIECE);
		EXPECT(daemon_counters()->arena_bytes == BLOCKS * PIECE && daemon_arenas() == 0);
		daemon_park(false);
		EXPECT(daemon_park_wait() == DS_PARK_OK);
		wait_state(DS_PARK_HOME);
		EXPECT(!fakecuda_on_host(blocks[0]) && daemon_counters()->parked_bytes == 0 && all_filled());
	}
}

static void runs_over_host_memory(void)
{
	make();
	EXPECT(park() == DS_PARK_OK);
	room_for(0);
	mixed(1);
	EXPECT(state() == DS_PARK_LENT && fakecuda_on_host(blocks[1]) && daemon_counters()->wakes == 1);
	for (unsigned int n = 0; n < 20; n++) {
		mixed(2);
		unmixed(2);
		usleep(5000);
	}
	EXPECT(state() == DS_PARK_LENT);
	others_have(0);
	wait_state(DS_PARK_HOME);
	unmixed(1);
	EXPECT(all_filled() && on_gpu() == BLOCKS * PIECE);
}

static void comes_by_order(void)
{
	size_t all;

	make();
	EXPECT(park() == DS_PARK_OK);
	all = left();
	others_have(all);
	mixed(3);
	mixed(1);
	for (unsigned int home = 1; home <= BLOCKS; home++) {
		static const unsigned int order[BLOCKS] = {3, 1, 0, 2};

		others_have(all - home * PIECE);
		while (__atomic_load_n(&daemon_counters()->parked_bytes, __ATOMIC_ACQUIRE) > (BLOCKS - home) * PIECE)
			usleep(200);
		for (unsigned int n = 0; n < BLOCKS; n++)
			EXPECT(fakecuda_on_host(blocks[order[n]]) == (n >= home));
		EXPECT(client_mix(NULL, blocks[0], 64, 1, 0) == CUDA_SUCCESS);
	}
	wait_state(DS_PARK_HOME);
	unmixed(3);
	unmixed(1);
	EXPECT(all_filled());
}

static void questions_bring_all_home(void)
{
	CUdeviceptr more;

	make();
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuMemAlloc_v2(&more, 4 * MIB));
	EXPECT(state() == DS_PARK_HOME && !fakecuda_on_host(blocks[2]));
	EXPECT(park() == DS_PARK_OK);
	CHECK(cuMemFree_v2(blocks[2]));
	EXPECT(state() == DS_PARK_HOME);
	CHECK(cuMemAlloc_v2(&blocks[2], PIECE));
	fill(blocks[2], PIECE, 2);
	EXPECT(all_filled());
}

static void parks_again_in_the_midst(void)
{
	make();
	EXPECT(park() == DS_PARK_OK);
	room_for(2);
	mixed(0);
	while (__atomic_load_n(&daemon_counters()->parked_bytes, __ATOMIC_ACQUIRE) > 2 * PIECE)
		usleep(200);
	unmixed(0);
	EXPECT(state() == DS_PARK_LENT && park() == DS_PARK_OK && away());
	EXPECT(daemon_counters()->parked_bytes == BLOCKS * PIECE);
	others_have(0);
	mixed(2);
	unmixed(2);
	wait_state(DS_PARK_HOME);
	EXPECT(all_filled());
}

static void copies_what_changed(void)
{
	make();
	EXPECT(park() == DS_PARK_OK && daemon_counters()->copied_bytes == BLOCKS * PIECE);
	/* as a whole, without a run over host memory: copies are as they were */
	__atomic_and_fetch(&daemon_policy()->flags, ~DS_FLAG_LAZY, __ATOMIC_SEQ_CST);
	daemon_park(false);
	EXPECT(daemon_park_wait() == DS_PARK_OK && state() == DS_PARK_HOME);
	CHECK(client_mix(NULL, blocks[1], 1, 1, 5));
	EXPECT(park() == DS_PARK_OK && daemon_counters()->copied_bytes <= 4 * MIB);
	CHECK(client_mix(NULL, blocks[1], 1, 1, (uint32_t)-5));
	EXPECT(state() == DS_PARK_HOME && all_filled());
}

static void gives_its_host_memory_back(void)
{
	make();
	EXPECT(park() == DS_PARK_OK);
	EXPECT(all_filled());
	wait_state(DS_PARK_HOME);
	EXPECT(daemon_counters()->arena_bytes == BLOCKS * PIECE);
	daemon_policy()->epoch++;
	daemon_policy()->returns++;
	__atomic_store_n(&daemon_policy()->epoch, daemon_policy()->epoch + 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&daemon_counters()->returned, __ATOMIC_ACQUIRE) != daemon_policy()->returns)
		usleep(200);
	EXPECT(daemon_counters()->arena_bytes == 0);
	EXPECT(park() == DS_PARK_OK && all_filled());
}

static void without_host_memory_it_stays(void)
{
	make();
	daemon_arena(0);
	EXPECT(park() == DS_PARK_ARENA && !away() && all_filled());
	daemon_arena(UINT64_MAX);
	EXPECT(park() == DS_PARK_OK && all_filled());
}

static _Atomic(bool) made;

static void until_made(void *unused)
{
	(void)unused;
	while (!atomic_load(&made))
		usleep(200);
}

/* Work over lent memory waits for what the program does after it has allocated: neither waits for the other. */
static void allocates_beside_work(void)
{
	CUdeviceptr more, rows;
	size_t pitch;

	make();
	EXPECT(park() == DS_PARK_OK);
	room_for(1);
	mixed(0);
	CHECK(cuLaunchHostFunc(NULL, until_made, NULL));
	CHECK(cuMemAlloc_v2(&more, 4 * MIB));
	EXPECT(state() == DS_PARK_LENT);
	CHECK(cuMemAllocPitch_v2(&rows, &pitch, 4096, 1024, 4));
	atomic_store(&made, true);
	CHECK(cuStreamSynchronize(NULL));
	fill(more, 4 * MIB, 9);
	others_have(0);
	unmixed(0);
	wait_state(DS_PARK_HOME);
	EXPECT(all_filled() && filled(more, 4 * MIB, 9));
	EXPECT(park() == DS_PARK_OK && all_filled() && filled(more, 4 * MIB, 9));
}

static void ends_in_the_midst(void)
{
	make();
	EXPECT(park() == DS_PARK_OK);
	room_for(1);
	mixed(0);
	EXPECT(state() == DS_PARK_LENT);
}

int main(int count, char **words)
{
	static const struct parked_case cases[] = {
		{"round", round_trip},
		{"over_host", runs_over_host_memory},
		{"order", comes_by_order},
		{"questions", questions_bring_all_home},
		{"again", parks_again_in_the_midst},
		{"changed", copies_what_changed},
		{"returns", gives_its_host_memory_back},
		{"refused", without_host_memory_it_stays},
		{"beside", allocates_beside_work},
		{"ends", ends_in_the_midst},
	};

	return parked_main(count > 1 ? words[1] : "", cases, sizeof(cases) / sizeof(cases[0]));
}
