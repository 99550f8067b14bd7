// SPDX-License-Identifier: GPL-2.0-only
/*
 * nvidia-uvm.ko that forwards. The host's UVM works for one process, the helper, and lets other addresses spaces' programs use it
 * (MULTI_PROCESS_SHARING); so it maps nothing into a program here. A semaphore pool is memory of this guest instead, at the pool's address;
 * managed memory is refused.
 */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "fwd.h"

#define UVM_MINORS 2	/* nvidia-uvm and nvidia-uvm-tools */
#define POOL_MAX (64ull << 20)
#define MULTI_PROCESS_SHARING 2ull

struct pool {
	struct list_head link;
	u64 base, length;
	struct page **pages;
	unsigned long count;
	struct nvf_pin *pin;
};

struct uvm_file {
	struct nvf_file file;	/* first: nvidia.ko takes it for one */
	struct list_head pools;
	u64 flags;
};

static dev_t first;
static struct cdev device;

static void set_flags(struct vm_area_struct *vma, vm_flags_t set)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, set);
#else
	vma->vm_flags |= set;
#endif
}

/* ---- pools ---- */

static void pool_free(struct pool *pool)
{
	if (pool->pin)
		nvf_unpin(pool->pin);
	for (unsigned long i = 0; pool->pages && i < pool->count && pool->pages[i]; i++)
		put_page(pool->pages[i]);
	kvfree(pool->pages);
	kfree(pool);
}

static struct pool *pool_new(u64 base, u64 length)
{
	struct pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);

	if (!pool)
		return NULL;
	pool->base = base;
	pool->length = length;
	pool->count = length >> PAGE_SHIFT;
	pool->pages = kvcalloc(pool->count, sizeof(*pool->pages), GFP_KERNEL);
	for (unsigned long i = 0; pool->pages && i < pool->count; i++) {
		pool->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!pool->pages[i])
			goto fail;
	}
	if (pool->pages)
		pool->pin = nvf_pin_pages(pool->pages, pool->count);
	if (pool->pin)
		return pool;
fail:
	pool_free(pool);
	return NULL;
}

static struct pool *pool_at(struct uvm_file *uvm, u64 base)
{
	struct pool *pool;

	list_for_each_entry(pool, &uvm->pools, link)
		if (pool->base == base)
			return pool;
	return NULL;
}

static long alloc_pool(struct uvm_file *uvm, void *params, u32 size)
{
	u64 base = nvf_get64(params, UVM_ALLOC_SEMAPHORE_POOL_PARAMS__base);
	u64 length = nvf_get64(params, UVM_ALLOC_SEMAPHORE_POOL_PARAMS__length);
	struct nvf_extra extra = { 0 };
	struct pool *pool;
	NV_STATUS status;
	long ret;

	if (!base || !length || offset_in_page(base) || offset_in_page(length) || length > POOL_MAX) {
		nvf_put32(params, UVM_ALLOC_SEMAPHORE_POOL_PARAMS__rmStatus, NVF_STATUS_INVALID_ADDRESS);
		return 0;
	}
	pool = pool_new(base, length);
	if (!pool) {
		nvf_put32(params, UVM_ALLOC_SEMAPHORE_POOL_PARAMS__rmStatus, NVF_STATUS_NO_MEMORY);
		return 0;
	}
	extra.c = (u64)nvf_pin_id(pool->pin) + 1;
	ret = nvf_forward(NVF_UVM, uvm->file.handle, UVM_ALLOC_SEMAPHORE_POOL, params, size, &extra, &status);
	if (ret == -ERESTARTSYS || (!ret && !nvf_get32(params, UVM_ALLOC_SEMAPHORE_POOL_PARAMS__rmStatus))) {
		mutex_lock(&uvm->file.lock);
		list_add(&pool->link, &uvm->pools);
		mutex_unlock(&uvm->file.lock);
	} else {
		pool_free(pool);
	}
	return ret;
}

static void freed(struct uvm_file *uvm, u64 base)
{
	struct pool *pool;

	mutex_lock(&uvm->file.lock);
	pool = pool_at(uvm, base);
	if (pool)
		list_del(&pool->link);
	mutex_unlock(&uvm->file.lock);
	if (pool)
		pool_free(pool);
}

/* ---- calls ---- */

/* The driver's name for the moment at which a file becomes a space of addresses; other modules change its flags. */
NV_STATUS uvm_va_space_create(struct address_space *mapping, void **space, u64 flags);

noinline NV_STATUS uvm_va_space_create(struct address_space *mapping, void **space, u64 flags)
{
	struct uvm_file *uvm = *space;

	uvm->flags = flags;
	return NVF_STATUS_OK;
}

static long initialize(struct file *filp, void *params, u32 size)
{
	struct uvm_file *uvm = filp->private_data;
	u64 asked = nvf_get64(params, UVM_INITIALIZE_PARAMS__flags);
	void *space = uvm;
	NV_STATUS status;
	long ret;

	uvm_va_space_create(filp->f_mapping, &space, asked);
	nvf_put64(params, UVM_INITIALIZE_PARAMS__flags, uvm->flags | MULTI_PROCESS_SHARING);
	ret = nvf_forward(NVF_UVM, uvm->file.handle, UVM_INITIALIZE, params, size, NULL, &status);
	nvf_put64(params, UVM_INITIALIZE_PARAMS__flags, asked);
	return ret;
}

static u32 size_of(unsigned int cmd)
{
	for (u32 i = 0; i < nvf_uvms_count; i++)
		if (nvf_uvms[i].cmd == cmd)
			return nvf_uvms[i].size;
	return 0;
}

