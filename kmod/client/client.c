// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "client.h"
#include "driver.h"
#include "rows.h"
#include "sharer.h"
#include "memref.h"
#include "raw.h"

#define FILE_BITS 8
#define HANDLE_BITS 10

DECLARE_RWSEM(ds_clients_lock);
LIST_HEAD(ds_clients);
static struct hlist_head by_handle[1 << HANDLE_BITS];	/* the newest first; ds_clients_lock */

static struct hlist_head files[1 << FILE_BITS];
static DEFINE_SPINLOCK(files_lock);
static atomic_t file_count;
static atomic64_t vctx_ids;

static const struct ds_client_observer *observers[DS_OBSERVERS];

void ds_client_observe(enum ds_client_observers place, const struct ds_client_observer *observer)
{
	observers[place] = observer;
}

static struct hlist_head *bucket_of(const struct file *file)
{
	return &files[hash_ptr(file, FILE_BITS)];
}

static struct ds_file *find_file(const struct file *file)
{
	struct ds_file *known;

	hlist_for_each_entry(known, bucket_of(file), link)
		if (known->file == file)
			return known;
	return NULL;
}

struct ds_file *ds_file_hold(struct ds_file *file)
{
	refcount_inc(&file->refs);
	return file;
}

void ds_file_put(struct ds_file *file)
{
	if (!file || !refcount_dec_and_test(&file->refs))
		return;
	atomic_dec(&file_count);
	kfree(file);
}

static struct ds_file *hold_known(const struct file *file)
{
	struct ds_file *known;

	spin_lock(&files_lock);
	known = find_file(file);
	if (known)
		refcount_inc(&known->refs);
	spin_unlock(&files_lock);
	return known;
}

struct ds_file *ds_file_get(const struct file *file)
{
	struct ds_file *known = hold_known(file), *made;

	if (known)
		return known;
	made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);
	if (!made)
		return NULL;
	made->file = file;
	refcount_set(&made->refs, 2);
	mutex_init(&made->order);
	INIT_LIST_HEAD(&made->clients);
	ds_exports_init(&made->exports);
	spin_lock(&files_lock);
	known = find_file(file);
	if (known)
		refcount_inc(&known->refs);
	else
		hlist_add_head(&made->link, bucket_of(file));
	spin_unlock(&files_lock);
	if (known) {
		kfree(made);
		return known;
	}
	atomic_inc(&file_count);
	return made;
}

static void empty_file(struct ds_file *file)
{
	struct ds_client *client, *next;

	mutex_lock(&file->order);
	list_for_each_entry_safe(client, next, &file->clients, in_file)
		ds_client_remove(client);
	ds_file_put(file->bound);
	file->bound = NULL;
	mutex_unlock(&file->order);
	ds_exports_close(&file->exports);
	ds_file_put(file);
}

void ds_file_release(const struct file *file)
{
	struct ds_file *known;

	spin_lock(&files_lock);
	known = find_file(file);
	if (known)
		hlist_del(&known->link);
	spin_unlock(&files_lock);
	if (known)
		empty_file(known);
}

struct ds_client *ds_client_of_file(struct ds_file *file, u32 handle)
{
	struct ds_client *client;

	list_for_each_entry(client, &file->clients, in_file)
		if (client->rm.handle == handle)
			return client;
	return NULL;
}

struct ds_client *ds_client_find(u32 handle)
{
	struct ds_client *client;

	/* the newest: the driver gives a handle again as soon as a client is gone there, which may be before it is gone here */
	hlist_for_each_entry(client, &by_handle[hash_32(handle, HANDLE_BITS)], by_handle)
		if (client->rm.handle == handle)
			return client;
	return NULL;
}

struct ds_event_vctx ds_vctx_event(const struct ds_vctx *vctx)
{
	return (struct ds_event_vctx){
		.id = vctx->id,
		.gpu = vctx->gpu,
		.client = vctx->client->rm.handle,
		.process = vctx->client->process,
	};
}

static void tell_vctx(u8 cmd, const struct ds_vctx *vctx)
{
	const struct ds_event_vctx event = ds_vctx_event(vctx);

	ds_event_vctx(cmd, &event);
}

void ds_client_tell_tsg(u8 cmd, struct ds_client *client, const struct rm_object *tsg)
{
	const struct ds_vctx *vctx = ds_vctx_find(client, tsg->gpu);
	struct ds_event_vctx event;

	if (!vctx)
		return;
	event = ds_vctx_event(vctx);
	ds_event_tsg(cmd, &event, tsg->handle, tsg->engine);
}

