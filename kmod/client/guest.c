// SPDX-License-Identifier: GPL-2.0-only
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "guest.h"
#include "process.h"

#define GUEST_BITS 6
#define COUNT_BITS 10

/* What one client has of one host. */
struct guest {
	struct hlist_node link;
	struct list_head objects;
	u64 serial;
	u32 client;
	struct ds_process *process;	/* whose client it is, held: the handle may be another's already */
	struct ds_process *host;	/* held */
};

struct object {
	struct list_head link;
	u32 handle;	/* 0: not made yet */
	bool sure;	/* the host has given away a channel group, once this is one */
	bool group;	/* counted in ds_process.groups of both */
};

/* Each with a lock of its own: who has many holds up few. The newest guest comes first, and has the highest serial. */
static struct {
	spinlock_t lock;
	u64 serial;
	struct hlist_head guests;
} buckets[1 << GUEST_BITS] = {
	[0 ... (1 << GUEST_BITS) - 1] = { .lock = __SPIN_LOCK_UNLOCKED(buckets.lock) },
};

static atomic_t counts[1 << COUNT_BITS];

static unsigned int bucket_of(u32 client)
{
	return hash_32(client, GUEST_BITS);
}

static atomic_t *count_of(u32 client)
{
	return &counts[hash_32(client, COUNT_BITS)];
}

bool ds_guest_steers(enum rm_kind kind)
{
	return kind == RM_KIND_TSG || kind == RM_KIND_CTXSHARE || kind == RM_KIND_CHANNEL;
}

u32 ds_guest_count(u32 client)
{
	return (u32)atomic_read(count_of(client));
}

bool ds_guest_shares(const struct ds_process *process)
{
	return atomic_read(&process->groups);
}

static bool is_of(const struct guest *guest, u32 client, const struct ds_process *process)
{
	return guest->client == client && guest->process == process;
}

/* Under the lock of its bucket. */
static struct guest *find_guest(u32 client, const struct ds_process *process, const struct ds_process *host)
{
	struct guest *guest;

	hlist_for_each_entry(guest, &buckets[bucket_of(client)].guests, link)
		if (is_of(guest, client, process) && guest->host == host)
			return guest;
	return NULL;
}

/* Under the lock of its bucket. */
static struct object *find_asked(struct guest *guest)
{
	struct object *object;

	list_for_each_entry(object, &guest->objects, link)
		if (!object->handle)
			return object;
	return NULL;
}

static int ask(u32 client, struct ds_process *process, struct ds_process *host, bool sure)
{
	struct guest *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT), *guest;
	struct object *object = kzalloc(sizeof(*object), GFP_KERNEL_ACCOUNT), *asked;
	unsigned int bucket = bucket_of(client);

	if (!spare || !object) {
		kfree(spare);
		kfree(object);
		return -ENOMEM;
	}
	spin_lock(&buckets[bucket].lock);
	guest = find_guest(client, process, host);
	if (!guest) {
		guest = spare;
		spare = NULL;
		INIT_LIST_HEAD(&guest->objects);
		guest->serial = ++buckets[bucket].serial;
		guest->client = client;
		guest->process = ds_process_hold(process);
		guest->host = ds_process_hold(host);
		hlist_add_head(&guest->link, &buckets[bucket].guests);
		atomic_inc(count_of(client));
	}
	asked = find_asked(guest);
	if (!asked) {
		asked = object;
		object = NULL;
		list_add(&asked->link, &guest->objects);
	}
	asked->sure |= sure;
	spin_unlock(&buckets[bucket].lock);
	kfree(spare);
	kfree(object);
	return 0;
}

int ds_guest_new(u32 client, struct ds_process *process, struct ds_process *host)
{
	return ask(client, process, host, true);
}

/*
 * The next host of a client, held, whoever came or went meanwhile; NULL: it has no more. *serial: of the one before, U64_MAX for the
 * first. *sure, if not NULL: has the client a channel group of it?
 */
