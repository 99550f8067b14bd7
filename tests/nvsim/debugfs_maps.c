// SPDX-License-Identifier: GPL-2.0-only
/* What happens to CPU mappings without anybody's asking: revocation, suspend; and what the page tables know of kicks. */
#include <linux/bitmap.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/seq_file.h>

#include "debugfs.h"
#include "files.h"

/* Any write revokes the mappings of the GPU's files once, as the driver does when the GPU sleeps. */
static int revoke_set(void *data, u64 value)
{
	nv_state_t nv = { .gpu = data };

	nv_revoke_gpu_mappings(&nv);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(revoke_fops, NULL, revoke_set, "%llu\n");

/* Sleeps for so many ms: no call, no mapping, no channel goes on, as in the driver's suspend. */
static int suspend_set(void *data, u64 ms)
{
	nv_state_t nv = { .gpu = data };

	down_write(&nv_system_pm_lock);
	sim_gpu_allow_maps(nv.gpu, false);
	nv_revoke_gpu_mappings(&nv);
	sim_engine_suspend(nv.gpu->engine, true);
	msleep(min_t(u64, ms, 60000));
	sim_engine_suspend(nv.gpu->engine, false);
	sim_gpu_allow_maps(nv.gpu, true);
	up_write(&nv_system_pm_lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(suspend_fops, NULL, suspend_set, "%llu\n");

/* Pages of each doorbell file that were written through page tables since the last reading, which cleans them. */
static int touched_show(struct seq_file *m, void *unused)
{
	struct sim_gpu *gpu = m->private;
	struct sim_file *file;

	seq_puts(m, "client object pages\n");
	mutex_lock(&gpu->open_files_lock);
	list_for_each_entry(file, &gpu->open_files, of_gpu) {
		DECLARE_BITMAP(dirty, SIM_DOORBELL_PAGES) = { };
		pgoff_t start = 0, end = 0;

		if (!smp_load_acquire(&file->map.valid) || !file->map.doorbell)
			continue;
		clean_record_shared_mapping_range(&file->mapping, 0, SIM_DOORBELL_PAGES, 0, dirty, &start, &end);
		seq_printf(m, "0x%08x 0x%08x %u\n", file->map.client, file->map.object,
			   bitmap_weight(dirty, SIM_DOORBELL_PAGES));
	}
	mutex_unlock(&gpu->open_files_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(touched);

void sim_debugfs_maps(struct sim_gpu *gpu, struct dentry *folder)
{
	debugfs_create_file_unsafe("revoke", 0200, folder, gpu, &revoke_fops);
	debugfs_create_file_unsafe("suspend", 0200, folder, gpu, &suspend_fops);
	debugfs_create_file("touched", 0400, folder, gpu, &touched_fops);
}
