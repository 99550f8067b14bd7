// SPDX-License-Identifier: GPL-2.0-only
/* nvidia-uvm.ko: its devices and files, by the genuine driver's names. */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "uvm.h"

#define UVM_MINORS	2	/* nvidia-uvm and nvidia-uvm-tools */

struct workqueue_struct *uvm_faults;
static dev_t first;
static struct cdev device;

static int uvm_open(struct inode *inode, struct file *filp)
{
	struct uvm_space *space = uvm_space_create();

	if (!space)
		return -ENOMEM;
	filp->private_data = space;
	return 0;
}

static int uvm_open_entry(struct inode *inode, struct file *filp)
{
	if (iminor(inode) != MINOR(first))
		return -ENODEV;		/* the tools' file is not simulated */
	return uvm_open(inode, filp);
}

static int uvm_release_entry(struct inode *inode, struct file *filp)
{
	uvm_space_put(filp->private_data);
	return 0;
}

static int uvm_mmap_entry(struct file *filp, struct vm_area_struct *vma)
{
	return uvm_map_vma(filp->private_data, vma);
}

/* The number is the whole command: no size, no direction. Parameters are as large as this version's structure. */
static long uvm_ioctl(struct file *filp, unsigned int cmd, unsigned long argument)
{
	u32 size = sim_uvm_ioctl_size(cmd);
	void __user *pointer = (void __user *)argument;
	void *params;
	long result = 0;

	if (!size)
		return -EINVAL;
	params = kvzalloc(size, GFP_KERNEL);
	if (!params)
		return -ENOMEM;
	if (copy_from_user(params, pointer, size))
		result = -EFAULT;
	else if (uvm_call(filp, cmd, params) == NV_ERR_INVALID_COMMAND)
		result = -EINVAL;
	else if (copy_to_user(pointer, params, size))
		result = -EFAULT;
	kvfree(params);
	return result;
}

static long uvm_unlocked_ioctl_entry(struct file *filp, unsigned int cmd, unsigned long argument)
{
	return uvm_ioctl(filp, cmd, argument);
}

const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open_entry,
	.release = uvm_release_entry,
	.mmap = uvm_mmap_entry,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
	.compat_ioctl = uvm_unlocked_ioctl_entry,
};

static int __init uvm_init_entry(void)
{
	int error;

	uvm_faults = alloc_workqueue("nvsim-uvm", WQ_UNBOUND, 0);
	if (!uvm_faults)
		return -ENOMEM;
	error = alloc_chrdev_region(&first, 0, UVM_MINORS, "nvidia-uvm");
	if (error)
		goto fail_queue;
	cdev_init(&device, &uvm_fops);
	device.owner = THIS_MODULE;
	error = cdev_add(&device, first, UVM_MINORS);
	if (!error)
		return 0;
	unregister_chrdev_region(first, UVM_MINORS);
fail_queue:
	destroy_workqueue(uvm_faults);
	return error;
}

static void __exit uvm_exit_entry(void)
{
	cdev_del(&device);
	unregister_chrdev_region(first, UVM_MINORS);
	destroy_workqueue(uvm_faults);
}

module_init(uvm_init_entry);
module_exit(uvm_exit_entry);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Simulated NVIDIA unified memory");
