// SPDX-License-Identifier: GPL-2.0-only
/*
 * OS events, by the numbers that they were made with: neither is looked at, as in the driver (allocate_os_event and
 * free_os_event, osapi.c). The file that was called owns them. No event ever happens.
 */
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "osevent.h"

struct os_event {
	struct list_head node;
	struct sim_file *file;
	u32 parent, fd;
};

static LIST_HEAD(os_events);
static DEFINE_SPINLOCK(os_events_lock);	/* guards os_events */

static struct os_event *find(u32 parent, u32 fd)
{
	struct os_event *event;

	list_for_each_entry(event, &os_events, node)
		if (event->parent == parent && event->fd == fd)
			return event;
	return NULL;
}

NV_STATUS sim_os_event_alloc(struct sim_file *file, u32 parent, u32 fd)
{
	struct os_event *event = kzalloc(sizeof(*event), GFP_KERNEL);
	bool taken;

	if (!event)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	*event = (struct os_event){ .file = file, .parent = parent, .fd = fd };
	spin_lock(&os_events_lock);
	taken = find(parent, fd);
	if (!taken)
		list_add(&event->node, &os_events);
	spin_unlock(&os_events_lock);
	if (taken)
		kfree(event);
	return taken ? NV_ERR_INSUFFICIENT_RESOURCES : NV_OK;
}

NV_STATUS sim_os_event_free(u32 parent, u32 fd)
{
	struct os_event *event;

	spin_lock(&os_events_lock);
	event = find(parent, fd);
	if (event)
		list_del(&event->node);
	spin_unlock(&os_events_lock);
	kfree(event);
	return event ? NV_OK : NV_ERR_INVALID_EVENT;
}

void sim_os_events_drop(struct sim_file *file)
{
	struct os_event *event, *next;

	spin_lock(&os_events_lock);
	list_for_each_entry_safe(event, next, &os_events, node) {
		if (event->file == file) {
			list_del(&event->node);
			kfree(event);
		}
	}
	spin_unlock(&os_events_lock);
}
