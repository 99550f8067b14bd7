// SPDX-License-Identifier: GPL-2.0-only
#include <linux/file.h>
#include <linux/fs.h>

#include "boost.h"
#include "busy.h"
#include "ceiling.h"
#include "client.h"
#include "closed.h"
#include "dispatch.h"
#include "doorbell.h"
#include "driver.h"
#include "dups.h"
#include "entries.h"
#include "filter.h"
#include "gate.h"
#include "gpu.h"
#include "lookup.h"
#include "mover.h"
#include "rm/abi.h"
#include "shield.h"
#include "userd.h"
#include "uvm.h"

/* The order of hooks[]. */
enum {
	IOCTL,			/* 550 and newer */
	FRONTEND_IOCTL,		/* 535 */
	FRONTEND_COMPAT_IOCTL,	/* 535 */
	CLOSE,
	FROM_USER,
	TO_USER,
	GET_FILE,
	UVM_DUP,
	UVM_FREE_DUP,
	DMABUF_DUP,
	DMABUF_UNDUP,
	DMABUF_RELEASE,
	MMAP,
	FAULT,
	ACCESS,
	VMA_OPEN,
	VMA_CLOSE,
	LOOKUP_IO,
};

static long nvidia_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static long nvidia_frontend_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static long nvidia_frontend_compat(struct file *file, unsigned int cmd, unsigned long arg);
static int nvidia_release(struct inode *inode, struct file *file);
static void *file_private(int fd, bool control, void **file);
static u32 uvm_dup(void *device, u32 client, u32 memory, u32 *dup, void *info);
static u32 uvm_free_dup(void *device, u32 dup);
static u32 dmabuf_dup(void *sp, void *buffer, const void *params);
static void dmabuf_undup(void *sp, u32 index, u32 count, void *buffer);
static void dmabuf_release(void *dma_buf);
static int nvidia_mmap(struct file *file, struct vm_area_struct *vma);
static vm_fault_t nvidia_fault(struct vm_fault *vmf);
static u32 lookup_io(void *address, u64 pages, u64 **ptes, void **page_array);
static int nvidia_access(struct vm_area_struct *vma, unsigned long address, void *buffer, int length, int write);
static void nvidia_vma_open(struct vm_area_struct *vma);
static void nvidia_vma_close(struct vm_area_struct *vma);

#define UVM_LOSS "memory that nvidia-uvm maps is not charged after its handle is freed"
#define DMABUF_LOSS "programs with a limit get no DMA buffers"
#define DOOR_LOSS "doorbells have no gates"
#define ABROAD_LOSS "a child's own gate does not shut doorbells that it has inherited"

