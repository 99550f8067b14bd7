// SPDX-License-Identifier: GPL-2.0-only
#include <linux/file.h>
#include <linux/hash.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "compat.h"
#include "driver.h"
#include "userd.h"

/* Nvc86fControl */
#define USERD_GP_GET 0x88
#define USERD_GP_PUT 0x8c
#define USERD_BITS 8

/* A file that shows memory of a client, once mapped. */
struct view {
	struct hlist_node link;		/* by file */
	struct list_head in_client;	/* by client and memory */
	const struct file *file;	/* a name */
	u32 client, memory;
	u64 offset, length;
};

struct channel {
	struct list_head link;
	u32 client, gpu, handle;
	u32 memory;
	u64 offset;
	/* the reader's own; under reading */
	unsigned long at;	/* where it was last seen, 0: nowhere yet */
	u32 put;
	bool seen;
};

static struct hlist_head views[1 << USERD_BITS];
static struct list_head clients[1 << USERD_BITS];	/* views by client and memory */
static struct list_head channels[1 << USERD_BITS];	/* by client */
static DEFINE_SPINLOCK(userd_lock);			/* guards the three, leaf */
static DEFINE_MUTEX(reading);				/* one look at a time; outside userd_lock and mmap_lock */
static atomic_t userd_count;

static struct hlist_head *views_of(const struct file *file)
{
	return &views[hash_ptr(file, USERD_BITS)];
}

static struct list_head *views_on(u32 client, u32 memory)
{
	return &clients[hash_32(client ^ hash_32(memory, 32), USERD_BITS)];
}

static struct list_head *channels_of(u32 client)
{
	return &channels[hash_32(client, USERD_BITS)];
}

/* ---- what is remembered ------------------------------------------------------ */

void ds_userd_remember(const struct file *file, u32 client, u32 memory, u64 offset, u64 length)
{
	struct view *view = kzalloc(sizeof(*view), GFP_KERNEL_ACCOUNT), *other;

	if (!view)
		return;	/* it cannot be told then what the channel does */
	view->file = file;
	view->client = client;
	view->memory = memory;
	view->offset = offset;
	view->length = length;
	spin_lock(&userd_lock);
	/* a file is armed once */
	hlist_for_each_entry(other, views_of(file), link)
		if (other->file == file)
			break;
	if (!other) {
		hlist_add_head(&view->link, views_of(file));
		list_add(&view->in_client, views_on(view->client, view->memory));
		atomic_inc(&userd_count);
	}
	spin_unlock(&userd_lock);
	if (other)
		kfree(view);
}

static void forget_view(struct view *view)
{
	hlist_del(&view->link);
	list_del(&view->in_client);
	atomic_dec(&userd_count);
	kfree(view);
}

void ds_userd_release(const struct file *file)
{
	struct hlist_node *next;
	struct view *view;

	spin_lock(&userd_lock);
	hlist_for_each_entry_safe(view, next, views_of(file), link)
		if (view->file == file)
			forget_view(view);
	spin_unlock(&userd_lock);
}

void ds_userd_channel_new(struct ds_client *client, u32 gpu, u32 channel, const struct rm_alloc *alloc)
{
	struct channel *made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);

	if (!made)
		return;
	made->client = client->rm.handle;
	made->gpu = gpu;
	made->handle = channel;
	/* without memory of the program's the driver takes its own, which is mapped by the channel's handle */
	made->memory = alloc->userd_memory ?: channel;
	made->offset = alloc->userd_memory ? alloc->userd_offset : 0;
	spin_lock(&userd_lock);
	list_add(&made->link, channels_of(made->client));
	spin_unlock(&userd_lock);
	atomic_inc(&userd_count);
}

static void forget_channel(struct channel *channel)
{
	list_del(&channel->link);
	atomic_dec(&userd_count);
	kfree(channel);
}

/* Under client->tree. */
static void object_gone(struct ds_client *client, struct rm_object *object)
{
	struct channel *channel, *next;

	if (object->kind != RM_KIND_CHANNEL)
		return;
	spin_lock(&userd_lock);
	list_for_each_entry_safe(channel, next, channels_of(client->rm.handle), link)
		if (channel->client == client->rm.handle && channel->handle == object->handle)
			forget_channel(channel);
	spin_unlock(&userd_lock);
}

