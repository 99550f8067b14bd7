// SPDX-License-Identifier: GPL-2.0-only
#include <linux/file.h>
#include <linux/fs.h>

#include "calls.h"
#include "client.h"
#include "driver.h"
#include "dups.h"
#include "entries.h"
#include "shield.h"

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

#define UVM_LOSS "memory that nvidia-uvm maps is not charged after its handle is freed"
#define DMABUF_LOSS "programs with a limit get no DMA buffers"

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
};

struct ds_hook_set ds_nvidia_hooks = {
	.module = "nvidia",
	.hooks = hooks,
	.count = ARRAY_SIZE(hooks),
};

static long nvidia_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = ds_calls_ioctl(&hooks[IOCTL], file, cmd, arg);

	ds_hook_leave();
	return ret;
}

static long nvidia_frontend_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = ds_calls_ioctl(&hooks[FRONTEND_IOCTL], file, cmd, arg);

	ds_hook_leave();
	return ret;
}

static long nvidia_frontend_compat(struct file *file, unsigned int cmd, unsigned long arg)
{
	long ret = ds_calls_ioctl(&hooks[FRONTEND_COMPAT_IOCTL], file, cmd, arg);

	ds_hook_leave();
	return ret;
}

static int nvidia_release(struct inode *inode, struct file *file)
{
	int ret = ds_hook_call(&hooks[CLOSE], (unsigned long)inode, (unsigned long)file, 0);

	/* what the driver had on the file is free now, so it may be granted to others */
	ds_file_release(file);
	ds_hook_leave();
	return ret;
}

u32 ds_driver_from_user(void *to, const void *from, u32 n)
{
	return ds_hook_call(&hooks[FROM_USER], (unsigned long)to, (unsigned long)from, n);
}

u32 ds_driver_to_user(void *to, const void *from, u32 n)
{
	return ds_hook_call(&hooks[TO_USER], (unsigned long)to, (unsigned long)from, n);
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
	u32 status = ds_dups_uvm_make(&hooks[UVM_DUP], device, client, memory, dup, info,
				      hooks[UVM_FREE_DUP].address);

	ds_hook_leave();
	return status;
}

static u32 uvm_free_dup(void *device, u32 dup)
{
	u32 status = ds_dups_uvm_free(&hooks[UVM_FREE_DUP], device, dup);

	ds_hook_leave();
	return status;
}

static u32 dmabuf_dup(void *sp, void *buffer, const void *params)
{
	u32 status = ds_dups_dmabuf_make(&hooks[DMABUF_DUP], sp, buffer, params,
					 hooks[DMABUF_UNDUP].address && hooks[DMABUF_RELEASE].address);

	ds_hook_leave();
	return status;
}

static void dmabuf_undup(void *sp, u32 index, u32 count, void *buffer)
{
	ds_dups_dmabuf_free(&hooks[DMABUF_UNDUP], sp, index, count, buffer);
	ds_hook_leave();
}

static void dmabuf_release(void *dma_buf)
{
	ds_dups_dmabuf_release(&hooks[DMABUF_RELEASE], dma_buf);
	ds_hook_leave();
}

bool ds_driver_sees_files(void)
{
	return hooks[GET_FILE].address;
}

bool ds_has_entry(void)
{
	return hooks[IOCTL].address || hooks[FRONTEND_IOCTL].address;
}
