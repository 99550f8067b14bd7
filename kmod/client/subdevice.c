// SPDX-License-Identifier: GPL-2.0-only
#include "rmcall.h"
#include "subdevice.h"

#define TRIES 3

static u32 find(const struct ds_client *client, enum rm_kind kind, u32 gpu)
{
	const struct rm_object *object = NULL;

	while ((object = rm_tree_next(&client->rm, object)))
		if (object->kind == kind && object->gpu == gpu)
			return object->handle;
	return 0;
}

u32 ds_subdevice_of(const struct ds_client *client, u32 gpu)
{
	return find(client, RM_KIND_SUBDEVICE, gpu);
}

u32 ds_device_of(const struct ds_client *client, u32 gpu)
{
	return find(client, RM_KIND_DEVICE, gpu);
}

u32 ds_subdevice_make(u32 client, u32 device, struct ds_subdevice *subdevice)
{
	unsigned int tries = 0;
	u32 status;

	*subdevice = (struct ds_subdevice){ .client = client };
	do {
		status = ds_rm_alloc(client, device, NV20_SUBDEVICE_0, &subdevice->handle);
		subdevice->ours = !status;
		if (status != NV_ERR_INSUFFICIENT_RESOURCES)
			return status;
		status = ds_rm_child(client, device, __nvoc_class_id_Subdevice, &subdevice->handle);
		/* it may be what another question of ours had made, and be gone by now */
	} while (status && ++tries < TRIES);
	return status;
}

/* The program has freed ours, and something of its own has that handle now. */
static bool replaced(const struct ds_subdevice *subdevice)
{
	struct ds_client *client;
	bool known = false;

	down_read(&ds_clients_lock);
	client = ds_client_find(subdevice->client);
	if (client) {
		mutex_lock(&client->tree);
		known = rm_tree_find(&client->rm, subdevice->handle);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return known;
}

void ds_subdevice_done(struct ds_subdevice *subdevice)
{
	if (subdevice->ours && !replaced(subdevice))
		ds_rm_free(subdevice->client, subdevice->handle);
	*subdevice = (struct ds_subdevice){ 0 };
}
