// SPDX-License-Identifier: GPL-2.0-only
/* Clients: a handle, the control file it was made on, and a tree of objects. */
#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "files.h"
#include "sim.h"

DECLARE_RWSEM(sim_api_lock);
DEFINE_XARRAY(sim_clients);
u32 sim_client_count;
unsigned int sim_next_client;

struct sim_client *sim_client_any(u32 handle)
{
	return xa_load(&sim_clients, handle);
}

/* A kernel caller may use every client, anyone else only those of its own control file. */
struct sim_client *sim_client_find(u32 handle, const struct sim_caller *by)
{
	struct sim_client *client = sim_client_any(handle);

	if (client && by->level != SIM_CALLER_KERNEL && client->file != by->file)
		return NULL;
	return client;
}

/* Why a client cannot be used: there is none of that handle, or it is somebody else's. Controls tell no difference. */
NV_STATUS sim_client_refused(u32 handle)
{
	return sim_client_any(handle) ? NV_ERR_INVALID_CLIENT : NV_ERR_INVALID_OBJECT_HANDLE;
}

static u32 free_client_handle(void)
{
	u32 handle;

	do {
		handle = RS_CLIENT_HANDLE_BASE + sim_next_client;
		sim_next_client = (sim_next_client + 1) % RS_CLIENT_HANDLE_MAX;
	} while (sim_client_any(handle));
	return handle;
}

NV_STATUS sim_client_create(const struct sim_caller *by, u32 *handle)
{
	struct sim_client *client;
	struct sim_object *root;
	NV_STATUS status = NV_ERR_INSUFFICIENT_RESOURCES;

	if (*handle && sim_client_any(*handle))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	if (sim_client_count >= RS_CLIENT_HANDLE_MAX)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	client = kzalloc(sizeof(*client), GFP_KERNEL);
	root = kzalloc(sizeof(*root), GFP_KERNEL);
	if (!client || !root)
		goto fail;
	client->handle = *handle ? *handle : free_client_handle();
	client->file = by->file;
	client->pid = by->level == SIM_CALLER_KERNEL ? 0 : task_tgid_nr(current);
	client->euid = current_euid();
	client->level = by->level;
	client->next_handle = SIM_HANDLE_BASE;
	xa_init(&client->objects);
	INIT_LIST_HEAD(&client->cpu_maps);
	INIT_LIST_HEAD(&client->of_file);
	root->handle = client->handle;
	root->class = NV01_ROOT_CLIENT;
	root->kind = KIND_RmClientResource;
	root->ops = &sim_plain_ops;
	status = sim_object_insert(client, NULL, root);
	if (status != NV_OK)
		goto fail;
	client->root = root;
	if (xa_err(xa_store(&sim_clients, client->handle, client, GFP_KERNEL))) {
		sim_object_free(root);
		xa_destroy(&client->objects);
		kfree(client);
		return NV_ERR_INSUFFICIENT_RESOURCES;
	}
	if (client->file)
		list_add_tail(&client->of_file, &client->file->clients);
	sim_client_count++;
	*handle = client->handle;
	return NV_OK;
fail:
	kfree(client);
	kfree(root);
	return status;
}

void sim_client_destroy(struct sim_client *client)
{
	struct sim_cpu_map *map, *next;

	sim_object_free(client->root);
	for (unsigned int i = 0; i < sim_gpu_count; i++)
		sim_engine_interleave(sim_gpus[i].engine, client->handle, true);
	list_for_each_entry_safe(map, next, &client->cpu_maps, link)
		kfree(map);
	list_del(&client->of_file);
	xa_erase(&sim_clients, client->handle);
	sim_client_count--;
	xa_destroy(&client->objects);
	kfree(client);
}