static struct ds_hook hooks[] = {
	[IOCTL] = { "nvidia_unlocked_ioctl", nvidia_ioctl, ds_calls_wanted, true },
	[FRONTEND_IOCTL] = { "nvidia_frontend_unlocked_ioctl", nvidia_frontend_ioctl,
			     ds_calls_wanted, true },
	[FRONTEND_COMPAT_IOCTL] = { "nvidia_frontend_compat_ioctl", nvidia_frontend_compat,
				    ds_calls_wanted, true },
	[CLOSE] = { "nvidia_close", nvidia_release, NULL, false },
	[FROM_USER] = { "os_memcpy_from_user", ds_shield_from_user, ds_shield_wanted, false },
	[TO_USER] = { "os_memcpy_to_user", ds_shield_to_user, ds_shield_wanted, false },
	[GET_FILE] = { "nv_get_file_private", file_private, ds_shield_wanted,
		       .loss = "programs with a limit cannot export memory by descriptor" },
	[UVM_DUP] = { "nvUvmInterfaceDupMemory", uvm_dup, .loss = UVM_LOSS },
	[UVM_FREE_DUP] = { "nvUvmInterfaceFreeDupedHandle", uvm_free_dup, .loss = UVM_LOSS },
	[DMABUF_DUP] = { "nv_dma_buf_dup_mem_handles", dmabuf_dup,
			 .loss = "memory of DMA buffers is not charged after its handle is freed" },
	[DMABUF_UNDUP] = { "nv_dma_buf_undup_mem_handles", dmabuf_undup, .loss = DMABUF_LOSS },
	[DMABUF_RELEASE] = { "nv_dma_buf_release", dmabuf_release, .loss = DMABUF_LOSS },
	[MMAP] = { "nvidia_mmap", nvidia_mmap, ds_door_wants_file, .loss = DOOR_LOSS },
	[FAULT] = { "nvidia_fault", nvidia_fault, .loss = DOOR_LOSS },
	[ACCESS] = { "nvidia_vma_access", nvidia_access, ds_door_wants_vma,
		     .loss = "debuggers can ring a doorbell whose gate is shut" },
	[VMA_OPEN] = { "nvidia_vma_open", nvidia_vma_open, ds_door_wants_vma, .loss = ABROAD_LOSS },
	[VMA_CLOSE] = { "nvidia_vma_release", nvidia_vma_close, ds_door_wants_vma, .loss = ABROAD_LOSS },
	[LOOKUP_IO] = { "os_lookup_user_io_memory", lookup_io, ds_shield_wanted,
			.loss = "programs can give the GPU a doorbell as memory" },
};

static struct ds_hook_set nvidia_hooks = {
	.module = "nvidia",
	.hooks = hooks,
	.count = ARRAY_SIZE(hooks),
};

static long nvidia_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ds_boost boost;
	long ret;

	ds_boost_enter(&boost);
	ret = ds_calls_ioctl(&hooks[IOCTL], file, cmd, arg);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

static long nvidia_frontend_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ds_boost boost;
	long ret;

	ds_boost_enter(&boost);
	ret = ds_calls_ioctl(&hooks[FRONTEND_IOCTL], file, cmd, arg);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

