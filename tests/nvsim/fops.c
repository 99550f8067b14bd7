// SPDX-License-Identifier: GPL-2.0-only
/* The files of /dev/nvidiactl and /dev/nvidiaN: open, close, and the outer copy of every ioctl. */
#include <linux/cdev.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "fops.h"
#include "files.h"
#include "osevent.h"
#include "sim.h"

#define NV_ABSOLUTE_MAX_IOCTL_SIZE	16384
#define INFO(p, i, f, v)	NV_PUT((u8 *)(p) + (i) * NV_SIZE(nv_ioctl_card_info_t), nv_ioctl_card_info_t, f, (v))

DECLARE_RWSEM(nv_system_pm_lock);

/* Named as the driver's own: tools find their way by these. */
int nvidia_open(struct inode *inode, struct file *filp);
int nvidia_close(struct inode *inode, struct file *filp);
long nvidia_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long argument);
int nvidia_ioctl(struct inode *inode, struct file *filp, unsigned int cmd, unsigned long argument);

int nvidia_open(struct inode *inode, struct file *filp)
{
	struct sim_file *file;
	struct sim_gpu *gpu = NULL;

	if (iminor(inode) != SIM_CTL_MINOR) {
		if (iminor(inode) >= sim_gpu_count)
			return -ENXIO;
		gpu = &sim_gpus[iminor(inode)];
	}
	file = kzalloc(sizeof(*file), GFP_KERNEL);
	if (!file)
		return -ENOMEM;
	file->nv.gpu = gpu;
	file->self = filp;
	INIT_LIST_HEAD(&file->clients);
	INIT_LIST_HEAD(&file->exports);
	mutex_init(&file->map_lock);
	if (gpu) {
		atomic_inc(&gpu->opens);
		WRITE_ONCE(gpu->attached, true);
		sim_file_mapping_init(file, filp, inode);
	}
	filp->private_data = file;
	return 0;
}

int nvidia_close(struct inode *inode, struct file *filp)
{
	struct sim_file *file = filp->private_data;

	rm_cleanup_file_private(NULL, &file->nv, file);
	sim_os_events_drop(file);
	sim_exports_drop(file);
	sim_file_mapping_exit(file);
	if (file->ctl_file)
		fput(file->ctl_file);
	if (file->nv.gpu)
		atomic_dec(&file->nv.gpu->opens);
	filp->private_data = NULL;
	kfree(file);
	return 0;
}

/* The sim_file of one of the caller's descriptors. The caller gives the file back with fput(). */
struct file *sim_file_fget(int fd, bool control, struct sim_file **result)
{
	struct file *filp = fget(fd);
	struct sim_file *file;

	if (!filp)
		return NULL;
	file = filp->f_op == &nvidia_fops ? filp->private_data : NULL;
	if (!file || (control && file->nv.gpu)) {
		fput(filp);
		return NULL;
	}
	*result = file;
	return filp;
}

static int is_file_of(const void *gpu, struct file *filp, unsigned int fd)
{
	struct sim_file *file;

	if (filp->f_op != &nvidia_fops)
		return 0;
	file = filp->private_data;
	return file && file->nv.gpu == gpu;
}

/* Whether the running process has a descriptor of that GPU. */
bool sim_gpu_is_open_here(struct sim_gpu *gpu)
{
	return iterate_fd(current->files, 0, is_file_of, gpu);
}

static int card_info(void *block, size_t size)
{
	size_t room = size / NV_SIZE(nv_ioctl_card_info_t);

	memset(block, 0, size);
	if (room < sim_gpu_count)
		return -EINVAL;
	for (unsigned int i = 0; i < sim_gpu_count; i++) {
		struct sim_gpu *gpu = &sim_gpus[i];

		INFO(block, i, valid, 1);
		INFO(block, i, pci_info_bus, gpu->bus);
		INFO(block, i, pci_info_vendor_id, 0x10de);
		INFO(block, i, pci_info_device_id, 0x2330);
		INFO(block, i, gpu_id, gpu->id);
		INFO(block, i, reg_address, 0x102000000000ull + ((u64)i << 28));
		INFO(block, i, reg_size, 16 << 20);
		INFO(block, i, fb_address, 0x100000000000ull + ((u64)i << 38));
		INFO(block, i, fb_size, 128ull << 30);
		INFO(block, i, minor_number, i);
	}
	return 0;
}

/* NV_ESC_CHECK_VERSION_STR: the reply is always that the call was understood; a wrong version is told and refused. */
static int check_version(void *block, size_t size)
{
	char *text;

	if (size != NV_SIZE(nv_ioctl_rm_api_version_t))
		return -EINVAL;
	text = NV_AT(block, nv_ioctl_rm_api_version_t, versionString);
	NV_PUT(block, nv_ioctl_rm_api_version_t, reply, 1);
	if (!strncmp(text, sim_version, 64))
		return 0;
	strscpy_pad(text, sim_version, 64);
	return NV_GET(block, nv_ioctl_rm_api_version_t, cmd) == '2' ? 0 : -EINVAL;	/* '2': a query */
}

