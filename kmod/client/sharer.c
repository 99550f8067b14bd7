// SPDX-License-Identifier: GPL-2.0-only
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "sharer.h"
#include "process.h"

#define SHARER_BITS 6
#define COUNT_BITS 10
/* Objects of one client. Each that dies is looked for among them, and all of them may die at once, with its tree locked. */
#define OBJECTS_MOST 4096

/* What one client has of one host. */
struct sharer {
	struct hlist_node link;
	struct list_head objects;
	unsigned int count;	/* of them */
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

/* Each with a lock of its own: who has many holds up few. The newest sharer comes first, and has the highest serial. */
static struct {
	spinlock_t lock;
	u64 serial;
	struct hlist_head sharers;
} buckets[1 << SHARER_BITS] = {
	[0 ... (1 << SHARER_BITS) - 1] = { .lock = __SPIN_LOCK_UNLOCKED(buckets.lock) },
};

static atomic_t counts[1 << COUNT_BITS];

static unsigned int bucket_of(u32 client)
{
	return hash_32(client, SHARER_BITS);
}

static atomic_t *count_of(u32 client)
{
	return &counts[hash_32(client, COUNT_BITS)];
}

bool ds_sharer_steers(enum rm_kind kind)
{
	return kind == RM_KIND_TSG || kind == RM_KIND_CTXSHARE || kind == RM_KIND_CHANNEL;
}

u32 ds_sharer_count(u32 client)
{
	return (u32)atomic_read(count_of(client));
}

bool ds_sharer_shares(const struct ds_process *process)
{
	return atomic_read(&process->groups);
}

static bool is_of(const struct sharer *sharer, u32 client, const struct ds_process *process)
{
	return sharer->client == client && sharer->process == process;
}

/* Under the lock of its bucket. */
static struct sharer *find_sharer(u32 client, const struct ds_process *process, const struct ds_process *host)
{
	struct sharer *sharer;

	hlist_for_each_entry(sharer, &buckets[bucket_of(client)].sharers, link)
		if (is_of(sharer, client, process) && sharer->host == host)
			return sharer;
	return NULL;
}

/* Under the lock of its bucket. */
static unsigned int objects_of(u32 client, const struct ds_process *process)
{
	const struct sharer *sharer;
	unsigned int count = 0;

	hlist_for_each_entry(sharer, &buckets[bucket_of(client)].sharers, link)
		if (is_of(sharer, client, process))
			count += sharer->count;
	return count;
}

/* Under the lock of its bucket. */
static struct object *find_asked(struct sharer *sharer)
{
	struct object *object;

	list_for_each_entry(object, &sharer->objects, link)
		if (!object->handle)
			return object;
	return NULL;
}

static int ask(u32 client, struct ds_process *process, struct ds_process *host, bool sure)
{
	struct sharer *spare = kzalloc(sizeof(*spare), GFP_KERNEL_ACCOUNT), *sharer;
	struct object *object = kzalloc(sizeof(*object), GFP_KERNEL_ACCOUNT), *asked;
	unsigned int bucket = bucket_of(client);
	int err = 0;

	if (!spare || !object) {
		kfree(spare);
		kfree(object);
		return -ENOMEM;
	}
	spin_lock(&buckets[bucket].lock);
	sharer = find_sharer(client, process, host);
	asked = sharer ? find_asked(sharer) : NULL;
	if (!asked && objects_of(client, process) >= OBJECTS_MOST) {
		err = -ENOSPC;
		goto unlock;
	}
	if (!sharer) {
		sharer = spare;
		spare = NULL;
		INIT_LIST_HEAD(&sharer->objects);
		sharer->serial = ++buckets[bucket].serial;
		sharer->client = client;
		sharer->process = ds_process_hold(process);
		sharer->host = ds_process_hold(host);
		hlist_add_head(&sharer->link, &buckets[bucket].sharers);
		atomic_inc(count_of(client));
	}
	if (!asked) {
		asked = object;
		object = NULL;
		list_add(&asked->link, &sharer->objects);
		sharer->count++;
	}
	asked->sure |= sure;
unlock:
	spin_unlock(&buckets[bucket].lock);
	kfree(spare);
	kfree(object);
	return err;
}

int ds_sharer_new(u32 client, struct ds_process *process, struct ds_process *host)
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
	struct sharer *sharer;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry(sharer, &buckets[bucket].sharers, link) {
		if (sharer->client != client || sharer->serial >= *serial)
			continue;
		*serial = sharer->serial;
		host = ds_process_hold(sharer->host);
		if (!sure)
			break;
		*sure = false;
		list_for_each_entry(object, &sharer->objects, link)
			*sure |= object->group;
		break;
	}
	spin_unlock(&buckets[bucket].lock);
	return host;
}

int ds_sharer_copy(u32 client, struct ds_process *process, u32 from)
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

bool ds_sharer_any(u32 client, bool (*is_meant)(struct ds_process *host))
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
static void take_out(struct sharer *sharer, struct object *object)
{
	list_del(&object->link);
	sharer->count--;
	if (object->group) {
		atomic_dec(&sharer->host->groups);
		atomic_dec(&sharer->process->groups);
	}
	kfree(object);
}

/* Under the lock of its bucket: one without objects goes to `empty`. */
static void clear_away(struct sharer *sharer, struct hlist_head *empty)
{
	if (!list_empty(&sharer->objects))
		return;
	hlist_del(&sharer->link);
	hlist_add_head(&sharer->link, empty);
}

static void free_all(struct hlist_head *sharers)
{
	struct object *object, *after;
	struct hlist_node *next;
	struct sharer *sharer;

	hlist_for_each_entry_safe(sharer, next, sharers, link) {
		list_for_each_entry_safe(object, after, &sharer->objects, link)
			take_out(sharer, object);
		ds_process_put(sharer->host);
		ds_process_put(sharer->process);
		kfree(sharer);
	}
}

void ds_sharer_settle(u32 client, struct ds_process *process, u32 handle, bool group)
{
	unsigned int bucket = bucket_of(client);
	HLIST_HEAD(empty);
	struct object *object;
	struct hlist_node *next;
	struct sharer *sharer;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry_safe(sharer, next, &buckets[bucket].sharers, link) {
		object = is_of(sharer, client, process) ? find_asked(sharer) : NULL;
		if (!object)
			continue;
		if (handle) {
			object->handle = handle;
			object->group = group && object->sure;
			atomic_add(object->group, &sharer->host->groups);
			atomic_add(object->group, &sharer->process->groups);
		} else {
			take_out(sharer, object);
			clear_away(sharer, &empty);
		}
	}
	spin_unlock(&buckets[bucket].lock);
	free_all(&empty);
}

void ds_sharer_gone(u32 client, const struct ds_process *process, u32 handle)
{
	unsigned int bucket = bucket_of(client);
	struct object *object, *after;
	HLIST_HEAD(empty);
	struct hlist_node *next;
	struct sharer *sharer;

	spin_lock(&buckets[bucket].lock);
	hlist_for_each_entry_safe(sharer, next, &buckets[bucket].sharers, link) {
		if (!is_of(sharer, client, process))
			continue;
		list_for_each_entry_safe(object, after, &sharer->objects, link)
			if (object->handle == handle)
				take_out(sharer, object);
		clear_away(sharer, &empty);
	}
	spin_unlock(&buckets[bucket].lock);
	free_all(&empty);
}

void ds_sharer_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(buckets); i++)
		free_all(&buckets[i].sharers);
}