static long call(struct file *filp, unsigned int cmd, void *params, u32 size)
{
	struct uvm_file *uvm = filp->private_data;
	NV_STATUS status;
	u64 base;
	long ret;

	switch (cmd) {
	case UVM_INITIALIZE:
		return initialize(filp, params, size);
	case UVM_ALLOC_SEMAPHORE_POOL:
		return alloc_pool(uvm, params, size);
	}
	base = cmd == UVM_FREE ? nvf_get64(params, UVM_FREE_PARAMS__base) : 0;
	ret = nvf_forward(NVF_UVM, uvm->file.handle, cmd, params, size, NULL, &status);
	if (cmd == UVM_FREE && !ret && !nvf_get32(params, UVM_FREE_PARAMS__rmStatus))
		freed(uvm, base);
	return ret;
}

/* The number is the whole command: no size, no direction. */
static long uvm_ioctl(struct file *filp, unsigned int cmd, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;
	u32 size = size_of(cmd);
	void *params;
	long ret;

	if (!size) {
		pr_warn_ratelimited("nvidia-uvm: call %#x is not forwarded: it is not known\n", cmd);
		return -EINVAL;
	}
	params = kvzalloc(size, GFP_KERNEL);
	if (!params)
		return -ENOMEM;
	ret = copy_from_user(params, pointer, size) ? -EFAULT : call(filp, cmd, params, size);
	if (!ret && copy_to_user(pointer, params, size))
		ret = -EFAULT;
	kvfree(params);
	return ret;
}

static noinline long uvm_unlocked_ioctl_entry(struct file *filp, unsigned int cmd, unsigned long argument)
{
	return uvm_ioctl(filp, cmd, argument);
}

/* ---- files ---- */

static noinline int uvm_open_entry(struct inode *inode, struct file *filp)
{
	struct uvm_file *uvm;
	int error = -ENOMEM;

	if (iminor(inode) != MINOR(first))
		return -ENODEV;		/* the tools' file is not forwarded */
	uvm = kzalloc(sizeof(*uvm), GFP_KERNEL);
	if (!uvm)
		return error;
	uvm->file.dev = NVF_UVM;
	mutex_init(&uvm->file.lock);
	INIT_LIST_HEAD(&uvm->file.clients);
	INIT_LIST_HEAD(&uvm->pools);
	uvm->file.events = nvf_events_new();
	if (uvm->file.events)
		error = nvf_open(NVF_UVM, 0, filp->f_flags, &uvm->file.handle);
	if (error) {
		kfree(uvm->file.events);
		kfree(uvm);
		return error;
	}
	filp->private_data = uvm;
	return 0;
}

static noinline int uvm_release_entry(struct inode *inode, struct file *filp)
{
	struct uvm_file *uvm = filp->private_data;
	struct pool *pool, *next;

	nvf_undo(NVF_CLOSE, uvm->file.handle, 0);
	list_for_each_entry_safe(pool, next, &uvm->pools, link)
		pool_free(pool);
	nvf_events_put(uvm->file.events);
	kfree(uvm);
	return 0;
}

/* Never called: no mapping here is managed. Other modules look for the name. */
static noinline __used void uvm_vm_close_managed_entry(struct vm_area_struct *vma)
{
	barrier();
}

static noinline int uvm_mmap_entry(struct file *filp, struct vm_area_struct *vma)
{
	struct uvm_file *uvm = filp->private_data;
	int error = -EOPNOTSUPP;
	struct pool *pool;

	mutex_lock(&uvm->file.lock);
	pool = pool_at(uvm, (u64)vma->vm_pgoff << PAGE_SHIFT);
	if (!pool || vma->vm_start != pool->base || vma->vm_end - vma->vm_start != pool->length || !(vma->vm_flags & VM_SHARED)) {
		pr_warn_ratelimited("nvidia-uvm: managed memory is not forwarded\n");
		goto out;
	}
	set_flags(vma, VM_DONTEXPAND | VM_DONTCOPY);
	error = 0;
	for (unsigned long i = 0; i < pool->count && !error; i++)
		error = vm_insert_page(vma, vma->vm_start + (i << PAGE_SHIFT), pool->pages[i]);
out:
	mutex_unlock(&uvm->file.lock);
	return error;
}

static noinline __poll_t uvm_poll_entry(struct file *filp, struct poll_table_struct *table)
{
	struct uvm_file *uvm = filp->private_data;

	return nvf_poll(filp, table, uvm->file.events, uvm->file.handle);
}

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open_entry,
	.release = uvm_release_entry,
	.mmap = uvm_mmap_entry,
	.poll = uvm_poll_entry,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
	.compat_ioctl = uvm_unlocked_ioctl_entry,
};

static int __init uvm_init_entry(void)
{
	int error = alloc_chrdev_region(&first, 0, UVM_MINORS, "nvidia-uvm");

	if (error)
		return error;
	cdev_init(&device, &uvm_fops);
	device.owner = THIS_MODULE;
	nvf_uvm_fops = &uvm_fops;
	error = cdev_add(&device, first, UVM_MINORS);
	if (!error)
		return 0;
	nvf_uvm_fops = NULL;
	unregister_chrdev_region(first, UVM_MINORS);
	return error;
}

static void __exit uvm_exit_entry(void)
{
	nvf_uvm_fops = NULL;
	cdev_del(&device);
	unregister_chrdev_region(first, UVM_MINORS);
}

module_init(uvm_init_entry);
module_exit(uvm_exit_entry);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("NVIDIA's unified memory of the host, forwarded");
