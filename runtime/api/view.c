/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program sees. SM counts, occupancy and resources are the driver's own answers for the primary context and
 * for the program's own handles, which no call of ours changes; green contexts share its limits, device heap, printf
 * buffer, globals and errors (measured). A program's own green contexts and their streams are not ours: native. What is
 * left is memory: the GPU looks as large as the limit, and what of the program's own is parked is no room for more.
 */

#include <stdlib.h>

#include "memory.h"

/* A device that no board was asked for yet: what `detshare run --memory` put into the environment. */
static uint64_t limit_of(CUdevice ordinal)
{
	const char *given;

	if (ordinal < 0 || ordinal >= DS_MAX_DEVICES)
		return 0;
	switch (atomic_load_explicit(&ds_devices[ordinal].state, memory_order_acquire)) {
	case DS_DEVICE_MANAGED:
		return ds_memory_limit(&ds_devices[ordinal]);
	case DS_DEVICE_UNKNOWN:
		given = getenv("DETSHARE_SOCKET") ? getenv("DETSHARE_MEMORY") : NULL;
		return given ? strtoull(given, NULL, 10) : 0;
	default:
		return 0;
	}
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUresult result = real->cuMemGetInfo_v2(free_bytes, total);
	struct ds_device *device = result == CUDA_SUCCESS ? ds_memory_payer() : NULL;
	uint64_t limit = device ? ds_memory_limit(device) : 0, away = device ? ds_memory_away(device) : 0, used;

	if (away && free_bytes)
		*free_bytes = *free_bytes > away ? *free_bytes - away : 0;
	if (!limit)
		return result;
	used = ds_memory_used(device);
	if (total && *total > limit)
		*total = limit;
	if (!free_bytes)
		return result;
	if (used >= limit)
		*free_bytes = 0;
	else if (*free_bytes > limit - used)
		*free_bytes = limit - used;
	return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
	CUresult result = real->cuDeviceTotalMem_v2(bytes, ordinal);
	uint64_t limit = result == CUDA_SUCCESS ? limit_of(ordinal) : 0;

	if (limit && *bytes > limit)
		*bytes = limit;
	return result;
}
