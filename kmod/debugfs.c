// SPDX-License-Identifier: GPL-2.0-only
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "client.h"
#include "debugfs.h"
#include "driver.h"
#include "frame.h"
#include "hook.h"
#include "pin.h"
#include "process.h"

static struct dentry *folder;

static int objects_show(struct seq_file *file, void *unused)
{
	struct ds_totals totals;

	ds_client_totals(&totals);
	seq_printf(file, "%llu\n", totals.objects);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(objects);

static int clients_show(struct seq_file *file, void *unused)
{
	struct ds_totals totals;

	ds_client_totals(&totals);
	seq_printf(file, "%u\n", totals.clients);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(clients);

static int frames_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_frame_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(frames);

static int processes_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_process_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(processes);

static int inside_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%ld\n", ds_hook_count_inside());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(inside);

static int pins_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_pin_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pins);

static int tell_hook(const char *name, void *data)
{
	seq_printf(data, "%s\n", name);
	return 0;
}

static int hooks_show(struct seq_file *file, void *unused)
{
	return ds_driver_each_hook(tell_hook, file);
}
DEFINE_SHOW_ATTRIBUTE(hooks);

int ds_debugfs_init(void)
{
	folder = debugfs_create_dir("detshare", NULL);
	debugfs_create_file("objects", 0400, folder, NULL, &objects_fops);
	debugfs_create_file("clients", 0400, folder, NULL, &clients_fops);
	debugfs_create_file("frames", 0400, folder, NULL, &frames_fops);
	debugfs_create_file("processes", 0400, folder, NULL, &processes_fops);
	debugfs_create_file("pins", 0400, folder, NULL, &pins_fops);
	debugfs_create_file("inside", 0400, folder, NULL, &inside_fops);
	debugfs_create_file("hooks", 0400, folder, NULL, &hooks_fops);
	return 0;
}

void ds_debugfs_exit(void)
{
	debugfs_remove(folder);
}
