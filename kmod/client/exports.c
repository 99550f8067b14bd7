// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>

#include "exports.h"
#include "memref.h"

void ds_exports_init(struct ds_exports *exports)
{
	mutex_init(&exports->lock);
	exports->slots = RB_ROOT;
}

void ds_exported_free(struct ds_exported *slot)
{
	if (!slot)
		return;
	ds_memref_drop(slot->memref);
	kfree(slot);
}

void ds_exports_close(struct ds_exports *exports)
{
	struct ds_exported *slot, *next;

	mutex_lock(&exports->lock);
	exports->closed = true;
	rbtree_postorder_for_each_entry_safe(slot, next, &exports->slots, link)
		ds_exported_free(slot);
	exports->slots = RB_ROOT;
	mutex_unlock(&exports->lock);
}

static struct ds_exported *slot_of(const struct rb_node *node)
{
	return rb_entry(node, struct ds_exported, link);
}

static int compare(const void *index, const struct rb_node *node)
{
	u32 wanted = *(const u32 *)index, is = slot_of(node)->index;

	return wanted < is ? -1 : wanted > is;
}

static bool is_below(struct rb_node *node, const struct rb_node *other)
{
	return slot_of(node)->index < slot_of(other)->index;
}

struct ds_exported *ds_exports_find(struct ds_exports *exports, u32 index)
{
	struct rb_node *node = rb_find(&index, &exports->slots, compare);

	return node ? slot_of(node) : NULL;
}

void ds_exports_put(struct ds_exports *exports, struct ds_exported *slot)
{
	struct ds_exported *before = ds_exports_find(exports, slot->index);

	if (exports->closed || (before && before->turn > slot->turn)) {
		ds_exported_free(slot);
		return;
	}
	if (!before) {
		rb_add(&slot->link, &exports->slots, is_below);
		return;
	}
	rb_replace_node(&before->link, &slot->link, &exports->slots);
	ds_exported_free(before);
}
