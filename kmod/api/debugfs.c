// SPDX-License-Identifier: GPL-2.0-only
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "client.h"
#include "debugfs.h"
#include "doorbell.h"
#include "driver.h"
#include "shadow.h"
#include "hook.h"
#include "runq.h"
#include "memref.h"
#include "process.h"
#include "entity.h"
#include "userd.h"

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

static int shadows_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_shadow_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(shadows);

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

static int memrefs_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_memref_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(memrefs);

static int bounds_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_bound_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(bounds);

static int doors_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_doors_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(doors);

static int userd_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_userd_count());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(userd);

static int waiting_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%u\n", ds_gates_waiting());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(waiting);

/* One line for each gate of an entity, all numbers; what entity-get tells less. */
static int gates_show(struct seq_file *file, void *unused)
{
	struct ds_userd_scan userd;
	struct ds_entity_info entity;
	unsigned int i;

	for (i = 0; ds_entity_at(i, &entity); i++) {
		const struct ds_gate_stats *gate = &entity.gate;

		seq_printf(file, "pid %d gpu %u client %u doors %u mappings %u assumed %u reasons %u armed %d waiting %u", ds_process_nr(entity.process),
			   entity.gpu, entity.client, gate->doors, gate->mappings, gate->assumed, gate->reasons, gate->armed, gate->waiting);
		ds_userd_scan(entity.process, entity.client, entity.gpu, false, &userd);
		seq_printf(file, " channels %u told %u pending %u", userd.channels, userd.told, userd.pending);
		seq_printf(file, " kicks %llu faults %llu waits %llu wait_ns %llu accesses %llu denied %llu last_ns %llu shut_ns %llu\n",
			   gate->kicks, gate->faults, gate->waits, gate->wait_ns, gate->accesses, gate->denied, gate->last_ns,
			   gate->shut_ns);
		ds_process_put(entity.process);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(gates);

/* One line for each GPU. */
static int turns_show(struct seq_file *file, void *unused)
{
	static const char *const modes[] = { "none", "turns", "windows" };
	struct ds_rotation_info turn;
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++) {
		ds_runq_tell(gpu, &turn);
		seq_printf(file, "gpu %u mode %s vctx %llu pid %d left_ms %llu\n", gpu, modes[turn.mode], turn.vctx, turn.pid,
			   turn.left_ms);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(turns);

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
	debugfs_create_file("shadows", 0400, folder, NULL, &shadows_fops);
	debugfs_create_file("processes", 0400, folder, NULL, &processes_fops);
	debugfs_create_file("memrefs", 0400, folder, NULL, &memrefs_fops);
	debugfs_create_file("bounds", 0400, folder, NULL, &bounds_fops);
	debugfs_create_file("doors", 0400, folder, NULL, &doors_fops);
	debugfs_create_file("userd", 0400, folder, NULL, &userd_fops);
	debugfs_create_file("waiting", 0400, folder, NULL, &waiting_fops);
	debugfs_create_file("gates", 0400, folder, NULL, &gates_fops);
	debugfs_create_file("turns", 0400, folder, NULL, &turns_fops);
	debugfs_create_file("inside", 0400, folder, NULL, &inside_fops);
	debugfs_create_file("hooks", 0400, folder, NULL, &hooks_fops);
	return 0;
}

void ds_debugfs_exit(void)
{
	debugfs_remove(folder);
}
