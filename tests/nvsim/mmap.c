// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPU mappings of /dev/nvidiaN and /dev/nvidiactl: what an armed file maps, what a fault brings back, what is revoked.
 * Functions have the driver's own names and can be traced: other modules hook them.
 */
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "files.h"
#include "methods.h"
#include "sim.h"

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
	struct sim_gpu *gpu = file->nv.gpu;

	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = inode->i_mapping->a_ops;
	filp->f_mapping = &file->mapping;
	mutex_lock(&gpu->open_files_lock);
	list_add_tail(&file->of_gpu, &gpu->open_files);
	mutex_unlock(&gpu->open_files_lock);
}

void sim_file_mapping_exit(struct sim_file *file)
{
	struct sim_gpu *gpu = file->nv.gpu;

	if (gpu) {
		mutex_lock(&gpu->open_files_lock);
		list_del(&file->of_gpu);
		mutex_unlock(&gpu->open_files_lock);
	}
	if (file->ring)
		sim_doorbell_destroy(file->ring);
	if (file->map.valid)
		sim_memory_put(file->map.memory);
	if (gpu)
		file->self->f_mapping = file_inode(file->self)->i_mapping;
}

static NV_STATUS make_doorbell(struct sim_file *file, const struct sim_map_context *context)
{
	const struct sim_doorbell_owner owner = {
		.way = "cpu", .client = context->client, .object = context->object, .pid = task_tgid_nr(current),
	};

	file->ring = sim_doorbell_create(file->nv.gpu->engine, &owner, true);
	if (!IS_ERR(file->ring))
		return NV_OK;
	file->ring = NULL;
	return NV_ERR_NO_MEMORY;
}

/* Leaves a mapping with one of the caller's files; it takes a reference to the memory. gpu NULL: a control file. */
NV_STATUS sim_file_arm(int fd, struct sim_gpu *gpu, const struct sim_map_context *context)
{
	void *held = NULL;
	struct sim_file *file = nv_get_file_private(fd, !gpu, &held);
	NV_STATUS status = NV_OK;

	if (!file)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&file->map_lock);
	if (file->nv.gpu != gpu)
		status = NV_ERR_INVALID_ARGUMENT;
	else if (file->map.valid)
		status = NV_ERR_STATE_IN_USE;
	else if (context->doorbell)
		status = make_doorbell(file, context);
	if (status == NV_OK) {
		file->map = *context;
		file->map.valid = false;
		sim_memory_get(context->memory);
		smp_store_release(&file->map.valid, true);
	}
	mutex_unlock(&file->map_lock);
	nv_put_file_private(held);
	return status;
}

/* ---- mappings of GPU files ---- */

static struct page *mapped_page(struct sim_file *file, unsigned long index)
{
	if (file->map.doorbell)
		return index < SIM_DOORBELL_PAGES ? sim_doorbell_page(file->ring, index) : NULL;
	return sim_memory_page(file->map.memory, file->map.first + index, true);
}

/* Page by page, with the protection that the mapping has now. */
static vm_fault_t insert_all(struct vm_area_struct *vma, struct sim_file *file)
{
	vm_fault_t result = VM_FAULT_NOPAGE;

	for (unsigned long i = 0; i < vma_pages(vma) && result == VM_FAULT_NOPAGE; i++) {
		struct page *page = mapped_page(file, i);

		if (!page)
			return VM_FAULT_OOM;
		result = vmf_insert_pfn_prot(vma, vma->vm_start + (i << PAGE_SHIFT), page_to_pfn(page),
					     vma->vm_page_prot);
	}
	return result;
}

/*
 * A revoked mapping comes back whole; a piece of a split one and system memory do not. While the GPU is not to be touched
 * the fault is taken again and again, as the driver has it.
 */
static noinline vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	struct sim_file *file = vmf->vma->vm_file->private_data;
	struct sim_gpu *gpu = file->nv.gpu;
	vm_fault_t result = VM_FAULT_NOPAGE;

	if (vmf->vma->vm_pgoff || !gpu)
		return VM_FAULT_SIGBUS;
	if (!down_read_trylock(&nv_system_pm_lock))
		return VM_FAULT_NOPAGE;
	mutex_lock(&gpu->mmap_lock);
	if (gpu->safe_to_mmap)
		result = insert_all(vmf->vma, file);
	mutex_unlock(&gpu->mmap_lock);
	if (file->ring && result == VM_FAULT_NOPAGE)
		sim_doorbell_expect(file->ring);
	up_read(&nv_system_pm_lock);
	return result;
}

/* ptrace and /proc/PID/mem reach the pages without page tables, revoked or not. */
static noinline int nvidia_vma_access(struct vm_area_struct *vma, unsigned long address, void *buffer, int length,
				      int write)
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

static noinline void nvidia_vma_open(struct vm_area_struct *vma)
{
	barrier();
}

static noinline void nvidia_vma_release(struct vm_area_struct *vma)
{
	barrier();
}

static const struct vm_operations_struct nv_vm_ops = {
	.open = nvidia_vma_open,
	.close = nvidia_vma_release,
	.fault = nvidia_fault,
	.access = nvidia_vma_access,
};

static int map_gpu(struct vm_area_struct *vma, struct sim_file *file)
{
	struct sim_gpu *gpu = file->nv.gpu;
	vm_fault_t result = VM_FAULT_NOPAGE;

	if (vma_pages(vma) != file->map.pages)
		return -ENXIO;
	if ((vma->vm_flags & (VM_SHARED | VM_MAYWRITE)) == VM_MAYWRITE)
		return -EINVAL;
	vma->vm_page_prot = file->map.doorbell ? pgprot_noncached(vma->vm_page_prot) :
						 pgprot_writecombine(vma->vm_page_prot);
	set_vm_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND, 0);
	mutex_lock(&gpu->mmap_lock);
	if (gpu->safe_to_mmap)
		result = insert_all(vma, file);
	mutex_unlock(&gpu->mmap_lock);
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

static noinline int nvidia_mmap_helper(struct sim_file *file, struct vm_area_struct *vma)
{
	int error = file->nv.gpu ? map_gpu(vma, file) : map_system(vma, file);

	if (error)
		return error;
	if (!file->map.writable)
		set_vm_flags(vma, 0, VM_WRITE | VM_MAYWRITE);
	vma->vm_ops = &nv_vm_ops;
	return 0;
}

noinline int nvidia_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct sim_file *file = filp->private_data;

	if (!smp_load_acquire(&file->map.valid) || vma->vm_pgoff)
		return -EINVAL;
	return nvidia_mmap_helper(file, vma);
}

/* ---- revocation ---- */

/* Takes the mappings of a GPU's files away; each comes back with its next fault. */
noinline void nv_revoke_gpu_mappings(nv_state_t *nv)
{
	struct sim_gpu *gpu = nv->gpu;
	struct sim_file *file;

	mutex_lock(&gpu->mmap_lock);
	mutex_lock(&gpu->open_files_lock);
	list_for_each_entry(file, &gpu->open_files, of_gpu)
		unmap_mapping_range(&file->mapping, 0, ~0ull, 1);
	mutex_unlock(&gpu->open_files_lock);
	mutex_unlock(&gpu->mmap_lock);
}

/* Whether mappings may be made and come back. */
void sim_gpu_allow_maps(struct sim_gpu *gpu, bool allow)
{
	mutex_lock(&gpu->mmap_lock);
	gpu->safe_to_mmap = allow;
	mutex_unlock(&gpu->mmap_lock);
}
