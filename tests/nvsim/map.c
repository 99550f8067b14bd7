// SPDX-License-Identifier: GPL-2.0-only
/* RM_MAP_MEMORY: which memory may be mapped, and a file armed for one mmap of it (mmap.c). */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "files.h"
#include "sim.h"

#define ACCESS_READ_WRITE	0
#define ACCESS_READ_ONLY	1
#define ACCESS_WRITE_ONLY	2
#define USER_READ_ONLY		(1u << 22)	/* NVOS32_ATTR2_PROTECTION_USER */
#define CACHING_MASK		(7u << 23)	/* NVOS33_FLAGS_CACHING_TYPE */
#define CACHING_DEFAULT		(6u << 23)

/* The memory that an object's mapping shows; NULL: it cannot be mapped. */
static struct sim_memory *mappable(struct sim_object *object, u64 *start)
{
	*start = 0;
	switch (object->kind) {
	case KIND_VideoMemory:
	case KIND_SystemMemory:
	case KIND_NoDeviceMemory:
	case KIND_UserModeApi:
	case KIND_GpuUserSharedData:
		return object->memory;
	case KIND_KernelChannel:
		*start = (u64)object->channel->userd_page << PAGE_SHIFT;
		return object->channel->userd;
	case KIND_OsDescMemory:
		return object->memory->type == SIM_REGISTERS ? NULL : object->memory;
	case KIND_RegisterMemory:
		return object->memory;
	default:
		return NULL;
	}
}

/* Where in the usermode region a mapping of registers begins; false: it is not that region, whole. */
static bool usermode_region(struct sim_object *object, u64 *offset, u64 length)
{
	if (object->kind == KIND_RegisterMemory) {
		if (*offset < SIM_BAR0_USERMODE)
			return false;
		*offset -= SIM_BAR0_USERMODE;
	}
	return !*offset && length == (u64)SIM_DOORBELL_PAGES << PAGE_SHIFT;
}

static NV_STATUS check_context(struct sim_client *client, struct sim_object *object, u32 hdevice)
{
	struct sim_object *device;

	if (hdevice == client->handle)
		return object->parent == client->root ? NV_OK : NV_ERR_INVALID_OBJECT_PARENT;
	if (object->parent == client->root)
		return NV_ERR_INVALID_OBJECT_PARENT;
	device = sim_object_find(client, hdevice);
	if (!device)
		return NV_ERR_OBJECT_NOT_FOUND;
	return device->kind == KIND_Device || device->kind == KIND_Subdevice ? NV_OK : NV_ERR_INVALID_OBJECT_PARENT;
}

#define GET33(f)	NV_GET(block, nv_ioctl_nvos33_parameters_with_fd, params_##f)

