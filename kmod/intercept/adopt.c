// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/mm.h>

#include "adopt.h"
#include "driver.h"
#include "gpu.h"
#include "groups.h"
#include "map.h"
#include "raw.h"
#include "rmcall.h"

/* Libraries number their objects from the device on: so long a gap ends the search upwards, and downwards. */
#define GAP_UP 1024
#define GAP_DOWN 64
/* More objects than that are not looked for; what is missing is charged to nobody. */
#define FOUND_MAX 16384

struct found {
	u32 handle, parent, class;
	u64 bytes;
	bool inserted;
};

struct search {
	struct ds_client *client;
	struct found *found;
	unsigned int count;
};

static bool is_memory(const struct rm_class *class)
{
	switch (class ? class->kind : RM_KIND_OTHER) {
	case RM_KIND_MEM_VIDEO:
	case RM_KIND_MEM_FABRIC:
	case RM_KIND_MEM_MULTICAST:
	case RM_KIND_MEM_IMPORT:
	case RM_KIND_MEM_OTHER:
		return true;
	default:
		return false;
	}
}

static bool look_at(struct search *search, u32 handle)
{
	u32 client = search->client->rm.handle;
	struct found *found = &search->found[search->count];

	if (search->count == FOUND_MAX || ds_rm_class(client, handle, &found->class))
		return false;
	found->handle = handle;
	found->bytes = 0;
	found->inserted = false;
	if (ds_rm_parent(client, handle, &found->parent))
		return false;
	if (is_memory(rm_abi_class(ds_abi(), found->class)))
		ds_rm_memory_bytes(client, handle, &found->bytes);
	search->count++;
	return true;
}

static void look_around(struct search *search, u32 device)
{
	unsigned int gap;
	u32 handle;

	for (handle = device, gap = 0; gap < GAP_UP && !fatal_signal_pending(current); handle++)
		gap = look_at(search, handle) ? 0 : gap + 1;
	for (handle = device - 1, gap = 0; gap < GAP_DOWN && !fatal_signal_pending(current); handle--)
		gap = look_at(search, handle) ? 0 : gap + 1;
}

/*
 * The GPU of a device, by the name that the GPU behind its subdevice gives itself. What cannot be told counts on the first GPU:
 * somebody must pay.
 */
static u32 gpu_of(struct search *search, u32 device)
{
	u32 gpu = RM_GPU_NONE;
	unsigned int i;

	for (i = 0; i < search->count && gpu == RM_GPU_NONE; i++)
		if (search->found[i].parent == device &&
		    search->found[i].class == NV20_SUBDEVICE_0)
			gpu = ds_gpu_ask(search->client->rm.handle, search->found[i].handle);
	return gpu == RM_GPU_NONE ? 0 : gpu;
}

static bool insert(struct search *search, struct found *found)
{
	struct ds_client *client = search->client;
	struct rm_insert insert = {
		.handle = found->handle,
		.parent = found->parent,
		.class = found->class,
		.gpu = RM_GPU_INHERIT,
		.bytes = found->bytes,
	};
	struct rm_object *parent, *object = NULL;
	struct ds_vctx *vctx, *own = NULL;

	if (found->class == NV01_DEVICE_0) {
		insert.gpu = gpu_of(search, found->handle);
		own = ds_vctx_get(client, insert.gpu);
		if (IS_ERR(own))
			return false;
	}
	mutex_lock(&client->tree);
	if (own)
		own->device = true;
	if (rm_tree_reserve(&client->rm))
		goto unlock;
	parent = rm_tree_find(&client->rm, found->parent);
	vctx = parent ? ds_vctx_find(client, parent->gpu) : NULL;
	if (found->bytes && vctx)
		rm_payer_force(ds_vctx_payer(vctx), found->bytes);
	else
		insert.bytes = 0;
	object = rm_tree_insert(&client->rm, &insert);
	found->inserted = true;
unlock:
	mutex_unlock(&client->tree);
	if (object && object->kind == RM_KIND_BINAPI && ds_raw_new(client, found->handle, true))
		pr_warn_once("no memory to note a raw interface of process %d\n", ds_process_nr(client->process));
	return found->inserted;
}

/* Parents first: as long as a round finds somebody whose parent is there. */
static void insert_all(struct search *search)
{
	struct ds_client *client = search->client;
	bool progress = true;
	unsigned int i;

	while (progress) {
		progress = false;
		for (i = 0; i < search->count; i++) {
			struct found *found = &search->found[i];
			bool parent;

			if (found->inserted)
				continue;
			mutex_lock(&client->tree);
			parent = rm_tree_find(&client->rm, found->parent);
			mutex_unlock(&client->tree);
			if (parent && insert(search, found))
				progress = true;
		}
	}
}

static void read_tree(struct ds_client *client)
{
	struct search search = { .client = client };
	u32 device;

	if (ds_rm_child(client->rm.handle, client->rm.handle, __nvoc_class_id_Device, &device))
		return;	/* no device, so nothing that counts */
	search.found = kvcalloc(FOUND_MAX + 1, sizeof(*search.found), GFP_KERNEL_ACCOUNT);
	if (!search.found)
		return;
	look_around(&search, device);
	insert_all(&search);
	kvfree(search.found);
}

struct ds_client *ds_adopt(struct ds_call *call)
{
	struct ds_client *client;

	if (!ds_driver_older_clients() || !ds_call_owns(call, call->asked.client))
		return NULL;
	client = ds_client_add(call->known, call->asked.client, true);
	if (IS_ERR(client))
		return NULL;
	read_tree(client);
	ds_tsgs_found(client);
	ds_map_adopt(client);
	return client;
}
