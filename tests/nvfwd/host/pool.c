// SPDX-License-Identifier: Apache-2.0
/*
 * UVM maps a semaphore pool into the program that asks, at the pool's own address, which the helper has no program for. So the pool is
 * memory of the guest: registered with the resource manager as memory of ours, mapped for the GPUs as an external allocation at the address
 * that was asked for. Assumed, for no recording shows it: programs use a pool by its address only, so they cannot tell.
 */
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "helper.h"

#define SPACES 256
#define ATTRIBUTES 36	/* UvmGpuMappingAttributes; the UUID is its beginning, zeroes mean the default */
#define FIRST_HANDLE 0xd5f00000u
/* what libcuda registers its own memory with, in the recordings */
#define FLAGS 0x40001010u
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define OS(field) nv_ioctl_nvos02_parameters_with_fd__params_##field
#define RANGE(field) UVM_CREATE_EXTERNAL_RANGE_PARAMS__##field
#define MAP(field) UVM_MAP_EXTERNAL_ALLOCATION_PARAMS__##field
#define POOL(field) UVM_ALLOC_SEMAPHORE_POOL_PARAMS__##field
#define STATUS_INVALID_STATE 0x40

/* GPUs whose spaces a UVM file has, with who registered them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct space { bool used; s32 uvm; u8 uuid[16]; u32 client; } spaces[SPACES];
static u32 next_handle = FIRST_HANDLE;

void pool_registered(s32 uvm, const u8 *block)
{
	struct space *place = NULL;

	pthread_mutex_lock(&lock);
	for (u32 i = 0; i < SPACES; i++)
		if (spaces[i].used && spaces[i].uvm == uvm && !memcmp(spaces[i].uuid, block, 16))
			place = &spaces[i];
		else if (!place && !spaces[i].used)
			place = &spaces[i];
	if (place) {
		place->used = true;
		place->uvm = uvm;
		memcpy(place->uuid, block + UVM_REGISTER_GPU_VASPACE_PARAMS__gpuUuid_uuid, 16);
		place->client = nvf_get32(block, UVM_REGISTER_GPU_VASPACE_PARAMS__hClient);
	}
	pthread_mutex_unlock(&lock);
}

void pool_closed(s32 uvm)
{
	pthread_mutex_lock(&lock);
	for (u32 i = 0; i < SPACES; i++)
		if (spaces[i].uvm == uvm)
			spaces[i].used = false;
	pthread_mutex_unlock(&lock);
}

/* A GPU's file that was registered with the client's: memory is registered by those. */
static s32 gpu_file(s32 control)
{
	for (s32 i = 0; i < HANDLES; i++) {
		struct handle *file = handle_get(i);
		bool fits = file && file->dev == NVF_GPU && file->control == control;

		if (fits)
			return i;	/* held */
		if (file)
			handle_put(i);
	}
	return -ENOENT;
}

/* The client's new memory, or 0. */
static u32 register_memory(const struct space *space, void *at, u64 length, int gpu)
{
	u8 block[nv_ioctl_nvos02_parameters_with_fd__SIZE] = { 0 };
	u32 handle = __atomic_add_fetch(&next_handle, 1, __ATOMIC_RELAXED);

	nvf_put32(block, OS(hRoot), space->client);
	nvf_put32(block, OS(hObjectParent), client_has_device(space->client));
	nvf_put32(block, OS(hObjectNew), handle);
	nvf_put32(block, OS(hClass), NVF_CLASS_OS_DESCRIPTOR);
	nvf_put32(block, OS(flags), FLAGS);
	nvf_put64(block, OS(pMemory), (u64)(uintptr_t)at);
	nvf_put64(block, OS(limit), length - 1);
	nvf_put32(block, nv_ioctl_nvos02_parameters_with_fd__fd, UINT32_MAX);
	if (ioctl(gpu, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_ESC_RM_ALLOC_MEMORY, sizeof(block)), block) < 0 ||
	    nvf_get32(block, OS(status))) {
		say("pool: memory is not registered: status %#x (%m)", nvf_get32(block, OS(status)));
		return 0;
	}
	return handle;
}

static u32 make_range(int uvm, u64 base, u64 length)
{
	u8 block[UVM_CREATE_EXTERNAL_RANGE_PARAMS__SIZE] = { 0 };

	nvf_put64(block, RANGE(base), base);
	nvf_put64(block, RANGE(length), length);
	return ioctl(uvm, UVM_CREATE_EXTERNAL_RANGE, block) < 0 ? STATUS_INVALID_STATE : nvf_get32(block, RANGE(rmStatus));
}

static u32 map_range(int uvm, u64 base, u64 length, const struct space *space, int control, u32 memory)
{
	u8 block[UVM_MAP_EXTERNAL_ALLOCATION_PARAMS__SIZE] = { 0 };

	nvf_put64(block, MAP(base), base);
	nvf_put64(block, MAP(length), length);
	memcpy(block + MAP(perGpuAttributes), space->uuid, sizeof(space->uuid));
	nvf_put64(block, MAP(gpuAttributesCount), 1);
	nvf_put32(block, MAP(rmCtrlFd), (u32)control);
	nvf_put32(block, MAP(hClient), space->client);
	nvf_put32(block, MAP(hMemory), memory);
	return ioctl(uvm, UVM_MAP_EXTERNAL_ALLOCATION, block) < 0 ? STATUS_INVALID_STATE : nvf_get32(block, MAP(rmStatus));
}

static u32 map_for(const struct issue *issue, const struct space *space, void *at, u64 base, u64 length)
{
	s32 owner = client_owner(space->client);
	struct handle *control = handle_get(owner);
	u32 memory = 0, status = STATUS_INVALID_STATE;
	s32 gpu = control ? gpu_file(owner) : -ENOENT;

	if (gpu >= 0) {
		struct handle *file = handle_get(gpu);

		if (file) {
			memory = register_memory(space, at, length, file->fd);
			handle_put(gpu);
		}
		handle_put(gpu);
	}
	if (memory)
		status = map_range(issue->file->fd, base, length, space, control->fd, memory);
	if (control)
		handle_put(owner);
	return status;
}

long pool_make(const struct issue *issue)
{
	u64 base = nvf_get64(issue->data, POOL(base)), length = nvf_get64(issue->data, POOL(length));
	struct space mine[8];
	u32 found = 0, status;
	void *at;

	pthread_mutex_lock(&lock);
	for (u32 i = 0; i < SPACES && found < ARRAY_SIZE(mine); i++)
		if (spaces[i].used && spaces[i].uvm == issue->handle)
			mine[found++] = spaces[i];
	pthread_mutex_unlock(&lock);
	at = pin_hold(issue->pin - 1, 0, length);
	if (!at)
		return -EFAULT;
	status = found ? make_range(issue->file->fd, base, length) : STATUS_INVALID_STATE;
	for (u32 i = 0; i < found && !status; i++)
		status = map_for(issue, &mine[i], at, base, length);
	pin_release(issue->pin - 1);
	if (status)
		say("pool: %llx+%llx for %u GPUs: status %#x", (unsigned long long)base, (unsigned long long)length, found, status);
	nvf_put32(issue->data, POOL(rmStatus), status);
	return 0;
}
