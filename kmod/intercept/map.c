// SPDX-License-Identifier: GPL-2.0-only
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>

#include "doorbell.h"
#include "driver.h"
#include "runq.h"
#include "map.h"
#include "rmcall.h"
#include "userd.h"

/* An RM_MAP_MEMORY of a usermode object on its way through the driver. */
struct ds_door_claim {
	const struct file *file;	/* to be armed; NULL: there is none */
	bool taken;			/* the driver has come so far */
};

static bool class_rings(u32 nr)
{
	const struct rm_class *class = rm_abi_class(ds_abi_outer(), nr);

	return class && class->kind == RM_KIND_USERMODE;
}

/* Does the object that is to be mapped show a doorbell, and of which GPU? */
static bool is_usermode(struct ds_call *call, u32 *gpu)
{
	struct ds_client *client = call->client;
	struct rm_object *object;
	u32 class = 0;

	mutex_lock(&client->tree);
	*gpu = ds_client_first_gpu(client);
	object = rm_tree_find(&client->rm, call->asked.object);
	if (object && !(object->flags & RM_OBJECT_GHOST))
		class = object->class;
	if (object && object->gpu < RM_GPUS)
		*gpu = object->gpu;
	mutex_unlock(&client->tree);
	/* what was missed when the client was found, or came from a client that is not known */
	if (!class && ds_rm_class(client->rm.handle, call->asked.object, &class))
		return false;
	return class_rings(class);
}

static void map_claimed(struct ds_call *call, struct ds_gate *gate, const struct file *file)
{
	struct ds_door_claim claim = { .file = file };
	struct ds_door *door = NULL;
	bool made = false;

	if (file) {
		door = ds_door_claim(gate, file, &made);
		if (!door) {
			ds_call_refuse(call, NV_ERR_STATE_IN_USE);
			return;
		}
	}
	call->shadow->claim = &claim;
	ds_call_driver(call);
	call->shadow->claim = NULL;
	if (!door)
		return;
	/* what may be armed stays a door */
	if (made && (!claim.taken || (call->shadow->returned && (call->shadow->rm_status || call->done.status))))
		ds_door_forget(door);
	else if (made)
		ds_door_enter(door);
	ds_door_put(door);
}

/* Of something that is no doorbell. */
static void map_memory(struct ds_call *call)
{
	struct file *file = call->client && ds_enforcing() ? fget(call->asked.fd) : NULL;
	const struct file *shown = NULL;

	call->shadow->shown = &shown;
	/* the descriptor may name another file by the time the driver looks: of one that is not its own nobody tells the end */
	if (ds_call_driver(call) && file && file == shown)
		ds_userd_remember(file, call->client->rm.handle, call->asked.object, call->asked.offset, call->asked.length);
	call->shadow->shown = NULL;
	if (file)
		fput(file);
}

void ds_map(struct ds_call *call)
{
	struct ds_entity *entity;
	struct file *file;
	u32 gpu;

	if (!call->client || !is_usermode(call, &gpu)) {
		map_memory(call);
		return;
	}
	if (!ds_entity_room(call->client, gpu)) {
		ds_call_refuse(call, NV_ERR_INSUFFICIENT_RESOURCES);
		return;
	}
	entity = ds_entity_of(call->client, gpu);
	if (!entity || !ds_gate_has_room(entity->gate)) {
		ds_call_refuse(call, entity ? NV_ERR_INSUFFICIENT_RESOURCES : NV_ERR_NO_MEMORY);
		return;
	}
	file = fget(call->asked.fd);
	ds_gate_arming_begin(entity->gate);
	map_claimed(call, entity->gate, file);
	ds_gate_arming_end(entity->gate);
	if (file)
		fput(file);
}

bool ds_map_take(struct ds_shadow *shadow, const struct file *file)
{
	shadow->claim->taken = true;
	return shadow->claim->file == file;
}

static u32 gpu_of(struct ds_client *client, const struct file *file)
{
	u32 minor = iminor(file_inode(file));
	u32 gpu;

	mutex_lock(&client->tree);
	gpu = minor < RM_GPUS && ds_vctx_find(client, minor) ? minor : ds_client_first_gpu(client);
	mutex_unlock(&client->tree);
	return gpu;
}

void ds_map_adopt(struct ds_client *client)
{
	struct file **files;
	unsigned int count;

	if (!client->rm.count[RM_KIND_USERMODE])
		return;
	files = kcalloc(DS_DOORS_FOUND_MAX, sizeof(*files), GFP_KERNEL);
	count = files ? ds_doors_find(files) : 0;
	while (count--) {
		struct ds_entity *entity = ds_entity_of(client, gpu_of(client, files[count]));

		if (entity)
			ds_door_assume(entity->gate, files[count]);
		fput(files[count]);
	}
	kfree(files);
}
