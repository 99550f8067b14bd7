// SPDX-License-Identifier: GPL-2.0-only
#include <linux/dma-buf.h>
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "client.h"
#include "denials.h"
#include "driver.h"
#include "dups.h"
#include "filter.h"
#include "memref.h"
#include "rm/decode.h"
#include "rmcall.h"

#define DUP_BITS 10

enum maker {
	UVM,
	DMABUF,
};

/* A duplicate: `nr` is its handle with UVM's device, or its place in a DMA buffer. */
struct dup {
	struct hlist_node link;
	struct dup *next;	/* in a chain of those taken out */
	enum maker maker;
	const void *owner;
	u32 nr;
	struct ds_memref *memref;
};

static struct hlist_head dups[1 << DUP_BITS];
static DEFINE_SPINLOCK(dups_lock);

/* All of one DMA buffer share a bucket. */
static struct hlist_head *bucket_of(enum maker maker, const void *owner, u32 nr)
{
	return &dups[hash_64((unsigned long)owner + (maker == UVM ? nr : 0), DUP_BITS)];
}

static u32 original(const struct ds_hook *hook, unsigned long a, unsigned long b, unsigned long c,
		    unsigned long d, unsigned long e)
{
	return ds_call_past(a, b, c, d, e, READ_ONCE(hook->past));
}

/* Takes what is at [first, first + count) out of a bucket and puts it before `chain`. Under dups_lock. */
static struct dup *take(struct hlist_head *bucket, enum maker maker, const void *owner, u32 first,
			u64 count, struct dup *chain)
{
	struct hlist_node *next;
	struct dup *dup;

	hlist_for_each_entry_safe(dup, next, bucket, link) {
		if (dup->maker != maker || dup->owner != owner || dup->nr < first || dup->nr - first >= count)
			continue;
		hlist_del(&dup->link);
		dup->next = chain;
		chain = dup;
	}
	return chain;
}

static struct dup *take_all(enum maker maker, const void *owner, u32 first, u64 count)
{
	struct dup *chain;

	spin_lock(&dups_lock);
	chain = take(bucket_of(maker, owner, first), maker, owner, first, count, NULL);
	spin_unlock(&dups_lock);
	return chain;
}

static void drop_all(struct dup *chain)
{
	struct dup *dup;

	while ((dup = chain)) {
		chain = dup->next;
		ds_memref_drop(dup->memref);
		kfree(dup);
	}
}

/* The driver has it. One that was there before is gone, though we did not see it go. */
static void land(struct dup *dup)
{
	struct hlist_head *bucket = bucket_of(dup->maker, dup->owner, dup->nr);
	struct dup *before;

	spin_lock(&dups_lock);
	before = take(bucket, dup->maker, dup->owner, dup->nr, 1, NULL);
	hlist_add_head(&dup->link, bucket);
	spin_unlock(&dups_lock);
	drop_all(before);
	ds_memref_landed(dup->memref);
}

/* Before the driver is called. NULL: nobody's memory; ERR_PTR(-ENOMEM). */
static struct dup *begin(enum maker maker, u32 client, u32 memory)
{
	struct ds_memref *memref = ds_memref_begin(client, memory);
	struct dup *dup;

	if (IS_ERR_OR_NULL(memref))
		return ERR_CAST(memref);
	dup = kzalloc(sizeof(*dup), GFP_KERNEL_ACCOUNT);
	if (!dup) {
		ds_memref_drop(memref);
		return ERR_PTR(-ENOMEM);
	}
	dup->maker = maker;
	dup->memref = memref;
	return dup;
}

/* ---- nvidia-uvm ------------------------------------------------------------ */

#define MAP_EXTERNAL_ALLOCATION 33	/* UVM's ioctl by which programs get here */

static enum rm_kind kind_of(u32 client_handle, u32 handle, bool *partial)
{
	enum rm_kind kind = RM_KIND_OTHER;
	struct ds_client *client;
	struct rm_object *object;

	*partial = false;
	down_read(&ds_clients_lock);
	client = ds_client_find(client_handle);
	if (client) {
		*partial = client->partial;
		mutex_lock(&client->tree);
		object = rm_tree_find(&client->rm, handle);
		if (object)
			kind = object->kind;
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return kind;
}

/*
 * The handle may have named something else when the driver looked it up. NV_OK: for a client that is known whole it did not; of one
 * that is older than this module the driver is asked.
 */
static u32 look_behind(const struct dup *dup, u32 client, u32 memory, bool partial)
{
	const struct rm_class *class = NULL;
	u32 nr;

	if (!ds_memref_odd(dup->memref))
		return NV_OK;
	if (!partial)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!ds_rm_class(client, memory, &nr))
		class = rm_abi_class(ds_abi_outer(), nr);
	return class ? ds_filter_dup(client, class->kind, DS_DENIED_UVM + MAP_EXTERNAL_ALLOCATION) : NV_OK;
}

