// SPDX-License-Identifier: GPL-2.0-only
#include <linux/jhash.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "client.h"
#include "raw.h"

#define RAW_BITS 12
/* Of one client: each control of anybody walks a bucket. CUDA was seen to make one on each GPU. */
#define RAWS_MOST 64

struct raw {
	struct hlist_node link;
	struct rcu_head rcu;
	u32 client, object;
};

static struct hlist_head raws[1 << RAW_BITS];
static DEFINE_SPINLOCK(raws_lock);	/* of client->raws, too */
static u32 seed;	/* programs choose handles: nobody knows which share a bucket */

static struct hlist_head *bucket_of(u32 client, u32 object)
{
	return &raws[jhash_2words(client, object, seed) >> (32 - RAW_BITS)];
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

int ds_raw_new(struct ds_client *client, u32 object, bool exists)
{
	struct raw *raw = kzalloc(sizeof(*raw), GFP_KERNEL_ACCOUNT), *noted;
	int err = 0;

	if (!raw)
		return -ENOMEM;
	raw->client = client->rm.handle;
	raw->object = object;
	spin_lock(&raws_lock);
	noted = find_raw(raw->client, object);
	if (!noted && !exists && client->raws >= RAWS_MOST) {
		err = -ENOSPC;
	} else if (!noted) {
		hlist_add_head_rcu(&raw->link, bucket_of(raw->client, object));
		client->raws++;
		raw = NULL;
	}
	spin_unlock(&raws_lock);
	kfree(raw);
	return err;
}

void ds_raw_gone(struct ds_client *client, u32 object)
{
	struct raw *raw;

	spin_lock(&raws_lock);
	raw = find_raw(client->rm.handle, object);
	if (raw) {
		hlist_del_rcu(&raw->link);
		client->raws--;
	}
	spin_unlock(&raws_lock);
	if (raw)
		kfree_rcu(raw, rcu);
}

int ds_raw_init(void)
{
	seed = get_random_u32();
	return 0;
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
