// SPDX-License-Identifier: GPL-2.0-only
/* /proc/driver/nvidia, as far as programs read it. */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/utsname.h>

#include "sim.h"

static struct proc_dir_entry *root;

static int version_show(struct seq_file *m, void *unused)
{
	seq_printf(m, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (nvsim)\n", sim_version);
	seq_puts(m, "GCC version:  " CONFIG_CC_VERSION_TEXT "\n");
	return 0;
}

static int information_show(struct seq_file *m, void *unused)
{
	struct sim_gpu *gpu = m->private;

	seq_puts(m, "Model: \t\t NVIDIA H100 80GB HBM3\n");
	seq_puts(m, "IRQ:   \t\t 0\n");
	seq_printf(m, "GPU UUID: \t GPU-%pUb\n", gpu->uuid);
	seq_puts(m, "Video BIOS: \t 96.00.99.00.01\n");
	seq_puts(m, "Bus Type: \t PCIe\n");
	seq_puts(m, "DMA Size: \t 52 bits\n");
	seq_puts(m, "DMA Mask: \t 0xfffffffffffff\n");
	seq_printf(m, "Bus Location: \t 0000:%02x:00.0\n", gpu->bus);
	seq_printf(m, "Device Minor: \t %u\n", gpu->index);
	seq_printf(m, "GPU Firmware: \t %s\n", sim_version);
	seq_puts(m, "GPU Excluded:\t No\n");
	return 0;
}

int sim_proc_init(void)
{
	struct proc_dir_entry *gpus, *folder;
	char name[16];

	root = proc_mkdir("driver/nvidia", NULL);
	if (!root)
		return -ENOMEM;
	gpus = proc_mkdir("gpus", root);
	if (!gpus || !proc_create_single("version", 0444, root, version_show))
		goto fail;
	for (unsigned int i = 0; i < sim_gpu_count; i++) {
		snprintf(name, sizeof(name), "0000:%02x:00.0", sim_gpus[i].bus & 0xff);
		folder = proc_mkdir(name, gpus);
		if (!folder || !proc_create_single_data("information", 0444, folder, information_show, &sim_gpus[i]))
			goto fail;
	}
	return 0;
fail:
	sim_proc_exit();
	return -ENOMEM;
}

void sim_proc_exit(void)
{
	proc_remove(root);
	root = NULL;
}