static void object_dies(struct rm_client *rm, struct rm_object *object)
{
	struct ds_client *client = container_of(rm, struct ds_client, rm);
	unsigned int i;

	if (!list_empty(&client->memrefs))
		ds_memrefs_keep(client, object);
	for (i = 0; i < DS_OBSERVERS; i++)
		observers[i]->object_gone(client, object);
	if (object->kind == RM_KIND_TSG)
		ds_client_tell_tsg(DETSHARE_CMD_TSG_GONE, client, object);
	if (object->flags & RM_OBJECT_DUP && ds_sharer_steers(object->kind))
		ds_sharer_gone(rm->handle, client->process, object->handle);
	if (object->kind == RM_KIND_BINAPI)
		ds_raw_gone(client, object->handle);
}

struct ds_client *ds_client_add(struct ds_file *file, u32 handle, bool partial)
{
	struct ds_client *client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	struct ds_vctx *vctx;
	int err = -ENOMEM;

	if (!client)
		return ERR_PTR(-ENOMEM);
	client->process = ds_process_current();
	if (!client->process)
		goto free;
	client->who = ds_bound_who(client->process);
	err = ds_bound_take(&client->bound, DS_BOUND_CLIENTS, RM_GPU_NONE, client->who, partial) ? 0 : -EDQUOT;
	if (err)
		goto put;
	err = rm_client_init(&client->rm, ds_abi_outer(), handle, object_dies);
	if (err)
		goto drop;
	mutex_init(&client->tree);
	INIT_LIST_HEAD(&client->vctxs);
	INIT_LIST_HEAD(&client->memrefs);
	client->file = file;
	client->partial = partial;
	vctx = ds_vctx_get(client, RM_GPU_NONE);
	if (IS_ERR(vctx)) {
		err = PTR_ERR(vctx);
		goto destroy;
	}
	down_write(&ds_clients_lock);
	list_add_tail(&client->link, &ds_clients);
	hlist_add_head(&client->by_handle, &by_handle[hash_32(handle, HANDLE_BITS)]);
	list_add_tail(&client->in_file, &file->clients);
	up_write(&ds_clients_lock);
	return client;
destroy:
	rm_client_destroy(&client->rm);
drop:
	ds_bound_drop(&client->bound);
put:
	ds_process_put(client->process);
free:
	kfree(client);
	return ERR_PTR(err);
}

static void free_vctx(struct ds_vctx *vctx)
{
	unsigned int i;

	for (i = 0; i < DS_OBSERVERS; i++)
		if (observers[i]->vctx_gone)
			observers[i]->vctx_gone(vctx);
	ds_payer_remove(&vctx->payer);
	ds_residual_put(vctx->residual);
	kfree(vctx);
}

void ds_client_remove(struct ds_client *client)
{
	struct ds_vctx *vctx, *next;
	u32 handle = client->rm.handle;

	down_write(&ds_clients_lock);
	ds_row_del(&client->link);
	hlist_del(&client->by_handle);
	list_del(&client->in_file);
	up_write(&ds_clients_lock);
	/* nobody finds it any more, and who had found it held the lock */
	mutex_lock(&client->tree);
	rm_client_destroy(&client->rm);
	client->rm.handle = handle;	/* what is told below is told of it */
	mutex_unlock(&client->tree);
	/* after whoever had found a memref of it */
	down_write(&ds_clients_lock);
	ds_memrefs_orphan(client);
	up_write(&ds_clients_lock);
	list_for_each_entry(vctx, &client->vctxs, link)
		if (ds_vctx_shown(vctx))
			tell_vctx(DETSHARE_CMD_VCTX_GONE, vctx);
	list_for_each_entry_safe(vctx, next, &client->vctxs, link)
		free_vctx(vctx);
	ds_bound_drop(&client->bound);
	ds_process_put(client->process);
	kfree(client);
}

struct ds_vctx *ds_vctx_find(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx;

	list_for_each_entry(vctx, &client->vctxs, link)
		if (vctx->gpu == gpu)
			return vctx;
	return NULL;
}