static int sys_params(struct sim_file *file, void *block, size_t size)
{
	static u64 memblock_size;
	u64 wanted;

	if (file->nv.gpu || size != NV_SIZE(nv_ioctl_sys_params_t))
		return -EINVAL;
	wanted = NV_GET(block, nv_ioctl_sys_params_t, memblock_size);
	if (!memblock_size)
		memblock_size = wanted;
	return memblock_size == wanted ? 0 : -EBUSY;
}

static int numa_info(struct sim_file *file, void *block, size_t size)
{
	if (!file->nv.gpu || size != NV_SIZE(nv_ioctl_numa_info_t))
		return -EINVAL;
	NV_PUT(block, nv_ioctl_numa_info_t, nid, ~0u);
	NV_PUT(block, nv_ioctl_numa_info_t, status, 0);
	NV_PUT(block, nv_ioctl_numa_info_t, memblock_size, 0x40000000);
	return 0;
}

static int attach_gpus(struct sim_file *file, void *block, size_t size)
{
	u32 id;

	if (file->nv.gpu || !size || size % sizeof(id))
		return -EINVAL;
	for (size_t at = 0; at < size; at += sizeof(id)) {
		memcpy(&id, block + at, sizeof(id));
		if (id && !sim_gpu_by_id(id))
			return -EINVAL;
	}
	return 0;
}

static int query_intr(struct sim_file *file, void *block, size_t size)
{
	if (!file->nv.gpu || size < NV_SIZE(nv_ioctl_query_device_intr))
		return -EINVAL;
	NV_PUT(block, nv_ioctl_query_device_intr, intrStatus, 0);
	NV_PUT(block, nv_ioctl_query_device_intr, status, NV_OK);
	return 0;
}

static int wait_open(void *block, size_t size)
{
	if (size != NV_SIZE(nv_ioctl_wait_open_complete_t))
		return -EINVAL;
	NV_PUT(block, nv_ioctl_wait_open_complete_t, rc, 0);
	NV_PUT(block, nv_ioctl_wait_open_complete_t, adapterStatus, 0);
	return 0;
}

static int set_numa_status(struct sim_file *file, size_t size)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EACCES;
	return file->nv.gpu && size == NV_SIZE(nv_ioctl_set_numa_status_t) ? 0 : -EINVAL;
}

static int dispatch(struct sim_file *file, u32 nr, void *block, size_t size)
{
	switch (nr) {
	case NV_ESC_WAIT_OPEN_COMPLETE:
		return wait_open(block, size);
	case NV_ESC_QUERY_DEVICE_INTR:
		return query_intr(file, block, size);
	case NV_ESC_CARD_INFO:
		return file->nv.gpu ? -EINVAL : card_info(block, size);
	case NV_ESC_ATTACH_GPUS_TO_FD:
		return attach_gpus(file, block, size);
	case NV_ESC_CHECK_VERSION_STR:
		return file->nv.gpu ? -EINVAL : check_version(block, size);
	case NV_ESC_SYS_PARAMS:
		return sys_params(file, block, size);
	case NV_ESC_NUMA_INFO:
		return numa_info(file, block, size);
	case NV_ESC_SET_NUMA_STATUS:
		return set_numa_status(file, size);
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		return sim_export_dmabuf(file, block, size);
	default:
		return rm_ioctl(NULL, &file->nv, file, nr, block, size) == NV_OK ? 0 : -EINVAL;
	}
}

/* Unwraps NV_ESC_IOCTL_XFER_CMD. The magic and the direction of a command mean nothing. */
static int unwrap(unsigned int cmd, u32 *nr, size_t *size, void __user **pointer)
{
	u8 xfer[16];

	*size = _IOC_SIZE(cmd);
	*nr = _IOC_NR(cmd);
	if (*nr != NV_ESC_IOCTL_XFER_CMD)
		return 0;
	if (*size != NV_SIZE(nv_ioctl_xfer_t) || *size != sizeof(xfer))
		return -EINVAL;
	if (copy_from_user(xfer, *pointer, sizeof(xfer)))
		return -EFAULT;
	*nr = NV_GET(xfer, nv_ioctl_xfer_t, cmd);
	*size = NV_GET(xfer, nv_ioctl_xfer_t, size);
	*pointer = (void __user *)(unsigned long)NV_GET(xfer, nv_ioctl_xfer_t, ptr);
	return *size > NV_ABSOLUTE_MAX_IOCTL_SIZE ? -EINVAL : 0;
}

noinline int nvidia_ioctl(struct inode *inode, struct file *filp, unsigned int cmd, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;
	void *block;
	size_t size;
	int result;
	u32 nr;

	result = unwrap(cmd, &nr, &size, &pointer);
	if (result)
		return result;
	block = kmalloc(size, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	if (copy_from_user(block, pointer, size)) {
		result = -EFAULT;
		goto out;
	}
	down_read(&nv_system_pm_lock);
	result = dispatch(filp->private_data, nr, block, size);
	up_read(&nv_system_pm_lock);
	/* also after a failure */
	if (result != -EFAULT && copy_to_user(pointer, block, size))
		result = -EFAULT;
out:
	kfree(block);
	return result;
}

long nvidia_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long argument)
{
	return nvidia_ioctl(file_inode(filp), filp, cmd, argument);
}

/* Not const, as in the driver: other modules patch it, and files are known by it. */
struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.compat_ioctl = nvidia_unlocked_ioctl,
	.mmap = nvidia_mmap,
};
