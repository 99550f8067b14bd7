// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPU mappings: the helper puts what the host's file maps into the shared region, and the program gets the region's pages. What is mapped
 * stays there until the file is closed, which no mapping outlives. Functions have the driver's names: other modules hook them.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/version.h>

#include "fwd.h"

static void set_flags(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

static unsigned long pfn_of(const struct nvf_file *file, unsigned long page)
{
	return ((nvf_shared_base() + file->shared) >> PAGE_SHIFT) + page;
}

static vm_fault_t insert_all(struct vm_area_struct *vma, const struct nvf_file *file)
{
	vm_fault_t result = VM_FAULT_NOPAGE;

	if (vma_pages(vma) > file->pages)
		return VM_FAULT_SIGBUS;
	for (unsigned long i = 0; i < vma_pages(vma) && result == VM_FAULT_NOPAGE; i++)
		result = vmf_insert_pfn_prot(vma, vma->vm_start + (i << PAGE_SHIFT), pfn_of(file, i), vma->vm_page_prot);
	return result;
}

/* A revoked mapping of a GPU's file comes back whole; a piece of a split one and what the control device maps do not. */
static noinline vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	const struct nvf_file *file = vmf->vma->vm_file->private_data;

	if (vmf->vma->vm_pgoff != file->pgoff || file->dev != NVF_GPU)
		return VM_FAULT_SIGBUS;
	return insert_all(vmf->vma, file);
}

/* ptrace and /proc/PID/mem reach the pages without page tables. */
static noinline int nvidia_vma_access(struct vm_area_struct *vma, unsigned long address, void *buffer, int length, int write)
{
	const struct nvf_file *file = vma->vm_file->private_data;
	unsigned long offset = address - vma->vm_start + ((vma->vm_pgoff - file->pgoff) << PAGE_SHIFT);
	void *at;

	if (offset >= file->pages << PAGE_SHIFT)
		return -EINVAL;
	length = min_t(unsigned long, length, PAGE_SIZE - offset_in_page(offset));
	at = memremap(PFN_PHYS(pfn_of(file, offset >> PAGE_SHIFT)), PAGE_SIZE, MEMREMAP_WB);
	if (!at)
		return -ENOMEM;
	if (write)
		memcpy(at + offset_in_page(offset), buffer, length);
	else
		memcpy(buffer, at + offset_in_page(offset), length);
	memunmap(at);
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

static void told(int error, u64 pages)
{
	if (error == -EMFILE)
		pr_warn_ratelimited("nvidia: a mapping is refused: there are %u, the most that QEMU takes\n", NVF_MAX_MAPS);
	else if (error == -ENOSPC)
		pr_warn_ratelimited("nvidia: a mapping of %llu KiB is refused: the region of %llu MiB has no room for it\n",
				    pages << (PAGE_SHIFT - 10), nvf_shared_size() >> 20);
}

/* The file's place in the region. Once it has one, all its mappings are of that; the driver too lets a file carry one thing. */
static int find_place(struct nvf_file *file, unsigned long pgoff, u64 pages)
{
	struct nvf_call *call;
	u64 shared;
	int error;

	if (file->mapped)
		return file->pgoff == pgoff && file->pages == pages ? 0 : -EINVAL;
	call = nvf_call_new(NVF_MMAP, file->handle, 0, 0);
	if (!call)
		return -ENOMEM;
	call->req.a = (u64)pgoff << PAGE_SHIFT;
	call->req.b = pages << PAGE_SHIFT;
	error = nvf_call_wait(call);
	if (error)
		return error;
	error = call->rep.err;
	shared = (u64)call->rep.val;
	nvf_call_free(call);
	if (error) {
		told(error, pages);
		return error;
	}
	if (offset_in_page(shared) || shared > nvf_shared_size() || pages << PAGE_SHIFT > nvf_shared_size() - shared)
		return -EIO;
	file->shared = shared;
	file->pages = pages;
	file->pgoff = pgoff;
	file->mapped = true;
	return 0;
}

noinline int nvidia_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct nvf_file *file = filp->private_data;
	int error;

	if (vma->vm_pgoff || (vma->vm_flags & (VM_SHARED | VM_MAYWRITE)) == VM_MAYWRITE)
		return -EINVAL;
	mutex_lock(&file->lock);
	error = find_place(file, vma->vm_pgoff, vma_pages(vma));
	mutex_unlock(&file->lock);
	if (error)
		return error;
	set_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP, 0);
	if (insert_all(vma, file) != VM_FAULT_NOPAGE)
		return -EAGAIN;
	vma->vm_ops = &nv_vm_ops;
	return 0;
}
