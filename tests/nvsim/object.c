// SPDX-License-Identifier: GPL-2.0-only
/* The object trees: insertion, dependence, and freeing with all that hangs on an object. */
#include <linux/slab.h>

#include "sim.h"

u64 sim_object_count;

struct sim_object *sim_object_find(struct sim_client *client, u32 handle)
{
	return xa_load(&client->objects, handle);
}

/* Gives object its handle if it has none, and its place in the tree. The object stays the caller's if this fails. */
NV_STATUS sim_object_insert(struct sim_client *client, struct sim_object *parent, struct sim_object *object)
{
	object->client = client;
	object->parent = parent;
	object->depth = parent ? parent->depth + 1 : 0;
	INIT_LIST_HEAD(&object->children);
	INIT_LIST_HEAD(&object->sibling);
	INIT_LIST_HEAD(&object->dependants);
	INIT_LIST_HEAD(&object->needs);
	INIT_LIST_HEAD(&object->shares);
	INIT_LIST_HEAD(&object->dmas);
	if (!object->gpu && parent)
		object->gpu = parent->gpu;
	if (object->depth > SIM_MAX_DEPTH)
		return NV_ERR_ILLEGAL_ACTION;
	if (xa_err(xa_store(&client->objects, object->handle, object, GFP_KERNEL)))
		return NV_ERR_NO_MEMORY;
	client->count++;
	sim_object_count++;
	if (parent)
		list_add_tail(&object->sibling, &parent->children);
	return NV_OK;
}

NV_STATUS sim_depend(struct sim_object *dependant, struct sim_object *needs)
{
	struct sim_dependency *link;

	if (!needs)
		return NV_OK;
	link = kmalloc(sizeof(*link), GFP_KERNEL);
	if (!link)
		return NV_ERR_NO_MEMORY;
	link->needs = needs;
	link->dependant = dependant;
	list_add_tail(&link->of, &needs->dependants);
	list_add_tail(&link->by, &dependant->needs);
	return NV_OK;
}

static void drop_dmas(struct sim_object *object)
{
	struct sim_dma *dma, *next;

	list_for_each_entry_safe(dma, next, &object->dmas, link) {
		sim_vas_unmap(dma->vas, dma->va, dma->length);
		sim_vas_put(dma->vas);
		kfree(dma);
	}
}

static void free_leaf(struct sim_object *object)
{
	struct sim_client *client = object->client;
	struct sim_object *wrapper = object->wrapper;
	struct sim_dependency *link, *next;
	struct sim_share *share, *more;

	drop_dmas(object);
	if (object->ops->destroy)
		object->ops->destroy(object);
	list_for_each_entry_safe(link, next, &object->needs, by) {
		list_del(&link->of);
		kfree(link);
	}
	list_for_each_entry_safe(share, more, &object->shares, link)
		kfree(share);
	list_del(&object->sibling);
	xa_erase(&client->objects, object->handle);
	client->count--;
	sim_object_count--;
	kfree(object);
	/* nothing else of a walk that is under way hangs on it: it is younger than all that its channel needs besides */
	if (wrapper && !wrapper->dying)
		sim_object_free(wrapper);
}

/* Frees object with its children and dependants, leaves first. Every edge points to an older object: no cycles. */
void sim_object_free(struct sim_object *object)
{
	struct sim_object *at = object;

	object->back = NULL;
	while (at) {
		struct sim_object *next = NULL;

		at->dying = true;
		if (!list_empty(&at->dependants))
			next = list_last_entry(&at->dependants, struct sim_dependency, of)->dependant;
		else if (!list_empty(&at->children))
			next = list_last_entry(&at->children, struct sim_object, sibling);
		if (next) {
			next->back = at;
			at = next;
		} else {
			next = at->back;
			free_leaf(at);
			at = next;
		}
	}
}

/* The device above (or at) an object; NULL for what hangs on the client itself. */
struct sim_object *sim_object_device(struct sim_object *object)
{
	while (object && object->kind != KIND_Device)
		object = object->parent;
	return object;
}