/* ---- reading ----------------------------------------------------------------- */

/* One channel to be read, copied so that no lock is held meanwhile. */
struct target {
	struct channel *channel;	/* a name, to be found again */
	u32 handle;
	unsigned long at;
	const struct file *file;	/* a name */
	u64 skip;			/* from the beginning of the file's mapping to USERD */
	u32 words[2];			/* GP_GET, GP_PUT */
	bool read;
};

#define TARGETS_MAX 64
/* Mappings that one look goes through, under a spinlock: of who has more, nothing is told. */
#define STEPS_MAX 16384

/* Under userd_lock. */
static bool seen_by(const struct channel *channel, struct target *target, unsigned int *steps)
{
	struct view *view;

	list_for_each_entry(view, views_on(channel->client, channel->memory), in_client) {
		if (++*steps > STEPS_MAX)
			return false;
		if (view->client != channel->client || view->memory != channel->memory || channel->offset < view->offset ||
		    channel->offset - view->offset + USERD_GP_PUT + sizeof(u32) > view->length)
			continue;
		target->file = view->file;
		target->skip = channel->offset - (view->offset & PAGE_MASK);
		return true;
	}
	return false;
}

static unsigned int collect(u32 client, u32 gpu, struct target *targets, unsigned int *known)
{
	struct channel *channel;
	unsigned int count = 0, steps = 0;

	*known = 0;
	spin_lock(&userd_lock);
	list_for_each_entry(channel, channels_of(client), link) {
		if (channel->client != client || channel->gpu != gpu)
			continue;
		++*known;
		if (count == TARGETS_MAX || !seen_by(channel, &targets[count], &steps))
			continue;
		targets[count].channel = channel;
		targets[count].handle = channel->handle;
		targets[count].at = channel->at;
		targets[count].read = false;
		count++;
	}
	spin_unlock(&userd_lock);
	return count;
}

static bool shows(struct mm_struct *mm, const struct target *target)
{
	struct vm_area_struct *vma = target->at ? find_vma(mm, target->at) : NULL;

	return vma && target->at >= vma->vm_start && target->at + USERD_GP_PUT + sizeof(u32) <= vma->vm_end &&
	       vma->vm_file == target->file && !(target->at & 3) &&
	       target->at - vma->vm_start + ((u64)vma->vm_pgoff << PAGE_SHIFT) == target->skip;
}

/* Comparisons of one look for what is mapped nowhere: looks at others wait for it. Programs with ten thousand mappings stay below. */
#define COMPARED_MAX (1U << 17)

/* What it costs, in these, to look one up. */
#define LOOKED_UP 8

/* Where each is mapped, for those that are not where they were. Under mmap_lock. */
static void find_mappings(struct mm_struct *mm, struct target *targets, unsigned int count)
{
	unsigned int i, lost = 0, compared = 0;
	struct vm_area_struct *vma;
	unsigned long at = 0;

	for (i = 0; i < count; i++) {
		if (!shows(mm, &targets[i])) {
			targets[i].at = 0;
			lost++;
		}
	}
	while (lost && compared < COMPARED_MAX && (vma = find_vma(mm, at))) {
		at = vma->vm_end;
		compared++;
		if (!vma->vm_file || vma->vm_pgoff)
			continue;
		compared += count;
		for (i = 0; i < count; i++) {
			if (targets[i].at || vma->vm_file != targets[i].file)
				continue;
			compared += LOOKED_UP;
			targets[i].at = vma->vm_start + targets[i].skip;
			if (!shows(mm, &targets[i]))
				targets[i].at = 0;
			else
				lost--;
		}
	}
}

/* 595's nvidia_vma_access() uses a pointer before it has set it. */
static bool access_works(void)
{
	return strncmp(ds_abi_outer()->version, "595", 3);
}

