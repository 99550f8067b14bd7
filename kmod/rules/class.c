// SPDX-License-Identifier: GPL-2.0-only
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "change.h"
#include "class.h"
#include "rows.h"

struct entry {
	struct list_head link;
	struct ds_class row;
};

static LIST_HEAD(rows);
/* A leaf. */
static DEFINE_SPINLOCK(rows_lock);
static bool stopping;

static struct entry *find(const char *name, u32 gpu)
{
	struct entry *entry;

	list_for_each_entry(entry, &rows, link)
		if (entry->row.gpu == gpu && !strcmp(entry->row.name, name))
			return entry;
	return NULL;
}

int ds_class_set(const struct ds_class *row)
{
	struct entry *made = kzalloc(sizeof(*made), GFP_KERNEL), *entry;
	unsigned long flags;
	int err = 0;

	if (!made)
		return -ENOMEM;
	made->row = *row;
	made->row.entities = 0;
	spin_lock_irqsave(&rows_lock, flags);
	entry = find(row->name, row->gpu);
	if (stopping) {
		err = -ENODEV;
	} else if (entry) {
		entry->row = made->row;
	} else {
		list_add_tail(&made->link, &rows);
		made = NULL;
	}
	spin_unlock_irqrestore(&rows_lock, flags);
	kfree(made);
	if (!err)
		ds_rules_changed();
	return err;
}

int ds_class_del(u32 gpu, const char *name)
{
	struct entry *entry;
	unsigned long flags;

	spin_lock_irqsave(&rows_lock, flags);
	entry = find(name, gpu);
	if (entry)
		ds_row_del(&entry->link);
	spin_unlock_irqrestore(&rows_lock, flags);
	if (!entry)
		return -ENOENT;
	kfree(entry);
	ds_rules_changed();
	return 0;
}

bool ds_class_get(const char *name, u32 gpu, struct ds_class *row)
{
	struct entry *entry;
	unsigned long flags;

	if (!name[0])
		return false;
	spin_lock_irqsave(&rows_lock, flags);
	entry = find(name, gpu) ?: find(name, DS_ALL_GPUS);
	if (entry)
		*row = entry->row;
	spin_unlock_irqrestore(&rows_lock, flags);
	return entry;
}

bool ds_class_at(unsigned int index, struct ds_class *row)
{
	struct entry *entry;
	unsigned long flags;
	bool found = false;

	spin_lock_irqsave(&rows_lock, flags);
	list_for_each_entry(entry, &rows, link) {
		if (index--)
			continue;
		*row = entry->row;
		found = true;
		break;
	}
	spin_unlock_irqrestore(&rows_lock, flags);
	return found;
}

void ds_class_exit(void)
{
	struct entry *entry, *next;
	LIST_HEAD(gone);

	spin_lock_irq(&rows_lock);
	stopping = true;
	list_splice_init(&rows, &gone);
	spin_unlock_irq(&rows_lock);
	list_for_each_entry_safe(entry, next, &gone, link)
		kfree(entry);
}
