/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "hasher.h"
#include "log.h"
#include "piece.h"

#define AT_ONCE 4096 /* grains of a launch */
#define DEVICEMAP 2

/* In host memory: a GPU from which memory is to leave has no room for it. */
struct table {
	CUdeviceptr grains[AT_ONCE];
	struct ds_digest digests[AT_ONCE];
};

static struct hasher {
	CUfunction function; /* NULL: not loaded */
	struct table *table;
	CUdeviceptr seen; /* the table, as the GPU names it; 0: it does not know it */
	uint32_t generation; /* of the context of both */
	bool wrong; /* its digests were not the reference's */
	uint32_t told; /* what the log said last */
} hashers[DS_MAX_DEVICES];

static struct ds_digest key;
static bool drawn;

static uint32_t failed(struct ds_device *device, uint32_t whole, const char *what, CUresult result)
{
	struct hasher *hasher = &hashers[device->ordinal];

	if (hasher->told != whole)
		ds_info("park: GPU %d cannot tell what changed (%s: %s): everything is copied", device->ordinal, what, ds_error_name(result));
	hasher->told = whole;
	return whole;
}

static uint32_t ready(struct ds_device *device, struct hasher *hasher)
{
	uint32_t generation = atomic_load(&device->generation);
	CUresult result;
	CUmodule module;

	if (hasher->generation != generation)
		*hasher = (struct hasher){ .generation = generation };
	if (hasher->wrong)
		return DS_WHOLE_WRONG;
	if (!drawn && getrandom(&key, sizeof(key), 0) != sizeof(key))
		return failed(device, DS_WHOLE_KERNEL, "no random key", CUDA_ERROR_UNKNOWN);
	drawn = true;
	if (!hasher->table) {
		void *map = mmap(NULL, sizeof(*hasher->table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (map == MAP_FAILED)
			return failed(device, DS_WHOLE_KERNEL, "a table", CUDA_ERROR_OUT_OF_MEMORY);
		madvise(map, sizeof(*hasher->table), MADV_DONTFORK);
		hasher->table = map;
	}
	if (!hasher->seen) {
		result = real->cuMemHostRegister_v2(hasher->table, sizeof(*hasher->table), DEVICEMAP);
		if (result == CUDA_SUCCESS)
			result = real->cuMemHostGetDevicePointer_v2(&hasher->seen, hasher->table, 0);
		if (result != CUDA_SUCCESS)
			return failed(device, DS_WHOLE_KERNEL, "its table cannot be pinned", result);
	}
	if (!hasher->function) {
		result = real->cuModuleLoadData(&module, ds_hash_kernel);
		if (result == CUDA_SUCCESS)
			result = real->cuModuleGetFunction(&hasher->function, module, "detshare_hash");
		if (result != CUDA_SUCCESS) {
			hasher->function = NULL;
			return failed(device, DS_WHOLE_KERNEL, "its kernel cannot be loaded", result);
		}
	}
	return DS_WHOLE_NOT;
}

static CUresult launch(struct hasher *hasher, CUstream stream, unsigned int count)
{
	CUdeviceptr grains = hasher->seen + offsetof(struct table, grains), digests = hasher->seen + offsetof(struct table, digests);
	uint32_t rows = DS_GRAIN_BYTES / DS_HASH_ROW_BYTES;
	void *params[] = {&grains, &digests, &key.words[0], &key.words[1], &key.words[2], &key.words[3], &rows};
	CUresult result = real->cuLaunchKernel(hasher->function, count, 1, 1, DS_HASH_LANES, 1, 1, 0, stream, params, NULL);

	return result ? result : real->cuStreamSynchronize(stream);
}

uint32_t ds_hasher_run(struct ds_device *device, CUstream stream, const CUdeviceptr *grains, size_t count, struct ds_digest *digests)
{
	struct hasher *hasher = &hashers[device->ordinal];
	uint32_t whole = ready(device, hasher);

	for (size_t from = 0; from < count && whole == DS_WHOLE_NOT; from += AT_ONCE) {
		size_t part = count - from < AT_ONCE ? count - from : AT_ONCE;
		CUresult result;

		memcpy(hasher->table->grains, grains + from, part * sizeof(*grains));
		/* those of the last park would say that nothing changed */
		memset(hasher->table->digests, 0, part * sizeof(*digests));
		result = launch(hasher, stream, (unsigned int)part);
		if (result != CUDA_SUCCESS)
			whole = failed(device, DS_WHOLE_LAUNCH, "its kernel does not run", result);
		else
			memcpy(digests + from, hasher->table->digests, part * sizeof(*digests));
	}
	if (whole == DS_WHOLE_NOT)
		hasher->told = DS_WHOLE_NOT;
	return whole;
}

void ds_hasher_reference(const void *copy, struct ds_digest *digest)
{
	ds_hash(copy, DS_GRAIN_BYTES / DS_HASH_ROW_BYTES, &key, digest);
}

void ds_hasher_wrong(struct ds_device *device)
{
	hashers[device->ordinal].wrong = true;
	ds_info("park: GPU %d computes another digest than the reference: everything is copied, now and until its context ends",
		device->ordinal);
}

void ds_hasher_ends(struct ds_device *device)
{
	struct hasher *hasher = &hashers[device->ordinal];

	if (!hasher->table || hasher->generation != atomic_load(&device->generation))
		return;
	if (hasher->seen && real->cuMemHostUnregister(hasher->table) != CUDA_SUCCESS)
		ds_debug("the table of digests stays registered");
	else
		munmap(hasher->table, sizeof(*hasher->table));
	*hasher = (struct hasher){ .generation = hasher->generation };
}

void ds_hasher_reset(void)
{
	memset(hashers, 0, sizeof(hashers));
}
