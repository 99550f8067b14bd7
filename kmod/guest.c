// SPDX-License-Identifier: GPL-2.0-only
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "guest.h"
#include "process.h"

#define GUEST_BITS 6

/* What one client has of one host. */
struct guest {
	struct hlist_node link;
	struct list_head objects;
	u32 client;
	struct ds_process *host;	/* held */
};

struct object {
	struct list_head link;
	u32 handle;
};

/* Each with a lock of its own: who has many holds up few. */
static struct {
	spinlock_t lock;
	struct hlist_head guests;
} buckets[1 << GUEST_BITS] = {
	[0 ... (1 << GUEST_BITS) - 1] = { .lock = __SPIN_LOCK_UNLOCKED(buckets.lock) },
};

static unsigned int bucket_of(u32 client)
{
	return hash_32(client, GUEST_BITS);
}

bool ds_guest_steers(enum rm_kind kind)
{
	return kind == RM_KIND_TSG || kind == RM_KIND_CTXSHARE || kind == RM_KIND_CHANNEL;
}

/* Under the lock of its bucket. */
static struct guest *find_guest(u32 client, const struct ds_process *host)
{
	struct guest *guest;

	hlist_for_each_entry(guest, &buckets[bucket_of(client)].guests, link)
		if (guest->client == client && guest->host == host)
			return guest;
	return NULL;
}

int ds_guest_new(u32 client, u32 handle, struct ds_process *host)
{
	struct guest *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT), *guest;
	struct object *object = kzalloc(sizeof(*object), GFP_KERNEL_ACCOUNT);
	unsigned int bucket = bucket_of(client);

	if (!spare || !object) {
		kfree(spare);
		kfree(object);
		return -ENOMEM;
	}
	object->handle = handle;
	spin_lock(&buckets[bucket].lock);
	guest = find_guest(client, host);
	if (!guest) {
		guest = spare;
		spare = NULL;
		INIT_LIST_HEAD(&guest->objects);
		guest->client = client;
		guest->host = ds_process_hold(host);
		hlist_add_head(&guest->link, &buckets[bucket].guests);
	}
	list_add(&object->link, &guest->objects);
	spin_unlock(&buckets[bucket].lock);
	kfree(spare);
	return 0;
}

/* Under the lock of its bucket. */
static struct object *find_object(struct guest *guest, u32 handle)
{
	struct object *object;

	list_for_each_entry(object, &guest->objects, link)
		if (object->handle == handle)
			return object;
	return NULL;
}

void ds_guest_gone(u32 client, u32 handle, const struct ds_process *host)
{
	unsigned int bucket = bucket_of(client);
	struct guest *guest, *empty = NULL;
	struct object *object = NULL;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry(guest, &buckets[bucket].guests, link) {
		if (guest->client != client || (host && guest->host != host))
			continue;
		object = find_object(guest, handle);
		if (!object)
			continue;
		list_del(&object->link);
		if (list_empty(&guest->objects)) {
			hlist_del(&guest->link);
			empty = guest;
		}
		break;
	}
	spin_unlock(&buckets[bucket].lock);
	kfree(object);
	if (empty)
		ds_process_put(empty->host);
	kfree(empty);
}

/* The index-th host of a client, held; NULL: it has no so many. */
static struct ds_process *host_of(u32 client, unsigned int index)
{
	unsigned int bucket = bucket_of(client);
	struct ds_process *host = NULL;
	struct guest *guest;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry(guest, &buckets[bucket].guests, link) {
		if (guest->client == client && !index--) {
			host = ds_process_hold(guest->host);
			break;
		}
	}
	spin_unlock(&buckets[bucket].lock);
	return host;
}

bool ds_guest_any(u32 client, bool (*is_meant)(struct ds_process *host))
{
	struct ds_process *host;
	bool meant = false;
	unsigned int i;

	for (i = 0; !meant && (host = host_of(client, i)); i++) {
		meant = is_meant(host);
		ds_process_put(host);
	}
	return meant;
}

void ds_guest_exit(void)
{
	struct object *object, *next;
	struct hlist_node *after;
	struct guest *guest;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(buckets); i++) {
		hlist_for_each_entry_safe(guest, after, &buckets[i].guests, link) {
			list_for_each_entry_safe(object, next, &guest->objects, link)
				kfree(object);
			ds_process_put(guest->host);
			kfree(guest);
		}
	}
}