static long nvidia_frontend_compat(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ds_boost boost;
	long ret;

	ds_boost_enter(&boost);
	ret = ds_calls_ioctl(&hooks[FRONTEND_COMPAT_IOCTL], file, cmd, arg);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

static int nvidia_release(struct inode *inode, struct file *file)
{
	struct ds_boost boost;
	int ret;

	ds_boost_enter(&boost);
	ds_door_release(file);
	ds_userd_release(file);
	ret = ds_hook_call(&hooks[CLOSE], (unsigned long)inode, (unsigned long)file, 0);
	/* what the driver had on the file is free now, so it may be granted to others */
	ds_file_release(file);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

/* The driver's nv_get_file_private(fd, control, file *). */
static void *file_private(int fd, bool control, void **file)
{
	void *found = (void *)ds_hook_call(&hooks[GET_FILE], fd, control, (unsigned long)file);

	if (found && !ds_calls_file(*file)) {
		fput(*file);
		*file = NULL;
		found = NULL;
	}
	ds_hook_leave();
	return found;
}

static u32 uvm_dup(void *device, u32 client, u32 memory, u32 *dup, void *info)
{
	struct ds_boost boost;
	u32 status;

	ds_boost_enter(&boost);
	status = ds_dups_uvm_make(&hooks[UVM_DUP], device, client, memory, dup, info,
				  hooks[UVM_FREE_DUP].address);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return status;
}

static u32 uvm_free_dup(void *device, u32 dup)
{
	struct ds_boost boost;
	u32 status;

	ds_boost_enter(&boost);
	status = ds_dups_uvm_free(&hooks[UVM_FREE_DUP], device, dup);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return status;
}

static u32 dmabuf_dup(void *sp, void *buffer, const void *params)
{
	struct ds_boost boost;
	u32 status;

	ds_boost_enter(&boost);
	status = ds_dups_dmabuf_make(&hooks[DMABUF_DUP], sp, buffer, params,
				     hooks[DMABUF_UNDUP].address && hooks[DMABUF_RELEASE].address);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return status;
}

static void dmabuf_undup(void *sp, u32 index, u32 count, void *buffer)
{
	struct ds_boost boost;

	ds_boost_enter(&boost);
	ds_dups_dmabuf_free(&hooks[DMABUF_UNDUP], sp, index, count, buffer);
	ds_boost_leave(&boost);
	ds_hook_leave();
}

static void dmabuf_release(void *dma_buf)
{
	struct ds_boost boost;

	ds_boost_enter(&boost);
	ds_dups_dmabuf_release(&hooks[DMABUF_RELEASE], dma_buf);
	ds_boost_leave(&boost);
	ds_hook_leave();
}

static int nvidia_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ds_boost boost;
	int ret;

	ds_boost_enter(&boost);
	ret = ds_door_mmap(&hooks[MMAP], file, vma);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

static vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	struct ds_boost boost;
	vm_fault_t result;

	ds_boost_enter(&boost);
	result = ds_door_fault(&hooks[FAULT], vmf);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return result;
}

static int nvidia_access(struct vm_area_struct *vma, unsigned long address, void *buffer, int length, int write)
{
	struct ds_boost boost;
	int ret;

	ds_boost_enter(&boost);
	ret = ds_door_access(&hooks[ACCESS], vma, address, buffer, length, write);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

static u32 lookup_io(void *address, u64 pages, u64 **ptes, void **page_array)
{
	u32 status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	struct ds_lookup lookup;
	bool none;

	if (ds_filter_io_memory((unsigned long)address, pages, &none)) {
		if (none)
			ds_lookup_begin(&lookup);
		status = ds_call_past((unsigned long)address, pages, (unsigned long)ptes, (unsigned long)page_array, 0,
				      READ_ONCE(hooks[LOOKUP_IO].past));
		if (none)
			ds_lookup_end(&lookup);
	}
	ds_hook_leave();
	return status;
}

static void nvidia_vma_open(struct vm_area_struct *vma)
{
	struct ds_boost boost;

	ds_boost_enter(&boost);
	ds_door_open(&hooks[VMA_OPEN], vma);
	ds_boost_leave(&boost);
	ds_hook_leave();
}

static void nvidia_vma_close(struct vm_area_struct *vma)
{
	struct ds_boost boost;

	ds_boost_enter(&boost);
	ds_door_close(&hooks[VMA_CLOSE], vma);
	ds_boost_leave(&boost);
	ds_hook_leave();
}

static bool has_entry(void)
{
	return hooks[IOCTL].address || hooks[FRONTEND_IOCTL].address;
}

/* ---- coming and going ----------------------------------------------------- */

static void nvidia_gone(void)
{
	ds_dups_forget();
	ds_gpu_forget();
	ds_ceiling_forget();
	ds_busy_forget();
}

/* Who waits at a gate is inside a hook. */
static void ending(void)
{
	ds_closed_remove();
	ds_gates_open_all();
	ds_doors_restore();
}

int ds_entries_init(void)
{
	static struct ds_driver_parts parts = {
		.nvidia = &nvidia_hooks,
		.fault = &hooks[FAULT],
		.from_user = &hooks[FROM_USER],
		.to_user = &hooks[TO_USER],
		.get_file = &hooks[GET_FILE],
		.has_entry = has_entry,
		.shield = ds_shield_install,
		.unshield = ds_shield_remove,
		.shield_binds = ds_shield_binding,
		.nvidia_gone = nvidia_gone,
		.uvm_gone = ds_dups_forget_uvm,
		.ending = ending,
	};

	int err;

	ds_uvm_ask_mover(ds_mover_wait);
	parts.uvm = ds_uvm_hooks();
	err = ds_driver_init(&parts);
	if (err)
		return err;
	err = ds_closed_install();
	if (err)
		ds_driver_exit();
	return err;
}
