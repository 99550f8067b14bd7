// SPDX-License-Identifier: Apache-2.0
/*
 * Devices: FAKECUDA_DEVICES (1), FAKECUDA_SMS (132), FAKECUDA_MEMORY (80G), FAKECUDA_UUID_SEED, FAKECUDA_GREEN=0 (no
 * green contexts), FAKECUDA_MIG=1.
 */
#include <stdio.h>

#include "api.h"

struct device devices[MAX_DEVICES];
int device_count;

unsigned int sms_count(const struct sm_set *set)
{
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(set->bits); i++)
		n += (unsigned int)__builtin_popcountll(set->bits[i]);
	return n;
}

unsigned int sms_list(const struct sm_set *set, uint16_t *ids)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_SMS; i++)
		if (set->bits[i / 64] >> (i % 64) & 1)
			ids[n++] = (uint16_t)i;
	return n;
}

struct sm_set sms_first(const struct sm_set *from, unsigned int n)
{
	struct sm_set set = { 0 };

	for (unsigned int i = 0; i < MAX_SMS && n; i++) {
		if (from->bits[i / 64] >> (i % 64) & 1) {
			set.bits[i / 64] |= 1ULL << (i % 64);
			n--;
		}
	}
	return set;
}

struct sm_set sms_without(const struct sm_set *from, const struct sm_set *less)
{
	struct sm_set set;

	for (size_t i = 0; i < ARRAY_LENGTH(set.bits); i++)
		set.bits[i] = from->bits[i] & ~less->bits[i];
	return set;
}

struct sm_set sms_all(unsigned int n)
{
	struct sm_set full;

	memset(&full, 0xff, sizeof(full));
	return sms_first(&full, n);
}

static size_t size_from(const char *name, size_t otherwise)
{
	const char *text = getenv(name);
	char *end;
	size_t value;

	if (!text || !*text)
		return otherwise;
	value = strtoull(text, &end, 0);
	if (*end == 'G')
		value <<= 30;
	else if (*end == 'M')
		value <<= 20;
	return value;
}

void devices_start(void)
{
	unsigned int sms = (unsigned int)size_from("FAKECUDA_SMS", 132);
	size_t seed = size_from("FAKECUDA_UUID_SEED", 0);

	device_count = (int)size_from("FAKECUDA_DEVICES", 1);
	if (device_count > MAX_DEVICES)
		device_count = MAX_DEVICES;
	for (int i = 0; i < device_count; i++) {
		struct device *device = &devices[i];

		device->ordinal = i;
		device->place = i;
		device->sms = sms > MAX_SMS ? MAX_SMS : sms;
		device->memory = size_from("FAKECUDA_MEMORY", 80UL << 30);
		memset(&device->uuid, 0x5a, sizeof(device->uuid));
		device->uuid.bytes[0] = (char)0xfa;
		device->uuid.bytes[14] = (char)seed;
		device->uuid.bytes[15] = (char)i;
		arena_start(device);
		pool_start(device);
	}
}

CUresult device_of(CUdevice ordinal, struct device **device)
{
	if (ordinal < 0 || ordinal >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = &devices[ordinal];
	return CUDA_SUCCESS;
}

API(cuDeviceGetCount, int *, count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = device_count;
	return CUDA_SUCCESS;
}

API(cuDeviceGet, CUdevice *, handle, int, ordinal)
{
	struct device *device;

	TRY(device_of(ordinal, &device));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = ordinal;
	return CUDA_SUCCESS;
}

API(cuDeviceGetName, char *, name, int, length, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	if (!name || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)length, "Fake H100 80GB");
	return CUDA_SUCCESS;
}

API(cuDeviceGetUuid, CUuuid *, uuid, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	*uuid = device->uuid;
	if (!getenv("FAKECUDA_OLD_UUID"))
		uuid->bytes[15] = (char)device->place;
	return CUDA_SUCCESS;
}

SAME(cuDeviceGetUuid_v2, cuDeviceGetUuid, CUuuid *, uuid, CUdevice, handle)

API(cuDeviceGetLuid, char *, luid, unsigned int *, mask, CUdevice, handle)
{
	(void)luid;
	(void)mask;
	(void)handle;
	return CUDA_ERROR_NOT_SUPPORTED;
}

API(cuDeviceTotalMem_v2, size_t *, bytes, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = device->memory;
	return CUDA_SUCCESS;
}

API(cuDeviceComputeCapability, int *, major, int *, minor, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

API(cuDeviceGetPCIBusId, char *, text, int, length, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	if (!text || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(text, (size_t)length, "0000:%02X:00.0", 0x10 + handle);
	return CUDA_SUCCESS;
}

API(cuDeviceGetByPCIBusId, CUdevice *, handle, const char *, text)
{
	unsigned int bus;

	if (!handle || !text || sscanf(text, "0000:%x:00.0", &bus) != 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (bus < 0x10 || (int)bus - 0x10 >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	*handle = (int)bus - 0x10;
	return CUDA_SUCCESS;
}

static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152 },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
	{ CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536 },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120 },
	{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800 },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048 },
	{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472 },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536 },
	{ CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448 },
	{ CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32 },
	{ CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 32768000 },
	{ CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 134217728 },
	{ CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4 },
	{ CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1 },
};

API(cuDeviceGetAttribute, int *, value, CUdevice_attribute, attribute, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	if (!value || (int)attribute < 1 || attribute >= 160)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
		*value = (int)device->sms;
	else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		*value = 0x10 + handle;
	for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++)
		if (attributes[i].attribute == attribute)
			*value = attributes[i].value;
	return CUDA_SUCCESS;
}

API(cuDeviceCanAccessPeer, int *, can, CUdevice, one, CUdevice, other)
{
	struct device *a, *b;

	TRY(device_of(one, &a));
	TRY(device_of(other, &b));
	*can = a != b;
	return CUDA_SUCCESS;
}

API(cuDeviceGetP2PAttribute, int *, value, CUdevice_P2PAttribute, attribute, CUdevice, one, CUdevice, other)
{
	struct device *a, *b;

	TRY(device_of(one, &a));
	TRY(device_of(other, &b));
	*value = a != b && attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
	return CUDA_SUCCESS;
}

API(cuDeviceGetExecAffinitySupport, int *, value, CUexecAffinityType, type, CUdevice, handle)
{
	struct device *device;

	TRY(device_of(handle, &device));
	*value = type == CU_EXEC_AFFINITY_TYPE_SM_COUNT;
	return CUDA_SUCCESS;
}
