// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings of a UVM file: managed ranges, which mmap makes and munmap ends, and semaphore pools, which an ioctl made. The
 * offset of each is its own address. A mapping that moved is dead: it faults.
 */
#include <linux/mm.h>
#include <linux/version.h>

#include "uvm.h"

static struct uvm_space *space_of(struct vm_area_struct *vma)
{
	return vma->vm_file->private_data;
}

static void set_vm_flags(struct vm_area_struct *vma, vm_flags_t set)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, set);
#else
	vma->vm_flags |= set;
#endif
}

static bool moved(struct vm_area_struct *vma)
{
	return vma->vm_start != vma->vm_pgoff << PAGE_SHIFT;
}

static vm_fault_t fault_locked(struct vm_fault *vmf)
{
	struct uvm_space *space = space_of(vmf->vma);
	u64 va = vmf->address & PAGE_MASK;
	struct uvm_range *range = moved(vmf->vma) ? NULL : uvm_range_at(space, va);
	struct page *page;

	if (!range || !range->memory || !vmf->vma->vm_private_data)
		return VM_FAULT_SIGBUS;
	page = sim_memory_page(range->memory, (va - range->base + range->offset) >> PAGE_SHIFT, true);
	if (!page)
		return VM_FAULT_OOM;
	get_page(page);
	vmf->page = page;
	return 0;
}

static vm_fault_t uvm_vm_fault_entry(struct vm_fault *vmf)
{
	struct uvm_space *space = space_of(vmf->vma);
	vm_fault_t result;

	mutex_lock(&space->lock);
	result = fault_locked(vmf);
	mutex_unlock(&space->lock);
	return result;
}

/* Called for the new half of a split and for a moved mapping (children of a fork get none: VM_DONTCOPY). */
static void uvm_vm_open_managed(struct vm_area_struct *vma)
{
	struct uvm_space *space = space_of(vma);
	struct uvm_range *range;

	mutex_lock(&space->lock);
	range = moved(vma) ? NULL : uvm_range_at(space, vma->vm_start);
	if (!range) {
		vma->vm_private_data = NULL;
	} else if (range->base < vma->vm_start) {
		uvm_range_split(space, range, vma->vm_start);
	} else if (vma->vm_end < range->base + range->length) {
		uvm_range_split(space, range, vma->vm_end);
	}
	mutex_unlock(&space->lock);
}

static void uvm_vm_open_managed_entry(struct vm_area_struct *vma)
{
	uvm_vm_open_managed(vma);
}

/* All ranges of [vma->vm_start, vma->vm_end) end. */
static void uvm_vm_close_managed(struct vm_area_struct *vma)
{
	struct uvm_space *space = space_of(vma);
	struct uvm_range *range, *next;

	mutex_lock(&space->lock);
	if (!moved(vma) && vma->vm_private_data) {
		list_for_each_entry_safe(range, next, &space->ranges, link) {
			if (range->kind == UVM_MANAGED && range->base >= vma->vm_start &&
			    range->base + range->length <= vma->vm_end)
				uvm_range_remove(space, range);
		}
	}
	mutex_unlock(&space->lock);
}

static void uvm_vm_close_managed_entry(struct vm_area_struct *vma)
{
	uvm_vm_close_managed(vma);
}

static const struct vm_operations_struct uvm_vm_ops_managed = {
	.open = uvm_vm_open_managed_entry,
	.close = uvm_vm_close_managed_entry,
	.fault = uvm_vm_fault_entry,
};

static const struct vm_operations_struct uvm_vm_ops_semaphore_pool = {
	.fault = uvm_vm_fault_entry,
};

static int map_locked(struct uvm_space *space, struct vm_area_struct *vma)
{
	struct uvm_range *range;
	NV_STATUS status;

	status = uvm_range_add(space, UVM_MANAGED, vma->vm_start, vma->vm_end - vma->vm_start, &range);
	if (status == NV_OK) {
		vma->vm_ops = &uvm_vm_ops_managed;
		return 0;
	}
	if (status != NV_ERR_UVM_ADDRESS_IN_USE)
		return -ENOMEM;
	range = uvm_range_at(space, vma->vm_start);
	if (!range || range->kind != UVM_POOL || range->base != vma->vm_start ||
	    range->length != vma->vm_end - vma->vm_start)
		return -EINVAL;
	vma->vm_ops = &uvm_vm_ops_semaphore_pool;
	return 0;
}

int uvm_map_vma(struct uvm_space *space, struct vm_area_struct *vma)
{
	const vm_flags_t wanted = VM_SHARED | VM_READ | VM_WRITE;
	int error;

	if (!space->initialized)
		return -EBADFD;
	if (space->mm && space->mm != current->mm)
		return -EOPNOTSUPP;
	if (moved(vma) || (vma->vm_flags & wanted) != wanted)
		return -EINVAL;
	set_vm_flags(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTCOPY);
	vma->vm_private_data = space;
	mutex_lock(&space->lock);
	error = map_locked(space, vma);
	mutex_unlock(&space->lock);
	return error;
}
