// SPDX-License-Identifier: GPL-2.0-only
/* The exports of nvidia.ko that nvidia-uvm.ko uses. */
#include <linux/file.h>
#include <linux/module.h>

#include "files.h"
#include "uvm_iface.h"

/* The caller's control file of that descriptor, held; NULL if it is none. */
static struct file *caller_of(int fd, struct sim_caller *by)
{
	struct sim_file *file;
	struct file *filp = sim_file_fget(fd, true, &file);

	if (filp)
		*by = (struct sim_caller) { .level = SIM_CALLER_USER, .file = file->ctl ? file->ctl : file };
	return filp;
}

/* Looks an object of a client up; sim_api_lock held. */
static NV_STATUS find(const struct sim_caller *by, u32 client_handle, u32 handle, struct sim_object **object)
{
	struct sim_client *client = sim_client_find(client_handle, by);

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	*object = sim_object_find(client, handle);
	return *object ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

NV_STATUS sim_uvm_get_vas(int ctl_fd, u32 client, u32 handle, struct sim_gpu *gpu, struct sim_vas **vas)
{
	struct sim_object *object;
	struct sim_caller by;
	struct file *filp = caller_of(ctl_fd, &by);
	NV_STATUS status;

	if (!filp)
		return NV_ERR_INVALID_ARGUMENT;
	down_read(&sim_api_lock);
	status = find(&by, client, handle, &object);
	if (status == NV_OK && (object->kind != KIND_VaSpaceApi || object->gpu != gpu))
		status = NV_ERR_INVALID_OBJECT_HANDLE;
	if (status == NV_OK && !object->vas->external)
		status = NV_ERR_INVALID_FLAGS;
	if (status == NV_OK)
		*vas = sim_vas_get(object->vas);
	up_read(&sim_api_lock);
	fput(filp);
	return status;
}
EXPORT_SYMBOL_GPL(sim_uvm_get_vas);

static DEFINE_XARRAY_ALLOC1(dups);	/* by handle */

noinline NV_STATUS nvUvmInterfaceDupMemory(void *device, NvU32 hClient, NvU32 hPhysMemory, NvU32 *hDupMemory, void *info)
{
	const struct sim_caller by = { .level = SIM_CALLER_KERNEL };
	struct sim_object *object;
	NV_STATUS status;

	down_write(&sim_api_lock);
	status = find(&by, hClient, hPhysMemory, &object);
	if (status == NV_OK && (!sim_kind_isa(object->kind, KIND_Memory) || object->memory->type == SIM_VIRTUAL ||
				 (object->memory->type == SIM_REGISTERS && !object->memory->bell)))
		status = NV_ERR_INVALID_OBJECT_HANDLE;
	if (status == NV_OK && xa_alloc(&dups, hDupMemory, object->memory, xa_limit_32b, GFP_KERNEL))
		status = NV_ERR_NO_MEMORY;
	if (status == NV_OK) {
		sim_memory_use(object->memory);
		if (info)
			*(struct sim_memory **)info = object->memory;
	}
	up_write(&sim_api_lock);
	return status;
}
EXPORT_SYMBOL_GPL(nvUvmInterfaceDupMemory);

noinline NV_STATUS nvUvmInterfaceFreeDupedHandle(void *device, NvU32 hPhysHandle)
{
	struct sim_memory *memory;

	memory = xa_erase(&dups, hPhysHandle);
	if (!memory)
		return NV_ERR_OBJECT_NOT_FOUND;
	sim_memory_unuse(memory);
	return NV_OK;
}
EXPORT_SYMBOL_GPL(nvUvmInterfaceFreeDupedHandle);

NV_STATUS sim_uvm_register_channel(int ctl_fd, u32 client, u32 handle, struct sim_gpu *gpu, struct sim_vas *vas)
{
	struct sim_object *object;
	struct sim_caller by;
	struct file *filp = caller_of(ctl_fd, &by);
	NV_STATUS status;

	if (!filp)
		return NV_ERR_INVALID_ARGUMENT;
	down_write(&sim_api_lock);
	status = find(&by, client, handle, &object);
	if (status == NV_OK && (object->kind != KIND_KernelChannel || object->gpu != gpu))
		status = NV_ERR_INVALID_CHANNEL;
	if (status == NV_OK && object->channel->vas != vas)
		status = NV_ERR_INVALID_ARGUMENT;
	if (status == NV_OK && object->channel->registered)
		status = NV_ERR_INVALID_CHANNEL;
	if (status == NV_OK)
		object->channel->registered = true;
	up_write(&sim_api_lock);
	fput(filp);
	return status;
}
EXPORT_SYMBOL_GPL(sim_uvm_register_channel);

/* The channel may be gone already. */
void sim_uvm_unregister_channel(u32 client_handle, u32 handle)
{
	struct sim_client *client;
	struct sim_object *object;

	down_write(&sim_api_lock);
	client = sim_client_any(client_handle);
	object = client ? sim_object_find(client, handle) : NULL;
	if (object && object->kind == KIND_KernelChannel)
		object->channel->registered = false;
	up_write(&sim_api_lock);
}
EXPORT_SYMBOL_GPL(sim_uvm_unregister_channel);

NV_STATUS sim_uvm_check_client(int ctl_fd, u32 client)
{
	struct sim_caller by;
	struct file *filp = caller_of(ctl_fd, &by);
	NV_STATUS status;

	if (!filp)
		return NV_ERR_INVALID_ARGUMENT;
	down_read(&sim_api_lock);
	status = sim_client_find(client, &by) ? NV_OK : NV_ERR_INVALID_CLIENT;
	up_read(&sim_api_lock);
	fput(filp);
	return status;
}
EXPORT_SYMBOL_GPL(sim_uvm_check_client);

bool sim_uvm_take(struct sim_gpu *gpu, u64 bytes)
{
	return sim_heap_take(&gpu->heap, bytes, NULL);
}
EXPORT_SYMBOL_GPL(sim_uvm_take);

void sim_uvm_give(struct sim_gpu *gpu, u64 bytes)
{
	sim_heap_give(&gpu->heap, bytes);
}
EXPORT_SYMBOL_GPL(sim_uvm_give);

u32 sim_uvm_ioctl_size(u32 nr)
{
	return sim_uvm_size(nr);
}
EXPORT_SYMBOL_GPL(sim_uvm_ioctl_size);
EXPORT_SYMBOL_GPL(sim_gpus);
EXPORT_SYMBOL_GPL(sim_memory_create);
EXPORT_SYMBOL_GPL(sim_memory_populate);
