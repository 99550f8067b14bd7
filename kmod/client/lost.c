// SPDX-License-Identifier: GPL-2.0-only
#include <linux/mm.h>
#include <linux/slab.h>

#include "driver.h"
#include "lost.h"
#include "rmcall.h"

bool ds_lost(u32 client, u32 handle, enum rm_kind kind)
{
	const struct rm_class *class;
	u32 nr, status = ds_rm_class(client, handle, &nr);

	if (status)
		return status == NV_ERR_OBJECT_NOT_FOUND;
	/* the handle may have come to name an object of the driver's own */
	class = rm_abi_class(ds_abi_outer(), nr);
	return class && class->kind != kind;
}

/* What goes with a VA space is a duplicate: with the others the tree knows it. What hangs on an object of the driver's own it knows of none. */
static bool may_go(const struct rm_object *object, bool space)
{
	if (space)
		return object->flags & RM_OBJECT_DUP && (object->kind == RM_KIND_TSG || object->kind == RM_KIND_CTXSHARE);
	return object->kind == RM_KIND_CTXSHARE || object->kind == RM_KIND_CHANNEL;
}

struct suspect {
	u32 handle;
	enum rm_kind kind;
};

/* Without memory there are none: who asks the driver for more than it has hears of them then. */
static struct suspect *suspects_of(struct ds_client *client, bool space, unsigned int *count)
{
	struct rm_object *object = NULL;
	struct suspect *suspects;
	unsigned int room;

	*count = 0;
	mutex_lock(&client->tree);
	room = client->rm.count[RM_KIND_TSG] + client->rm.count[RM_KIND_CTXSHARE] + client->rm.count[RM_KIND_CHANNEL];
	mutex_unlock(&client->tree);
	suspects = room ? kvmalloc_array(room, sizeof(*suspects), GFP_KERNEL) : NULL;
	if (!suspects)
		return NULL;
	mutex_lock(&client->tree);
	while (*count < room && (object = rm_tree_next(&client->rm, object)))
		if (may_go(object, space))
			suspects[(*count)++] = (struct suspect){ object->handle, object->kind };
	mutex_unlock(&client->tree);
	return suspects;
}

void ds_lost_drop(struct ds_client *client, bool space)
{
	unsigned int count, i;
	struct suspect *suspects = suspects_of(client, space, &count);

	for (i = 0; i < count; i++) {
		if (!ds_lost(client->rm.handle, suspects[i].handle, suspects[i].kind))
			continue;
		mutex_lock(&client->tree);
		rm_tree_free(&client->rm, suspects[i].handle);
		mutex_unlock(&client->tree);
	}
	kvfree(suspects);
}