struct ds_vctx *ds_vctx_get(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx;
	int err;

	mutex_lock(&client->tree);
	vctx = ds_vctx_find(client, gpu);
	mutex_unlock(&client->tree);
	if (vctx)
		return vctx;
	vctx = kzalloc(sizeof(*vctx), GFP_KERNEL_ACCOUNT);
	if (!vctx)
		return ERR_PTR(-ENOMEM);
	vctx->client = client;
	vctx->gpu = gpu;
	vctx->payer = (struct ds_payer){
		.lock = &client->tree,
		.process = client->process,
		.gpu = gpu,
	};
	vctx->residual = ds_residual_make(client->process, gpu);
	err = PTR_ERR_OR_ZERO(vctx->residual);
	if (!err) {
		err = ds_payer_add(&vctx->payer);
		if (err)
			ds_residual_put(vctx->residual);
	}
	if (err) {
		if (err == -ENOSPC)
			pr_warn_ratelimited("process %d refused: more than %d limits are meant for it\n",
					    ds_process_nr(client->process), RM_ACCOUNTS_MAX);
		kfree(vctx);
		return ERR_PTR(err);
	}
	mutex_lock(&client->tree);
	/* with its first GPU the client's first vCtx becomes that one, for whoever looks from outside */
	if (list_is_singular(&client->vctxs))
		vctx->id = list_first_entry(&client->vctxs, struct ds_vctx, link)->id;
	else
		vctx->id = atomic64_inc_return(&vctx_ids);
	client->rm.payer[gpu] = &vctx->payer.core;
	list_add_tail(&vctx->link, &client->vctxs);
	mutex_unlock(&client->tree);
	tell_vctx(DETSHARE_CMD_VCTX_NEW, vctx);
	return vctx;
}

int ds_vctx_lasting(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx = ds_vctx_get(client, gpu);

	if (IS_ERR(vctx))
		return PTR_ERR(vctx);
	vctx->lasts = true;
	return 0;
}

void ds_vctx_unused(struct ds_vctx *vctx)
{
	struct ds_client *client = vctx->client;

	if (vctx->device || vctx->lasts || vctx->gpu == RM_GPU_NONE)
		return;
	tell_vctx(DETSHARE_CMD_VCTX_GONE, vctx);
	mutex_lock(&client->tree);
	ds_row_del(&vctx->link);
	client->rm.payer[vctx->gpu] = NULL;
	mutex_unlock(&client->tree);
	free_vctx(vctx);
	/* the first one, which had become that of the GPU, is itself again */
	if (list_is_singular(&client->vctxs))
		tell_vctx(DETSHARE_CMD_VCTX_NEW, list_first_entry(&client->vctxs, struct ds_vctx, link));
}

bool ds_vctx_shown(const struct ds_vctx *vctx)
{
	return vctx->gpu != RM_GPU_NONE || list_is_singular(&vctx->client->vctxs);
}

u32 ds_client_first_gpu(struct ds_client *client)
{
	struct ds_vctx *vctx;

	list_for_each_entry(vctx, &client->vctxs, link)
		if (vctx->device)
			return vctx->gpu;
	return RM_GPU_NONE;
}

void ds_trees_lock(struct ds_client *a, struct ds_client *b)
{
	if (a > b)
		swap(a, b);
	mutex_lock(&a->tree);
	if (a != b)
		mutex_lock_nested(&b->tree, SINGLE_DEPTH_NESTING);
}

void ds_trees_unlock(struct ds_client *a, struct ds_client *b)
{
	mutex_unlock(&a->tree);
	if (a != b)
		mutex_unlock(&b->tree);
}

static bool first_of_process(const struct ds_client *client)
{
	const struct ds_client *other;

	list_for_each_entry(other, &ds_clients, link)
		if (other->process == client->process)
			break;
	return other == client;
}

unsigned int ds_clients_meant(const struct ds_subject *subject)
{
	struct ds_client *client;
	unsigned int count = 0;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link)
		count += ds_subject_meant(subject, client->process) && first_of_process(client);
	up_read(&ds_clients_lock);
	return count;
}

void ds_client_totals(struct ds_totals *totals)
{
	struct ds_client *client;
	struct ds_vctx *vctx;

	memset(totals, 0, sizeof(*totals));
	totals->files = atomic_read(&file_count);
	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link) {
		mutex_lock(&client->tree);
		totals->clients++;
		totals->objects += client->rm.objects;
		list_for_each_entry(vctx, &client->vctxs, link)
			totals->vctxs += ds_vctx_shown(vctx);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
}

void ds_client_exit(void)
{
	struct ds_file *file;
	struct hlist_node *next;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		hlist_for_each_entry_safe(file, next, &files[i], link) {
			hlist_del(&file->link);
			empty_file(file);
		}
	}
}