u32 ds_dups_uvm_make(const struct ds_hook *hook, void *device, u32 client, u32 memory, u32 *handle,
		     void *info, unsigned long undo)
{
	struct dup *dup = NULL;
	bool partial;
	u32 status;

	if (undo && ds_enforcing())
		dup = begin(UVM, client, memory);
	if (IS_ERR(dup))
		return NV_ERR_NO_MEMORY;
	/* after begin(): from there on it is seen if the handle comes to name something else */
	status = ds_filter_dup(client, kind_of(client, memory, &partial), DS_DENIED_UVM + MAP_EXTERNAL_ALLOCATION);
	if (!status)
		status = original(hook, (unsigned long)device, client, memory, (unsigned long)handle,
				  (unsigned long)info);
	if (!dup)
		return status;
	if (!status) {
		status = look_behind(dup, client, memory, partial);
		if (status)
			ds_call_past((unsigned long)device, *handle, 0, 0, 0, undo);
	}
	if (status) {
		drop_all(dup);
		return status;
	}
	dup->owner = device;
	dup->nr = *handle;
	land(dup);
	return status;
}

u32 ds_dups_uvm_free(const struct ds_hook *hook, void *device, u32 handle)
{
	/* out first: once the driver has freed it, the handle may be another's */
	struct dup *dup = take_all(UVM, device, handle, 1);
	u32 status = original(hook, (unsigned long)device, handle, 0, 0, 0);

	drop_all(dup);
	return status;
}

/* ---- DMA buffers ------------------------------------------------------------ */

/* A chain with a member for each object that the driver is about to duplicate. ERR_PTR(-ENOMEM). */
static struct dup *begin_export(const struct rm_abi *abi, const void *params, void *buffer)
{
	struct rm_export export;
	struct dup *chain = NULL, *dup;
	u32 i;

	if (rm_decode_dmabuf(abi, params, abi->dmabuf.len, &export))
		return NULL;
	for (i = 0; i < export.count; i++) {
		dup = begin(DMABUF, rm_get32(params, abi->dmabuf.hClient), rm_export_handle(&export, params, i));
		if (!dup)
			continue;
		if (IS_ERR(dup)) {
			drop_all(chain);
			return dup;
		}
		dup->owner = buffer;
		dup->nr = export.index + i;
		dup->next = chain;
		chain = dup;
	}
	return chain;
}

static bool limited(const struct dup *chain)
{
	for (; chain; chain = chain->next)
		if (ds_memref_limited(chain->memref))
			return true;
	return false;
}

u32 ds_dups_dmabuf_make(const struct ds_hook *hook, void *sp, void *buffer, const void *params, bool seen)
{
	struct dup *chain = NULL, *dup;
	u32 status;

	if (ds_enforcing())
		chain = begin_export(ds_abi(), params, buffer);
	if (IS_ERR(chain))
		return NV_ERR_NO_MEMORY;
	if (!seen && limited(chain)) {
		drop_all(chain);
		return NV_ERR_NOT_SUPPORTED;
	}
	status = original(hook, (unsigned long)sp, (unsigned long)buffer, (unsigned long)params, 0, 0);
	if (status || !seen) {
		drop_all(chain);
		return status;
	}
	while ((dup = chain)) {
		chain = dup->next;
		dup->next = NULL;
		land(dup);
	}
	return status;
}

void ds_dups_dmabuf_free(const struct ds_hook *hook, void *sp, u32 index, u32 count, void *buffer)
{
	/* out first: the buffer may be freed and another made in its place */
	struct dup *chain = take_all(DMABUF, buffer, index, count);

	original(hook, (unsigned long)sp, index, count, (unsigned long)buffer, 0);
	drop_all(chain);
}

void ds_dups_dmabuf_release(const struct ds_hook *hook, void *dma_buf)
{
	struct dup *chain = take_all(DMABUF, ((struct dma_buf *)dma_buf)->priv, 0, 1ULL << 32);

	original(hook, (unsigned long)dma_buf, 0, 0, 0, 0);
	drop_all(chain);
}

/* ---- the end ------------------------------------------------------------------ */

static void forget(enum maker maker)
{
	struct hlist_node *next;
	struct dup *dup, *chain = NULL;
	unsigned int i;

	spin_lock(&dups_lock);
	for (i = 0; i < ARRAY_SIZE(dups); i++) {
		hlist_for_each_entry_safe(dup, next, &dups[i], link) {
			if (dup->maker != maker)
				continue;
			hlist_del(&dup->link);
			dup->next = chain;
			chain = dup;
		}
	}
	spin_unlock(&dups_lock);
	drop_all(chain);
}

void ds_dups_forget_uvm(void)
{
	forget(UVM);
}

void ds_dups_forget(void)
{
	forget(UVM);
	forget(DMABUF);
}
