/* SPDX-License-Identifier: Apache-2.0 */
/* resident.c, ledger.c and array.c without a driver: `parts CASE`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "ledger.h"
#include "resident.h"

#define EXPECT(condition)                                                                           \
	do {                                                                                        \
		if (!(condition)) {                                                                 \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);     \
			exit(1);                                                                    \
		}                                                                                   \
	} while (0)

/* ---- what resident.c asks of others ---- */

struct ds_real ds_real_table;
struct ds_process ds_process = {.ready = true};
static const char *name_now = "plain";
static unsigned int asked_names, asked_occupancy, counted[DS_FULL_REASONS], sms_now = 32;
static int blocks_now = 2;

void ds_load(void)
{
}

CUresult ds_absent(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

void ds_pages_full_run(const struct ds_pages *pages, unsigned int reason)
{
	(void)pages;
	counted[reason]++;
}

CUcontext ds_pool_ctx(struct ds_device *device, unsigned int tier)
{
	(void)device;
	return (CUcontext)(uintptr_t)(0x1000 + tier);
}

unsigned int ds_pool_sms(struct ds_device *device, unsigned int tier)
{
	(void)device;
	(void)tier;
	return sms_now;
}

static CUresult func_name(const char **name, CUfunction function)
{
	(void)function;
	asked_names++;
	*name = name_now;
	return CUDA_SUCCESS;
}

static CUresult func_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	(void)attribute;
	(void)function;
	*value = 0;
	return CUDA_SUCCESS;
}

