/* SPDX-License-Identifier: GPL-2.0-only */
/* From a descriptor of the running process to its open file. */
#ifndef DETSHARE_EBPF_FILES_H
#define DETSHARE_EBPF_FILES_H

#include "kernel.h"

/* what takes bcc most of its time to read, so only programs that need it have it */
#ifdef DETSHARE_BCC
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#endif

#define DS_NVIDIA_MAJOR	195	/* Documentation/admin-guide/devices.txt */
#define DS_MINOR_BITS	20	/* of dev_t inside the kernel */
#define DS_S_IFMT	0170000
#define DS_S_IFCHR	0020000

/* The open file behind a descriptor of this process; 0 where there is none. */
static __always_inline struct file *ds_file(u32 fd)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct files_struct *files = 0;
	struct fdtable *table = 0;
	struct file **slots = 0, *file = 0;
	unsigned int most = 0;

	member_read(&files, task, files);
	if (!files)
		return 0;
	member_read(&table, files, fdt);
	if (!table)
		return 0;
	member_read(&most, table, max_fds);
	if (fd >= most)
		return 0;
	member_read(&slots, table, fd);
	if (!slots)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), (void *)((u64)slots + (u64)fd * sizeof(void *)));
	return file;
}

/* Minor number of an open device of the driver (255: /dev/nvidiactl); -1 for any other file. */
static __always_inline int ds_minor(struct file *file)
{
	struct inode *inode = 0;
	u16 mode = 0;
	u32 device = 0;

	if (!file)
		return -1;
	member_read(&inode, file, f_inode);
	if (!inode)
		return -1;
	member_read(&mode, inode, i_mode);
	member_read(&device, inode, i_rdev);
	if ((mode & DS_S_IFMT) != DS_S_IFCHR || device >> DS_MINOR_BITS != DS_NVIDIA_MAJOR)
		return -1;
	return (int)(device & ((1u << DS_MINOR_BITS) - 1));
}

#endif
