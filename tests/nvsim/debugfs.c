// SPDX-License-Identifier: GPL-2.0-only
/* What is true, for tests: memory taken, its peak, objects, clients, TSGs and kicks. Mappings: debugfs_maps.c. */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "debugfs.h"
#include "sim.h"

static struct dentry *root;

static int used_get(void *data, u64 *value)
{
	struct sim_heap *heap = data;

	*value = heap->size - sim_heap_free(heap);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(used_fops, used_get, NULL, "%llu\n");

static int peak_get(void *data, u64 *value)
{
	struct sim_heap *heap = data;

	spin_lock(&heap->lock);
	*value = heap->peak;
	spin_unlock(&heap->lock);
	return 0;
}

/* Any write begins anew from what is taken now. */
static int peak_set(void *data, u64 value)
{
	struct sim_heap *heap = data;

	spin_lock(&heap->lock);
	heap->peak = heap->used;
	spin_unlock(&heap->lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(peak_fops, peak_get, peak_set, "%llu\n");

/* Objects that belong to this GPU: a device and all below it. Clients as such belong to none. */
static u64 objects_of(struct sim_gpu *gpu)
{
	struct sim_client *client;
	struct sim_object *object;
	unsigned long i, j;
	u64 count = 0;

	down_read(&sim_api_lock);
	xa_for_each(&sim_clients, i, client)
		xa_for_each(&client->objects, j, object)
			count += object->gpu == gpu;
	up_read(&sim_api_lock);
	return count;
}

static int objects_get(void *data, u64 *value)
{
	*value = objects_of(data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(objects_fops, objects_get, NULL, "%llu\n");

static int clients_show(struct seq_file *m, void *unused)
{
	struct sim_gpu *gpu = m->private;
	struct sim_client *client;
	struct sim_object *object;
	unsigned long i, j;

	down_read(&sim_api_lock);
	seq_puts(m, "client pid objects vidmem\n");
	xa_for_each(&sim_clients, i, client) {
		u64 bytes = 0;
		u32 here = 0;

		xa_for_each(&client->objects, j, object) {
			here += object->gpu == gpu;
			if (sim_kind_isa(object->kind, KIND_Memory) && object->gpu == gpu &&
			    object->memory->type == SIM_VIDMEM)
				bytes += object->memory->size;
		}
		if (here)
			seq_printf(m, "%#x %d %u %llu\n", client->handle, client->pid, here, bytes);
	}
	up_read(&sim_api_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(clients);

static int tsgs_show(struct seq_file *m, void *unused)
{
	struct sim_gpu *gpu = m->private;

	return sim_engine_tsg_show(m, gpu->engine);
}
DEFINE_SHOW_ATTRIBUTE(tsgs);

static int kicks_show(struct seq_file *m, void *unused)
{
	struct sim_gpu *gpu = m->private;

	return sim_engine_kick_show(m, gpu->engine);
}
DEFINE_SHOW_ATTRIBUTE(kicks);

static int totals_show(struct seq_file *m, void *unused)
{
	down_read(&sim_api_lock);
	seq_printf(m, "clients %u\nobjects %llu\nhost_pages %ld\n", sim_client_count, sim_object_count,
		   atomic_long_read(&sim_host_pages));
	up_read(&sim_api_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(totals);

int sim_debugfs_init(void)
{
	char name[8];

	root = debugfs_create_dir("nvsim", NULL);
	if (IS_ERR(root))
		return PTR_ERR(root);
	debugfs_create_file("totals", 0400, root, NULL, &totals_fops);
	sim_debugfs_failing(root);
	sim_debugfs_waiting(root);
	for (unsigned int i = 0; i < sim_gpu_count; i++) {
		struct sim_gpu *gpu = &sim_gpus[i];
		struct dentry *folder;

		snprintf(name, sizeof(name), "gpu%u", i);
		folder = debugfs_create_dir(name, root);
		debugfs_create_file("used", 0400, folder, &gpu->heap, &used_fops);
		debugfs_create_file("peak", 0600, folder, &gpu->heap, &peak_fops);
		debugfs_create_file("objects", 0400, folder, gpu, &objects_fops);
		debugfs_create_file("clients", 0400, folder, gpu, &clients_fops);
		debugfs_create_file("tsgs", 0400, folder, gpu, &tsgs_fops);
		debugfs_create_file("kicks", 0400, folder, gpu, &kicks_fops);
		sim_debugfs_maps(gpu, folder);
	}
	return 0;
}

void sim_debugfs_exit(void)
{
	debugfs_remove_recursive(root);
}
