// SPDX-License-Identifier: GPL-2.0-only
/* RM_MAP_MEMORY and what follows from it: a file armed for one mmap, and the mapping itself. */
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "files.h"
#include "sim.h"

#define ACCESS_READ_WRITE	0
#define ACCESS_READ_ONLY	1
#define ACCESS_WRITE_ONLY	2
#define DOORBELL_PAGES		16
#define CACHING_MASK		(7u << 23)	/* NVOS33_FLAGS_CACHING_TYPE */
#define CACHING_DEFAULT		(6u << 23)

static void set_vm_flags(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

/* ---- files ---- */

/* A GPU's file has an address space of its own, so that its mappings can be revoked apart from all others. */
void sim_file_mapping_init(struct sim_file *file, struct file *filp, struct inode *inode)
{
	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = inode->i_mapping->a_ops;
	filp->f_mapping = &file->mapping;
}

void sim_file_mapping_exit(struct sim_file *file)
{
	if (file->ring)
		sim_doorbell_destroy(file->ring);
	if (file->map.valid)
		sim_memory_put(file->map.memory);
	if (file->nv.gpu)
		file->self->f_mapping = file_inode(file->self)->i_mapping;
}

/* Leaves a mapping with one of the caller's files; it takes a reference to the memory. gpu NULL: a control file. */
NV_STATUS sim_file_arm(int fd, struct sim_gpu *gpu, const struct sim_map_context *context)
{
	struct sim_file *file;
	struct file *filp = sim_file_fget(fd, !gpu, &file);
	NV_STATUS status = NV_OK;

	if (!filp)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&file->map_lock);
	if (file->nv.gpu != gpu) {
		status = NV_ERR_INVALID_ARGUMENT;
	} else if (file->map.valid) {
		status = NV_ERR_STATE_IN_USE;
	} else {
		if (context->doorbell) {
			file->ring = sim_doorbell_create(gpu->engine);
			if (IS_ERR_OR_NULL(file->ring)) {
				file->ring = NULL;
				status = NV_ERR_NO_MEMORY;
			}
		}
		if (status == NV_OK) {
			file->map = *context;
			file->map.valid = false;
			sim_memory_get(context->memory);
			smp_store_release(&file->map.valid, true);
		}
	}
	mutex_unlock(&file->map_lock);
	fput(filp);
	return status;
}

/* ---- mappings of GPU files ---- */

static struct page *mapped_page(struct sim_file *file, unsigned long index)
{
	if (file->map.doorbell)
		return index < DOORBELL_PAGES ? sim_doorbell_page(file->ring, index) : NULL;
	return sim_memory_page(file->map.memory, file->map.first + index, true);
}

static vm_fault_t insert_all(struct vm_area_struct *vma, struct sim_file *file)
{
	vm_fault_t result = VM_FAULT_NOPAGE;

	for (unsigned long i = 0; i < vma_pages(vma) && result == VM_FAULT_NOPAGE; i++) {
		struct page *page = mapped_page(file, i);

		if (!page)
			return VM_FAULT_OOM;
		result = vmf_insert_pfn(vma, vma->vm_start + (i << PAGE_SHIFT), page_to_pfn(page));
	}
	return result;
}

/* A revoked mapping comes back whole; a piece of a split one and system memory do not. */
static vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	struct sim_file *file = vmf->vma->vm_file->private_data;

	if (vmf->vma->vm_pgoff || !file->nv.gpu)
		return VM_FAULT_SIGBUS;
	return insert_all(vmf->vma, file);
}

/* ptrace and /proc/PID/mem reach the pages without page tables, revoked or not. */
static int nvidia_vma_access(struct vm_area_struct *vma, unsigned long address, void *buffer, int length, int write)
{
	struct sim_file *file = vma->vm_file->private_data;
	unsigned long offset = address - vma->vm_start + (vma->vm_pgoff << PAGE_SHIFT);
	struct page *page = mapped_page(file, offset >> PAGE_SHIFT);
	void *at;

	if (!page)
		return -EINVAL;
	length = min_t(unsigned long, length, PAGE_SIZE - offset_in_page(offset));
	at = kmap_local_page(page);
	if (write)
		memcpy(at + offset_in_page(offset), buffer, length);
	else
		memcpy(buffer, at + offset_in_page(offset), length);
	kunmap_local(at);
	return length;
}

static void nvidia_vma_open(struct vm_area_struct *vma)
{
}

static void nvidia_vma_release(struct vm_area_struct *vma)
{
}

static const struct vm_operations_struct nv_vm_ops = {
	.open = nvidia_vma_open,
	.close = nvidia_vma_release,
	.fault = nvidia_fault,
	.access = nvidia_vma_access,
};

static int map_gpu(struct vm_area_struct *vma, struct sim_file *file)
{
	vm_fault_t result;

	if (vma_pages(vma) != file->map.pages)
		return -ENXIO;
	if ((vma->vm_flags & (VM_SHARED | VM_MAYWRITE)) == VM_MAYWRITE)
		return -EINVAL;
	set_vm_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND, 0);
	result = insert_all(vma, file);
	return result == VM_FAULT_NOPAGE ? 0 : -EAGAIN;
}

static int map_system(struct vm_area_struct *vma, struct sim_file *file)
{
	struct sim_map_context *map = &file->map;
	unsigned long total = DIV_ROUND_UP_ULL(map->memory->size, PAGE_SIZE), pages = vma_pages(vma);
	int error;

	if (map->first + pages < pages || map->first + pages > total)
		return -ERANGE;
	error = sim_memory_populate(map->memory, map->first, pages);
	for (unsigned long i = 0; i < pages && !error; i++)
		error = vm_insert_page(vma, vma->vm_start + (i << PAGE_SHIFT),
				       sim_memory_page(map->memory, map->first + i, true));
	set_vm_flags(vma, VM_SHARED | VM_DONTEXPAND | VM_DONTDUMP, 0);
	return error;
}

int nvidia_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct sim_file *file = filp->private_data;
	int error;

	if (!smp_load_acquire(&file->map.valid) || vma->vm_pgoff)
		return -EINVAL;
	error = file->nv.gpu ? map_gpu(vma, file) : map_system(vma, file);
	if (error)
		return error;
	if (!file->map.writable)
		set_vm_flags(vma, 0, VM_WRITE | VM_MAYWRITE);
	vma->vm_ops = &nv_vm_ops;
	return 0;
}

/* ---- RM_MAP_MEMORY ---- */

/* The memory that an object's mapping shows; NULL: it cannot be mapped. */
static struct sim_memory *mappable(struct sim_object *object, u64 *start)
{
	*start = 0;
	switch (object->kind) {
	case KIND_VideoMemory:
	case KIND_SystemMemory:
	case KIND_NoDeviceMemory:
	case KIND_OsDescMemory:
	case KIND_UserModeApi:
	case KIND_GpuUserSharedData:
		return object->memory;
	case KIND_KernelChannel:
		*start = (u64)object->channel->userd_page << PAGE_SHIFT;
		return object->channel->userd;
	default:
		return NULL;
	}
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
	offset += start;
	context.first = offset >> PAGE_SHIFT;
	context.pages = DIV_ROUND_UP_ULL(offset_in_page(offset) + length, PAGE_SIZE);
	context.writable = access != ACCESS_READ_ONLY;
	context.doorbell = context.memory->type == SIM_REGISTERS;
	if (context.doorbell && (context.first || context.pages != DOORBELL_PAGES))
		return NV_ERR_INVALID_LIMIT;
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
