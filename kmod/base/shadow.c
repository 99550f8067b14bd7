// SPDX-License-Identifier: GPL-2.0-only
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "shadow.h"

#define SHADOW_BITS 8

/* Raw: taken in kprobe handlers, which may not sleep on any kernel. */
static struct shadow_bucket {
	raw_spinlock_t lock;
	struct hlist_head shadows;
} buckets[1 << SHADOW_BITS] ____cacheline_aligned;

static atomic_t in_force;
static struct kmem_cache *cache;

static struct shadow_bucket *bucket_of(const struct task_struct *task)
{
	return &buckets[hash_ptr(task, SHADOW_BITS)];
}

struct ds_shadow *ds_shadow_alloc(void)
{
	struct ds_shadow *shadow = kmem_cache_alloc(cache, GFP_KERNEL);

	/* the two copies are not worth zeroing: their sizes say what is in them */
	if (shadow)
		memset(shadow, 0, offsetof(struct ds_shadow, block));
	return shadow;
}

void ds_shadow_free(struct ds_shadow *shadow)
{
	if (!shadow)
		return;
	if (shadow->params != shadow->own)
		kvfree(shadow->params);
	kmem_cache_free(cache, shadow);
}

int ds_shadow_read_params(struct ds_shadow *shadow, unsigned long user, u32 size)
{
	shadow->params = size <= sizeof(shadow->own) ? shadow->own : kvmalloc(size, GFP_KERNEL_ACCOUNT);
	if (!shadow->params)
		return -ENOMEM;
	shadow->user_params = user;
	shadow->params_size = size;
	if (copy_from_user(shadow->params, (const void __user *)user, size)) {
		shadow->unreadable = true;
		memset(shadow->params, 0, size);
	}
	return 0;
}

void ds_shadow_open(struct ds_shadow_head *head)
{
	struct shadow_bucket *bucket = bucket_of(current);
	unsigned long flags;

	head->task = current;
	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&head->link, &bucket->shadows);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	atomic_inc(&in_force);
}

void ds_shadow_close(struct ds_shadow_head *head)
{
	struct shadow_bucket *bucket = bucket_of(head->task);
	unsigned long flags;

	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_del_init(&head->link);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	atomic_dec(&in_force);
}

struct ds_shadow_head *ds_shadow_current(void)
{
	struct shadow_bucket *bucket = bucket_of(current);
	struct ds_shadow_head *head, *found = NULL;
	unsigned long flags;

	/* only this task adds or removes its own shadow, so an empty bucket stays empty of it */
	if (hlist_empty(&bucket->shadows))
		return NULL;
	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_for_each_entry(head, &bucket->shadows, link) {
		if (head->task == current) {
			found = head;
			break;
		}
	}
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	return found;
}

unsigned int ds_shadow_count(void)
{
	return atomic_read(&in_force);
}

pid_t ds_shadow_some_pid(char comm[TASK_COMM_LEN])
{
	struct shadow_bucket *bucket;
	struct ds_shadow_head *head;
	unsigned long flags;
	pid_t pid = 0;

	for (bucket = buckets; !pid && bucket < buckets + ARRAY_SIZE(buckets); bucket++) {
		raw_spin_lock_irqsave(&bucket->lock, flags);
		hlist_for_each_entry(head, &bucket->shadows, link) {
			/* a task with a shadow is inside the driver, so it is alive */
			pid = task_tgid_nr(head->task);
			strscpy(comm, head->task->comm, TASK_COMM_LEN);
			break;
		}
		raw_spin_unlock_irqrestore(&bucket->lock, flags);
	}
	return pid;
}

int ds_shadow_init(void)
{
	struct shadow_bucket *bucket;

	for (bucket = buckets; bucket < buckets + ARRAY_SIZE(buckets); bucket++)
		raw_spin_lock_init(&bucket->lock);
	/* from block[] on, memory is copied from and to user space */
	cache = kmem_cache_create_usercopy("detshare_shadow", sizeof(struct ds_shadow), 0, SLAB_ACCOUNT,
					   offsetof(struct ds_shadow, block),
					   sizeof(struct ds_shadow) - offsetof(struct ds_shadow, block),
					   NULL);
	return cache ? 0 : -ENOMEM;
}

void ds_shadow_exit(void)
{
	kmem_cache_destroy(cache);
}
