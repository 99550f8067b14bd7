// SPDX-License-Identifier: GPL-2.0-only
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "frame.h"

#define FRAME_BITS 8

/* Raw: taken in kprobe handlers, which may not sleep on any kernel. */
static struct frame_bucket {
	raw_spinlock_t lock;
	struct hlist_head frames;
} buckets[1 << FRAME_BITS] ____cacheline_aligned;

static atomic_t in_force;
static struct kmem_cache *cache;

static struct frame_bucket *bucket_of(const struct task_struct *task)
{
	return &buckets[hash_ptr(task, FRAME_BITS)];
}

struct ds_frame *ds_frame_alloc(void)
{
	struct ds_frame *frame = kmem_cache_alloc(cache, GFP_KERNEL);

	/* the two copies are not worth zeroing: their sizes say what is in them */
	if (frame)
		memset(frame, 0, offsetof(struct ds_frame, block));
	return frame;
}

void ds_frame_free(struct ds_frame *frame)
{
	if (!frame)
		return;
	if (frame->params != frame->own)
		kvfree(frame->params);
	kmem_cache_free(cache, frame);
}

int ds_frame_read_params(struct ds_frame *frame, unsigned long user, u32 size)
{
	frame->params = size <= sizeof(frame->own) ? frame->own : kvmalloc(size, GFP_KERNEL_ACCOUNT);
	if (!frame->params)
		return -ENOMEM;
	frame->user_params = user;
	frame->params_size = size;
	if (copy_from_user(frame->params, (const void __user *)user, size)) {
		frame->unreadable = true;
		memset(frame->params, 0, size);
	}
	return 0;
}

void ds_frame_open(struct ds_frame_head *head)
{
	struct frame_bucket *bucket = bucket_of(current);
	unsigned long flags;

	head->task = current;
	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_add_head(&head->link, &bucket->frames);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	atomic_inc(&in_force);
}

void ds_frame_close(struct ds_frame_head *head)
{
	struct frame_bucket *bucket = bucket_of(head->task);
	unsigned long flags;

	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_del_init(&head->link);
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	atomic_dec(&in_force);
}

struct ds_frame_head *ds_frame_current(void)
{
	struct frame_bucket *bucket = bucket_of(current);
	struct ds_frame_head *head, *found = NULL;
	unsigned long flags;

	/* only this task adds or removes its own frame, so an empty bucket stays empty of it */
	if (hlist_empty(&bucket->frames))
		return NULL;
	raw_spin_lock_irqsave(&bucket->lock, flags);
	hlist_for_each_entry(head, &bucket->frames, link) {
		if (head->task == current) {
			found = head;
			break;
		}
	}
	raw_spin_unlock_irqrestore(&bucket->lock, flags);
	return found;
}

unsigned int ds_frame_count(void)
{
	return atomic_read(&in_force);
}

pid_t ds_frame_some_pid(char comm[TASK_COMM_LEN])
{
	struct frame_bucket *bucket;
	struct ds_frame_head *head;
	unsigned long flags;
	pid_t pid = 0;

	for (bucket = buckets; !pid && bucket < buckets + ARRAY_SIZE(buckets); bucket++) {
		raw_spin_lock_irqsave(&bucket->lock, flags);
		hlist_for_each_entry(head, &bucket->frames, link) {
			/* a task with a frame is inside the driver, so it is alive */
			pid = task_tgid_nr(head->task);
			strscpy(comm, head->task->comm, TASK_COMM_LEN);
			break;
		}
		raw_spin_unlock_irqrestore(&bucket->lock, flags);
	}
	return pid;
}

int ds_frame_init(void)
{
	struct frame_bucket *bucket;

	for (bucket = buckets; bucket < buckets + ARRAY_SIZE(buckets); bucket++)
		raw_spin_lock_init(&bucket->lock);
	/* from block[] on, memory is copied from and to user space */
	cache = kmem_cache_create_usercopy("detshare_frame", sizeof(struct ds_frame), 0, SLAB_ACCOUNT,
					   offsetof(struct ds_frame, block),
					   sizeof(struct ds_frame) - offsetof(struct ds_frame, block),
					   NULL);
	return cache ? 0 : -ENOMEM;
}

void ds_frame_exit(void)
{
	kmem_cache_destroy(cache);
}