static CUresult occupancy(int *blocks, CUfunction function, int threads, size_t shared)
{
	(void)function;
	(void)threads;
	(void)shared;
	asked_occupancy++;
	*blocks = blocks_now;
	return blocks_now < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static struct ds_device device;

static struct ds_launch launch_of(uintptr_t function)
{
	return (struct ds_launch){.function = (void *)function, .grid = {64, 1, 1}, .block = {256, 1, 1}};
}

static void prepare(void)
{
	ds_real_table.cuFuncGetName = func_name;
	ds_real_table.cuFuncGetAttribute = func_attribute;
	ds_real_table.cuOccupancyMaxActiveBlocksPerMultiprocessor = occupancy;
	ds_real_table.cuKernelGetName = (void *)ds_absent;
}

/* Code goes, and other code comes to the same address, more often than an age has values. */
static void case_forget(void)
{
	struct ds_launch launch = launch_of(0x7f0012345600);
	unsigned int round;

	for (round = 0; round < 1000; round++) {
		name_now = round & 1 ? "ncclDevKernel" : "plain";
		EXPECT(ds_resident_check(&device, 1, &launch) == (round & 1 ? DS_FULL_NAME : -1));
		EXPECT(ds_resident_check(&device, 1, &launch) == (round & 1 ? DS_FULL_NAME : -1));
		EXPECT(asked_names == round * 2 + 2); /* the name, and which kind of handle it is */
		ds_resident_forget();
	}
	/* the same age again, 256 ends later */
	name_now = "ncclDevKernel";
	EXPECT(ds_resident_check(&device, 1, &launch) == DS_FULL_NAME);
	for (round = 0; round < 256; round++)
		ds_resident_forget();
	name_now = "plain";
	EXPECT(ds_resident_check(&device, 1, &launch) == -1);
}

static void case_names(void)
{
	static const struct {
		const char *name;
		int answer;
	} names[] = {
		{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", DS_FULL_NAME}, {"ncclKernel", DS_FULL_NAME},
		{"nvshmem_barrier", DS_FULL_NAME}, {"_Z9my_gridsyncPf", DS_FULL_NAME}, {"gemm", -1}, {"xnccl", -1},
		{"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE", DS_FULL_NAME},
		{"_ZL10ncclKernelv", DS_FULL_NAME}, {"_ZN4nccl4workEv", DS_FULL_NAME}, {"_Z5otherPf", DS_FULL_NAME},
		{"_Z5xncclPf", -1}, {"_Z4gemmPK12ncclDevComm", -1}, {"_Z", -1}, {"_ZN", -1}, {"", -1},
	};
	unsigned int index;

	setenv("DETSHARE_RESIDENT_NAMES", "other,*gridsync*", 1);
	for (index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
		struct ds_launch launch = launch_of(0x10000 + 64 * index);

		name_now = names[index].name;
		EXPECT(ds_resident_check(&device, 1, &launch) == names[index].answer);
		EXPECT(ds_resident_check(&device, 0, &launch) == -1);
	}
}

static void case_shapes(void)
{
	struct ds_launch launch = launch_of(0x20000);

	launch.kind = DS_LAUNCH_COOPERATIVE;
	EXPECT(ds_resident_check(&device, 1, &launch) == -1);
	launch.grid[0] = 65;
	EXPECT(ds_resident_check(&device, 1, &launch) == DS_FULL_COOPERATIVE);
	EXPECT(asked_occupancy == 1);
	launch.shared = 1024;
	EXPECT(ds_resident_check(&device, 1, &launch) == DS_FULL_COOPERATIVE);
	EXPECT(asked_occupancy == 2);
	launch.grid[0] = 8;
	launch.grid[1] = 9;
	EXPECT(!ds_resident_fits(&device, 1, &launch));
	EXPECT(counted[DS_FULL_COOPERATIVE] == 1);
	/* a driver that does not say: not there */
	blocks_now = -1;
	launch.grid[0] = launch.grid[1] = 1;
	launch.shared = 2048;
	EXPECT(ds_resident_check(&device, 1, &launch) == DS_FULL_COOPERATIVE);
	/* another tier is another answer */
	blocks_now = 2;
	sms_now = 128;
	launch.shared = 1024;
	launch.grid[0] = 200;
	EXPECT(ds_resident_check(&device, 2, &launch) == -1);
	EXPECT(ds_resident_check(&device, 1, &launch) == DS_FULL_COOPERATIVE);
}

/* ---- ledger ---- */

static size_t given_back;

static void gone(const struct ds_ledger_entry *entry)
{
	given_back += entry->bytes;
}

static void add(enum ds_ledger_kind kind, uint64_t key, size_t bytes, const void *context)
{
	struct ds_ledger_entry entry = {.key = key, .kind = kind, .context = context, .bytes = bytes};

	EXPECT(ds_ledger_add(&entry));
}

static void case_ledger(void)
{
	struct ds_ledger_entry entry;
	uint64_t index;

	for (index = 0; index < 100000; index++)
		add(index % 3, index * 512, index, index % 7 ? &device : NULL);
	for (index = 0; index < 100000; index += 2) {
		EXPECT(ds_ledger_take(index % 3, index * 512, &entry));
		EXPECT(entry.bytes == index);
		EXPECT(!ds_ledger_take(index % 3, index * 512, &entry));
		EXPECT(!ds_ledger_take((index + 1) % 3, index * 512, &entry));
	}
	ds_ledger_drop(&device, gone);
	for (index = 1; index < 100000; index += 2) {
		if (index % 7)
			given_back -= index;
		EXPECT(ds_ledger_take(index % 3, index * 512, &entry) == !(index % 7));
	}
	EXPECT(given_back == 0);
}

/* Owners and mappings of handles come and go in random order; a plain model says what is held. */
static void case_handles(void)
{
	enum { HANDLES = 16, PLACES = 64 };
	unsigned int owners[HANDLES] = {0}, maps[HANDLES] = {0}, at[PLACES] = {0};
	struct ds_ledger_entry entry;
	unsigned int round, seed = 12345;
	size_t held = 0;

	for (round = 0; round < 200000; round++) {
		unsigned int handle, place;
		size_t before = given_back, freed;

		seed = seed * 1103515245 + 12345;
		handle = seed >> 8 & (HANDLES - 1);
		place = seed >> 16 & (PLACES - 1);
		switch (seed >> 24 & 3) {
		case 0:
			if (owners[handle] || maps[handle])
				break;
			add(DS_LEDGER_HANDLE, 100 + handle, 1000 + handle, NULL);
			owners[handle] = 1;
			held += 1000 + handle;
			break;
		case 1:
			if (!at[place] && owners[handle]) {
				EXPECT(ds_ledger_map((uint64_t)place << 21, 1 << 21, 100 + handle));
				at[place] = handle + 1;
				maps[handle]++;
			} else if (owners[handle]) {
				EXPECT(ds_ledger_retain(100 + handle));
				owners[handle]++;
			} else {
				EXPECT(ds_ledger_retain(100 + handle) == (maps[handle] > 0));
				owners[handle] += maps[handle] > 0;
			}
			break;
		case 2:
			if (!owners[handle])
				break;
			owners[handle]--;
			freed = ds_ledger_release(100 + handle, &entry) ? entry.bytes : 0;
			EXPECT(freed == (owners[handle] || maps[handle] ? 0 : 1000 + handle));
			held -= freed;
			break;
		default:
			/* two neighbours in one call; one that the driver refuses changes nothing */
			ds_ledger_map_again(ds_ledger_unmap((uint64_t)place << 21, 2 << 21));
			EXPECT(given_back == before);
			for (freed = 0, handle = place; handle < place + 2 && handle < PLACES; handle++) {
				if (!at[handle])
					continue;
				maps[at[handle] - 1]--;
				if (!maps[at[handle] - 1] && !owners[at[handle] - 1])
					freed += 1000 + at[handle] - 1;
				at[handle] = 0;
			}
			ds_ledger_unmapped(ds_ledger_unmap((uint64_t)place << 21, 2 << 21), gone);
			EXPECT(given_back - before == freed);
			held -= freed;
			break;
		}
	}
	for (round = 0; round < HANDLES; round++)
		if (owners[round] || maps[round])
			held -= 1000 + round;
	EXPECT(held == 0);
}

/* ---- arrays ---- */

static void case_arrays(void)
{
	static const struct {
		CUDA_ARRAY3D_DESCRIPTOR array;
		unsigned int levels;
		size_t bytes;
	} arrays[] = {
		{{100, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1, 100},
		{{100, 10, 0, CU_AD_FORMAT_FLOAT, 4, 0}, 1, 16000},
		{{16, 16, 16, CU_AD_FORMAT_HALF, 2, 0}, 1, 16384},
		{{16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 5, (256 + 64 + 16 + 4 + 1) * 4},
		{{16, 16, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}, 2, (256 + 64) * 6 * 4},
		{{16, 16, 4, CU_AD_FORMAT_FLOAT, 1, 0}, 2, (1024 + 128) * 4},
		{{64, 64, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 1, 2048},
		{{64, 64, 0, CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 0}, 1, 4096},
		{{64, 64, 0, CU_AD_FORMAT_NV12, 3, 0}, 1, 6144},
		{{8, 8, 0, CU_AD_FORMAT_SNORM_INT16X4, 4, 0}, 1, 512},
		{{8, 8, 0, CU_AD_FORMAT_UNORM_INT8X1, 1, 0}, 1, 64},
		{{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SPARSE}, 1, 0},
		{{8, 8, 0, 0x7777, 1, 0}, 1, 0},
	};
	unsigned int index;

	for (index = 0; index < sizeof(arrays) / sizeof(arrays[0]); index++)
		EXPECT(ds_array_bytes(&arrays[index].array, arrays[index].levels) == arrays[index].bytes);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"forget", case_forget}, {"names", case_names}, {"shapes", case_shapes},
	{"ledger", case_ledger}, {"handles", case_handles}, {"arrays", case_arrays},
};

int main(int argc, char **argv)
{
	unsigned int index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
		if (argc != 2 || strcmp(argv[1], cases[index].name))
			continue;
		prepare();
		cases[index].run();
		return 0;
	}
	fprintf(stderr, "usage: parts CASE\n");
	return 2;
}