static NV_STATUS map_locked(const struct sim_caller *by, void *block)
{
	struct sim_client *client = sim_client_find(GET33(hClient), by);
	u64 offset = GET33(offset), length = GET33(length), start;
	struct sim_map_context context = { };
	struct sim_cpu_map *record;
	struct sim_object *object;
	u32 access = GET33(flags) & 3;
	NV_STATUS status;
	bool device_memory;

	/* user space does not choose the caching */
	NV_PUT(block, nv_ioctl_nvos33_parameters_with_fd, params_flags, (GET33(flags) & ~CACHING_MASK) | CACHING_DEFAULT);
	if (!client)
		return sim_client_refused(GET33(hClient));
	object = sim_object_find(client, GET33(hMemory));
	if (!object)
		return NV_ERR_OBJECT_NOT_FOUND;
	status = check_context(client, object, GET33(hDevice));
	if (status != NV_OK)
		return status;
	if (access > ACCESS_WRITE_ONLY)
		return NV_ERR_INVALID_FLAGS;
	context.memory = mappable(object, &start);
	if (!context.memory)
		return NV_ERR_NOT_SUPPORTED;
	if (!length || offset > context.memory->size - start || length > context.memory->size - start - offset)
		return NV_ERR_INVALID_LIMIT;
	if (client->pid != task_tgid_nr(current))
		return NV_ERR_INVALID_CLIENT;
	context.doorbell = context.memory->type == SIM_REGISTERS;
	if (object->kind == KIND_RegisterMemory && by->level < SIM_CALLER_ROOT)
		return NV_ERR_PROTECTION_FAULT;
	if (context.doorbell && !usermode_region(object, &offset, length))
		return NV_ERR_INVALID_LIMIT;
	offset += start;
	context.first = offset >> PAGE_SHIFT;
	context.pages = DIV_ROUND_UP_ULL(offset_in_page(offset) + length, PAGE_SIZE);
	context.writable = access != ACCESS_READ_ONLY &&
			   !(object->kind == KIND_NoDeviceMemory && context.memory->attr2 & USER_READ_ONLY);
	context.client = client->handle;
	context.object = object->handle;
	device_memory = context.doorbell || context.memory->type == SIM_VIDMEM;
	record = kmalloc(sizeof(*record), GFP_KERNEL);
	if (!record)
		return NV_ERR_NO_MEMORY;
	status = sim_file_arm(NV_GET(block, nv_ioctl_nvos33_parameters_with_fd, fd), device_memory ? object->gpu : NULL,
			      &context);
	if (status != NV_OK) {
		kfree(record);
		return status;
	}
	*record = (struct sim_cpu_map) { .device = GET33(hDevice), .memory = object->handle, .pid = client->pid,
					 .linear = sim_memory_linear(context.memory, offset), .length = length };
	list_add(&record->link, &client->cpu_maps);
	NV_PUT(block, nv_ioctl_nvos33_parameters_with_fd, params_pLinearAddress, record->linear);
	return NV_OK;
}

void sim_map_memory(const struct sim_caller *by, void *block)
{
	NV_STATUS status;

	down_write(&sim_api_lock);
	status = map_locked(by, block);
	up_write(&sim_api_lock);
	NV_PUT(block, nv_ioctl_nvos33_parameters_with_fd, params_status, status);
}

static struct sim_cpu_map *find_record(struct sim_client *client, u32 memory, u64 linear)
{
	struct sim_cpu_map *record;

	list_for_each_entry(record, &client->cpu_maps, link)
		if (record->memory == memory && record->linear == linear && record->pid == task_tgid_nr(current))
			return record;
	return NULL;
}

/* The page tables of the process are not touched: it unmaps by itself. */
void sim_unmap_memory(const struct sim_caller *by, void *block)
{
	u32 handle = NV_GET(block, NVOS34_PARAMETERS, hClient);
	struct sim_client *client;
	struct sim_cpu_map *record;
	NV_STATUS status;

	down_write(&sim_api_lock);
	client = sim_client_find(handle, by);
	status = client ? NV_OK : sim_client_refused(handle);
	if (client) {
		record = find_record(client, NV_GET(block, NVOS34_PARAMETERS, hMemory),
				     NV_GET(block, NVOS34_PARAMETERS, pLinearAddress));
		status = record ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
		if (record) {
			list_del(&record->link);
			kfree(record);
		}
	}
	up_write(&sim_api_lock);
	NV_PUT(block, NVOS34_PARAMETERS, status, status);
}

void sim_update_mapping(const struct sim_caller *by, void *block)
{
	NV_STATUS status = NV_ERR_INVALID_CLIENT;
	struct sim_client *client;
	struct sim_cpu_map *record;

	down_write(&sim_api_lock);
	client = sim_client_find(NV_GET(block, NVOS56_PARAMETERS, hClient), by);
	if (client) {
		record = find_record(client, NV_GET(block, NVOS56_PARAMETERS, hMemory),
				     NV_GET(block, NVOS56_PARAMETERS, pOldCpuAddress));
		status = record ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
		if (record)
			record->linear = NV_GET(block, NVOS56_PARAMETERS, pNewCpuAddress);
	}
	up_write(&sim_api_lock);
	NV_PUT(block, NVOS56_PARAMETERS, status, status);
}
