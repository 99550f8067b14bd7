// SPDX-License-Identifier: GPL-2.0-only
/* /proc/driver/nvidia as the host has it, and debugfs nvfwd/host: what the helper holds. */
#include <linux/debugfs.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "fwd.h"

#define TEXT_MAX 4096

static struct proc_dir_entry *root;
static struct dentry *debug;

static int text(struct seq_file *m, enum nvf_text which, u64 gpu)
{
	struct nvf_call *call = nvf_call_new(NVF_TEXT, -1, 0, TEXT_MAX);
	int error;

	if (!call)
		return -ENOMEM;
	call->req.a = which;
	call->req.b = gpu;
	error = nvf_call_wait(call);
	if (error)
		return error;
	error = call->rep.err;
	if (!error)
		seq_write(m, call->out, call->rep.len);
	nvf_call_free(call);
	return error;
}

static int version_show(struct seq_file *m, void *unused)
{
	return text(m, NVF_TEXT_VERSION, 0);
}

static int params_show(struct seq_file *m, void *unused)
{
	return text(m, NVF_TEXT_PARAMS, 0);
}

static int information_show(struct seq_file *m, void *unused)
{
	return text(m, NVF_TEXT_GPU, (unsigned long)m->private);
}

static int host_show(struct seq_file *m, void *unused)
{
	struct nvf_call *call = nvf_call_new(NVF_STAT, -1, 0, sizeof(struct nvf_stat));
	struct nvf_stat stat;
	int error;

	if (!call)
		return -ENOMEM;
	error = nvf_call_wait(call);
	if (error)
		return error;
	error = call->rep.err ?: call->rep.len == sizeof(stat) ? 0 : -EIO;
	memcpy(&stat, call->out, sizeof(stat));
	nvf_call_free(call);
	if (error)
		return error;
	seq_printf(m, "handles %u\nmaps %u\npins %u\nwaits %u\ndescriptors %u\nreplayed %u\n", stat.handles, stat.maps, stat.pins,
		   stat.waits, stat.descriptors, stat.replayed);
	seq_printf(m, "calls %llu\nrefused %llu\nunrecorded %llu\nquestions %llu\npages_written %llu\n", stat.calls, stat.refused,
		   stat.unrecorded, stat.questions, stat.pages_written);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(host);

int nvf_proc_init(void)
{
	struct proc_dir_entry *gpus, *folder;

	root = proc_mkdir("driver/nvidia", NULL);
	if (!root)
		return -ENOMEM;
	gpus = proc_mkdir("gpus", root);
	if (!gpus || !proc_create_single("version", 0444, root, version_show) ||
	    !proc_create_single("params", 0444, root, params_show))
		goto fail;
	for (u32 i = 0; i < nvf_host->gpus; i++) {
		folder = proc_mkdir(nvf_host->slots[i], gpus);
		if (!folder || !proc_create_single_data("information", 0444, folder, information_show, (void *)(unsigned long)i))
			goto fail;
	}
	debug = debugfs_create_dir("nvfwd", NULL);
	debugfs_create_file("host", 0400, debug, NULL, &host_fops);
	return 0;
fail:
	nvf_proc_exit();
	return -ENOMEM;
}

void nvf_proc_exit(void)
{
	debugfs_remove_recursive(debug);
	proc_remove(root);
	root = NULL;
}