/* The two words, which lie in one page, without waiting for anything. Under mmap_lock. */
static bool read_words(struct mm_struct *mm, struct target *target)
{
	unsigned long at = target->at + USERD_GP_GET;
	struct vm_area_struct *vma;
	struct page *page;
	const u8 *mapped;

	if (offset_in_page(at) > PAGE_SIZE - sizeof(target->words))
		return false;
	if (ds_get_page(mm, at, &page) == 1) {
		mapped = kmap_local_page(page);
		memcpy(target->words, mapped + offset_in_page(at), sizeof(target->words));
		kunmap_local(mapped);
		put_page(page);
		return true;
	}
	/* memory of the GPU: the driver reads it as for a debugger */
	vma = find_vma(mm, at);
	return vma && vma->vm_start <= at && ds_driver_backs(vma) && vma->vm_ops->access && access_works() &&
	       vma->vm_ops->access(vma, at, target->words, sizeof(target->words), 0) == sizeof(target->words);
}

/* Held; NULL: it has none any more. A thread that has ended, the first one too, has left it to the others. */
static struct mm_struct *memory_of(const struct ds_process *process)
{
	struct task_struct *leader, *thread;
	struct mm_struct *mm = NULL;

	rcu_read_lock();
	leader = pid_task(process->pid, PIDTYPE_TGID);
	if (leader) {
		for_each_thread(leader, thread) {
			mm = get_task_mm(thread);
			if (mm)
				break;
		}
	}
	rcu_read_unlock();
	return mm;
}

static void read_all(const struct ds_process *process, struct target *targets, unsigned int count)
{
	struct mm_struct *mm = memory_of(process);
	unsigned int i;

	if (!mm)
		return;
	if (mmap_read_trylock(mm)) {
		find_mappings(mm, targets, count);
		for (i = 0; i < count; i++)
			targets[i].read = targets[i].at && read_words(mm, &targets[i]);
		mmap_read_unlock(mm);
	}
	/* not the last one here: that would take the program apart */
	mmput_async(mm);
}

static void settle(u32 client, const struct target *target, bool keep, struct ds_userd_scan *scan)
{
	struct channel *channel;

	scan->told++;
	scan->pending += target->words[0] != target->words[1];
	spin_lock(&userd_lock);
	list_for_each_entry(channel, channels_of(client), link) {
		if (channel != target->channel || channel->handle != target->handle)
			continue;
		channel->at = target->at;
		if (channel->seen && channel->put != target->words[1])
			scan->moved = DS_TOUCH_YES;
		else if (channel->seen && scan->moved == DS_TOUCH_UNKNOWN)
			scan->moved = DS_TOUCH_NO;
		if (keep) {
			channel->put = target->words[1];
			channel->seen = true;
		}
		break;
	}
	spin_unlock(&userd_lock);
}

void ds_userd_scan(const struct ds_process *process, u32 client, u32 gpu, bool keep, struct ds_userd_scan *scan)
{
	static struct target targets[TARGETS_MAX];
	unsigned int count, i;

	*scan = (struct ds_userd_scan){ .moved = DS_TOUCH_UNKNOWN };
	mutex_lock(&reading);
	count = collect(client, gpu, targets, &scan->channels);
	if (count)
		read_all(process, targets, count);
	for (i = 0; i < count; i++)
		if (targets[i].read)
			settle(client, &targets[i], keep, scan);
	mutex_unlock(&reading);
}

bool ds_userd_lives(const struct ds_process *process, u32 client, u32 gpu)
{
	struct ds_userd_scan scan;

	ds_userd_scan(process, client, gpu, true, &scan);
	return scan.pending || scan.moved == DS_TOUCH_YES;
}

unsigned int ds_userd_count(void)
{
	return atomic_read(&userd_count);
}

int ds_userd_init(void)
{
	static const struct ds_client_observer observer = { .object_gone = object_gone };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(clients); i++) {
		INIT_LIST_HEAD(&clients[i]);
		INIT_LIST_HEAD(&channels[i]);
	}
	ds_client_observe(DS_OBSERVER_USERD, &observer);
	return 0;
}

void ds_userd_exit(void)
{
	struct channel *channel, *next;
	struct hlist_node *after;
	struct view *view;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(views); i++) {
		hlist_for_each_entry_safe(view, after, &views[i], link)
			forget_view(view);
		list_for_each_entry_safe(channel, next, &channels[i], link)
			forget_channel(channel);
	}
}