static struct ds_process *next_host(u32 client, u64 *serial, bool *sure)
{
	unsigned int bucket = bucket_of(client);
	struct ds_process *host = NULL;
	struct object *object;
	struct guest *guest;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry(guest, &buckets[bucket].guests, link) {
		if (guest->client != client || guest->serial >= *serial)
			continue;
		*serial = guest->serial;
		host = ds_process_hold(guest->host);
		if (!sure)
			break;
		*sure = false;
		list_for_each_entry(object, &guest->objects, link)
			*sure |= object->group;
		break;
	}
	spin_unlock(&buckets[bucket].lock);
	return host;
}

int ds_guest_copy(u32 client, struct ds_process *process, u32 from)
{
	struct ds_process *host;
	u64 serial = U64_MAX;
	bool sure;
	int err = 0;

	while (!err && (host = next_host(from, &serial, &sure))) {
		/* what it has from its host itself is its own again */
		if (host != process)
			err = ask(client, process, host, sure);
		ds_process_put(host);
	}
	return err;
}

bool ds_guest_any(u32 client, bool (*is_meant)(struct ds_process *host))
{
	struct ds_process *host;
	u64 serial = U64_MAX;
	bool meant = false;

	while (!meant && (host = next_host(client, &serial, NULL))) {
		meant = is_meant(host);
		ds_process_put(host);
	}
	return meant;
}

/* Under the lock of its bucket. */
static void take_out(struct guest *guest, struct object *object)
{
	list_del(&object->link);
	if (object->group) {
		atomic_dec(&guest->host->groups);
		atomic_dec(&guest->process->groups);
	}
	kfree(object);
}

/* Under the lock of its bucket: one without objects goes to `empty`. */
static void clear_away(struct guest *guest, struct hlist_head *empty)
{
	if (!list_empty(&guest->objects))
		return;
	hlist_del(&guest->link);
	hlist_add_head(&guest->link, empty);
}

static void free_all(struct hlist_head *guests)
{
	struct object *object, *after;
	struct hlist_node *next;
	struct guest *guest;

	hlist_for_each_entry_safe(guest, next, guests, link) {
		list_for_each_entry_safe(object, after, &guest->objects, link)
			take_out(guest, object);
		ds_process_put(guest->host);
		ds_process_put(guest->process);
		kfree(guest);
	}
}

void ds_guest_settle(u32 client, struct ds_process *process, u32 handle, bool group)
{
	unsigned int bucket = bucket_of(client);
	HLIST_HEAD(empty);
	struct object *object;
	struct hlist_node *next;
	struct guest *guest;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry_safe(guest, next, &buckets[bucket].guests, link) {
		object = is_of(guest, client, process) ? find_asked(guest) : NULL;
		if (!object)
			continue;
		if (handle) {
			object->handle = handle;
			object->group = group && object->sure;
			atomic_add(object->group, &guest->host->groups);
			atomic_add(object->group, &guest->process->groups);
		} else {
			take_out(guest, object);
			clear_away(guest, &empty);
		}
	}
	spin_unlock(&buckets[bucket].lock);
	free_all(&empty);
}

void ds_guest_gone(u32 client, const struct ds_process *process, u32 handle)
{
	unsigned int bucket = bucket_of(client);
	struct object *object, *after;
	HLIST_HEAD(empty);
	struct hlist_node *next;
	struct guest *guest;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry_safe(guest, next, &buckets[bucket].guests, link) {
		if (!is_of(guest, client, process))
			continue;
		list_for_each_entry_safe(object, after, &guest->objects, link)
			if (object->handle == handle)
				take_out(guest, object);
		clear_away(guest, &empty);
	}
	spin_unlock(&buckets[bucket].lock);
	free_all(&empty);
}

void ds_guest_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(buckets); i++)
		free_all(&buckets[i].guests);
}
