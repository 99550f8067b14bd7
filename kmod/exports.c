// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>

#include "exports.h"
#include "pin.h"

void ds_exports_init(struct ds_exports *exports)
{
	mutex_init(&exports->lock);
	INIT_LIST_HEAD(&exports->slots);
}

void ds_exported_free(struct ds_exported *slot)
{
	if (!slot)
		return;
	ds_pin_drop(slot->pin);
	kfree(slot);
}

void ds_exports_close(struct ds_exports *exports)
{
	struct ds_exported *slot, *next;

	mutex_lock(&exports->lock);
	exports->closed = true;
	list_for_each_entry_safe(slot, next, &exports->slots, link) {
		list_del(&slot->link);
		ds_exported_free(slot);
	}
	mutex_unlock(&exports->lock);
}

struct ds_exported *ds_exports_find(struct ds_exports *exports, u32 index)
{
	struct ds_exported *slot;

	list_for_each_entry(slot, &exports->slots, link)
		if (slot->index == index)
			return slot;
	return NULL;
}

void ds_exports_put(struct ds_exports *exports, struct ds_exported *slot)
{
	struct ds_exported *before = ds_exports_find(exports, slot->index);

	if (exports->closed || (before && before->turn > slot->turn)) {
		ds_exported_free(slot);
		return;
	}
	if (before) {
		list_del(&before->link);
		ds_exported_free(before);
	}
	list_add(&slot->link, &exports->slots);
}
