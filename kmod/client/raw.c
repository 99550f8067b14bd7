// SPDX-License-Identifier: GPL-2.0-only
#include <linux/hash.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "raw.h"

#define RAW_BITS 6

struct raw {
	struct hlist_node link;
	struct rcu_head rcu;
	u32 client, object;
};

static struct hlist_head raws[1 << RAW_BITS];
static DEFINE_SPINLOCK(raws_lock);

static struct hlist_head *bucket_of(u32 client, u32 object)
{
	return &raws[hash_32(client ^ object, RAW_BITS)];
}

/* Under RCU or raws_lock. */
static struct raw *find_raw(u32 client, u32 object)
{
	struct raw *raw;

	hlist_for_each_entry_rcu(raw, bucket_of(client, object), link, lockdep_is_held(&raws_lock))
		if (raw->client == client && raw->object == object)
			return raw;
	return NULL;
}

bool ds_raw_is(u32 client, u32 object)
{
	bool found;

	rcu_read_lock();
	found = find_raw(client, object);
	rcu_read_unlock();
	return found;
}

int ds_raw_new(u32 client, u32 object)
{
	struct raw *raw = kzalloc(sizeof(*raw), GFP_KERNEL_ACCOUNT);

	if (!raw)
		return -ENOMEM;
	raw->client = client;
	raw->object = object;
	spin_lock(&raws_lock);
	if (find_raw(client, object)) {
		kfree(raw);
		raw = NULL;
	} else {
		hlist_add_head_rcu(&raw->link, bucket_of(client, object));
	}
	spin_unlock(&raws_lock);
	return 0;
}

void ds_raw_gone(u32 client, u32 object)
{
	struct raw *raw;

	spin_lock(&raws_lock);
	raw = find_raw(client, object);
	if (raw)
		hlist_del_rcu(&raw->link);
	spin_unlock(&raws_lock);
	if (raw)
		kfree_rcu(raw, rcu);
}

void ds_raw_exit(void)
{
	struct hlist_node *next;
	struct raw *raw;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(raws); i++)
		hlist_for_each_entry_safe(raw, next, &raws[i], link)
			kfree(raw);
	/* what kfree_rcu() was given needs no code of this module */
}
