// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "client.h"
#include "memref.h"

struct ds_residual {
	struct list_head link;
	refcount_t refs;
	struct mutex lock;	/* guards the payer */
	struct ds_payer payer;
	u64 stuck;		/* bytes of deaths that there was no memory to note; given back at the end */
};

/* Part of what a memref holds: a memory, or bytes that are nobody else's. */
struct stake {
	struct list_head link;
	struct ds_residual *residual;
	struct rm_memory *memory;
	u64 bytes;
	u32 gpu, class;
};

struct ds_memref {
	struct mutex lock;
	struct list_head stakes;
	/* in flight: */
	struct list_head link;	/* client->memrefs, those that have landed first; guarded by client->tree */
	struct ds_client *client;	/* read under ds_clients_lock; NULL: not in flight */
	u32 handle;
	bool odd;		/* what the handle names now may be something else than the driver found */
	bool landed;		/* counted in file->landed; guarded by client->tree */
};

static LIST_HEAD(residuals);
static DEFINE_MUTEX(residuals_lock);	/* above the core's mutex only */
static atomic_t memref_count;

/* ---- residuals ------------------------------------------------------------- */

struct ds_residual *ds_residual_make(struct ds_process *process, u32 gpu)
{
	struct ds_residual *residual = kzalloc(sizeof(*residual), GFP_KERNEL_ACCOUNT);
	int err;

	if (!residual)
		return ERR_PTR(-ENOMEM);
	refcount_set(&residual->refs, 1);
	mutex_init(&residual->lock);
	residual->payer = (struct ds_payer){
		.lock = &residual->lock,
		.process = ds_process_hold(process),
		.gpu = gpu,
		.keeps = true,
	};
	err = ds_payer_add(&residual->payer);
	if (err) {
		ds_process_put(process);
		kfree(residual);
		return ERR_PTR(err);
	}
	mutex_lock(&residuals_lock);
	list_add_tail(&residual->link, &residuals);
	mutex_unlock(&residuals_lock);
	return residual;
}

void ds_residual_put(struct ds_residual *residual)
{
	if (!residual || !refcount_dec_and_test(&residual->refs))
		return;
	mutex_lock(&residuals_lock);
	list_del(&residual->link);
	mutex_unlock(&residuals_lock);
	mutex_lock(&residual->lock);
	rm_payer_uncharge(&residual->payer.core, residual->stuck);
	mutex_unlock(&residual->lock);
	ds_payer_remove(&residual->payer);
	ds_process_put(residual->payer.process);
	kfree(residual);
}

u64 ds_residual_kept(struct ds_residual *residual)
{
	return rm_payer_kept(&residual->payer.core);
}

u64 ds_memrefs_kept(u32 gpu)
{
	struct ds_residual *residual;
	u64 bytes = 0;

	mutex_lock(&residuals_lock);
	list_for_each_entry(residual, &residuals, link)
		if (residual->payer.gpu == gpu)
			bytes += ds_residual_kept(residual);
	mutex_unlock(&residuals_lock);
	return bytes;
}

/* Who pays for an object on that GPU. Under client->tree. */
static struct ds_residual *residual_of(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx = ds_vctx_find(client, gpu);

	if (!vctx || gpu == RM_GPU_NONE)
		vctx = ds_vctx_find(client, ds_client_first_gpu(client)) ?: vctx;
	return (vctx ?: ds_vctx_find(client, RM_GPU_NONE))->residual;
}

/* ---- stakes: the memref's lock is held, or nobody else has the memref ------------ */

static struct stake *add_stake(struct ds_memref *memref, struct ds_residual *residual)
{
	struct stake *stake = rm_zalloc(sizeof(*stake));

	if (!stake)
		return NULL;
	refcount_inc(&residual->refs);
	stake->residual = residual;
	list_add_tail(&stake->link, &memref->stakes);
	return stake;
}

static void remove_stake(struct stake *stake)
{
	list_del(&stake->link);
	ds_residual_put(stake->residual);
	rm_mfree(stake);
}

static bool holds(const struct ds_memref *memref, const struct rm_memory *memory)
{
	struct stake *stake;

	list_for_each_entry(stake, &memref->stakes, link)
		if (memory && stake->memory == memory)
			return true;
	return false;
}

/* 0: held, or there is nothing to hold; -ENOMEM. The client's tree is locked. */
static int hold_object(struct ds_memref *memref, struct ds_client *client, struct rm_object *object)
{
	struct rm_memory *memory;
	struct stake *stake;
	int err;

	if (!rm_object_bytes(object) || holds(memref, object->memory))
		return 0;
	stake = add_stake(memref, residual_of(client, object->gpu));
	if (!stake)
		return -ENOMEM;
	err = rm_memory_share(&client->rm, object, &memory);
	if (!err) {
		mutex_lock(&stake->residual->lock);
		err = rm_memory_hold_force(memory, &stake->residual->payer.core);
		mutex_unlock(&stake->residual->lock);
	}
	if (err) {
		remove_stake(stake);
		return err;
	}
	stake->memory = memory;
	stake->gpu = object->gpu;
	stake->class = object->class;
	return 0;
}

static void release_stakes(struct list_head *stakes)
{
	struct stake *stake, *next;

	list_for_each_entry_safe(stake, next, stakes, link) {
		struct rm_payer *payer = &stake->residual->payer.core;

		mutex_lock(&stake->residual->lock);
		if (stake->memory)
			rm_memory_drop(stake->memory, payer);
		else
			rm_payer_uncharge(payer, stake->bytes);
		mutex_unlock(&stake->residual->lock);
		remove_stake(stake);
	}
}

/* ---- memrefs ------------------------------------------------------------------ */

static struct ds_memref *make_memref(void)
{
	struct ds_memref *memref = rm_zalloc(sizeof(*memref));

	if (!memref)
		return NULL;
	mutex_init(&memref->lock);
	INIT_LIST_HEAD(&memref->stakes);
	INIT_LIST_HEAD(&memref->link);
	atomic_inc(&memref_count);
	return memref;
}

static void free_memref(struct ds_memref *memref)
{
	atomic_dec(&memref_count);
	rm_mfree(memref);
}

struct ds_memref *ds_memref_object(struct ds_client *client, struct rm_object *object)
{
	struct ds_memref *memref;

	if (!rm_object_bytes(object))
		return NULL;
	memref = make_memref();
	if (!memref)
		return ERR_PTR(-ENOMEM);
	if (!hold_object(memref, client, object))
		return memref;
	free_memref(memref);
	return ERR_PTR(-ENOMEM);
}

struct ds_memref *ds_memref_bytes(struct ds_client *client, u32 gpu, u64 bytes)
{
	struct ds_memref *memref = make_memref();
	struct stake *stake = memref ? add_stake(memref, residual_of(client, gpu)) : NULL;

	if (!stake) {
		if (memref)
			free_memref(memref);
		return ERR_PTR(-ENOMEM);
	}
	mutex_lock(&stake->residual->lock);
	rm_payer_force(&stake->residual->payer.core, bytes);
	mutex_unlock(&stake->residual->lock);
	stake->bytes = bytes;
	stake->gpu = gpu;
	return memref;
}

struct rm_memory *ds_memref_memory(struct ds_memref *memref, u32 *gpu, u32 *class)
{
	struct stake *stake;
	struct rm_memory *memory = NULL;

	mutex_lock(&memref->lock);
	stake = list_first_entry_or_null(&memref->stakes, struct stake, link);
	if (stake && list_is_singular(&memref->stakes)) {
		memory = stake->memory;
		*gpu = stake->gpu;
		*class = stake->class;
	}
	mutex_unlock(&memref->lock);
	return memory;
}

bool ds_memref_limited(struct ds_memref *memref)
{
	struct stake *stake;
	struct rm_view view;
	bool limited = false;

	mutex_lock(&memref->lock);
	list_for_each_entry(stake, &memref->stakes, link) {
		mutex_lock(&stake->residual->lock);
		rm_payer_view(&stake->residual->payer.core, &view);
		mutex_unlock(&stake->residual->lock);
		limited |= view.limit != RM_NO_LIMIT;
	}
	mutex_unlock(&memref->lock);
	return limited;
}

/* Under client->tree. */
static int begin(struct ds_memref *memref, struct ds_client *client)
{
	struct rm_object *object = rm_tree_find(&client->rm, memref->handle);
	int err = object ? hold_object(memref, client, object) : 0;

	if (err)
		return err;
	memref->odd = !object;
	memref->client = client;
	list_add_tail(&memref->link, &client->memrefs);
	return 0;
}

struct ds_memref *ds_memref_begin(u32 client_handle, u32 handle)
{
	struct ds_memref *memref = make_memref();
	struct ds_client *client;
	int err = 0;

	if (!memref)
		return ERR_PTR(-ENOMEM);
	memref->handle = handle;
	down_read(&ds_clients_lock);
	client = ds_client_find(client_handle);
	if (client) {
		mutex_lock(&client->tree);
		err = begin(memref, client);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	if (client && !err)
		return memref;
	free_memref(memref);
	return err ? ERR_PTR(err) : NULL;
}

bool ds_memref_odd(const struct ds_memref *memref)
{
	return READ_ONCE(memref->odd);
}

/* Under client->tree. The last touch of the memref: from here on its owner may free it. */
static void take_out(struct ds_memref *memref, struct ds_client *client)
{
	list_del_init(&memref->link);
	if (memref->landed)
		atomic_dec(&client->file->landed);
	memref->landed = false;
	smp_store_release(&memref->client, NULL);
}

/* Takes the memref out of its client's list, unless it must stay there. Then its file, held; else NULL. */
static struct ds_file *leave_flight(struct ds_memref *memref, bool even_if_odd)
{
	struct ds_file *file = NULL;
	struct ds_client *client;

	/* those that never fly are dropped under a tree */
	if (!smp_load_acquire(&memref->client))
		return NULL;
	down_read(&ds_clients_lock);
	client = memref->client;
	if (client) {
		mutex_lock(&client->tree);
		if (memref->odd && !even_if_odd) {
			file = ds_file_hold(client->file);
			memref->landed = true;
			atomic_inc(&file->landed);
			list_move(&memref->link, &client->memrefs);
		} else {
			take_out(memref, client);
		}
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return file;
}

/* Whether there was one that has landed. The order of the client's file is held, so its tree is what the driver has. */
static bool find_anew(struct ds_client *client)
{
	struct ds_memref *memref;
	struct rm_object *object;
	bool landed;

	mutex_lock(&client->tree);
	memref = list_first_entry_or_null(&client->memrefs, struct ds_memref, link);
	landed = memref && memref->landed;
	if (landed) {
		object = rm_tree_find(&client->rm, memref->handle);
		mutex_lock(&memref->lock);
		if (object && hold_object(memref, client, object))
			pr_warn_once("no memory to note what the driver keeps of process %d\n",
				     ds_process_nr(client->process));
		mutex_unlock(&memref->lock);
		take_out(memref, client);
	}
	mutex_unlock(&client->tree);
	return landed;
}

/* Whoever has the order looks: nobody waits for a call that its program's memory makes wait. */
static void settle(struct ds_file *file)
{
	struct ds_client *client;

	for (;;) {
		/* what lands just now is seen here, or finds the order free */
		smp_mb();
		if (!atomic_read(&file->landed) || !mutex_trylock(&file->order))
			return;
		list_for_each_entry(client, &file->clients, in_file)
			while (find_anew(client))
				cond_resched();
		mutex_unlock(&file->order);
	}
}

void ds_memref_landed(struct ds_memref *memref)
{
	struct ds_file *file = leave_flight(memref, false);

	if (!file)
		return;
	settle(file);
	ds_file_put(file);
}

void ds_memrefs_unlock(struct ds_file *file)
{
	mutex_unlock(&file->order);
	settle(file);
}

void ds_memref_drop(struct ds_memref *memref)
{
	if (!memref)
		return;
	leave_flight(memref, true);
	release_stakes(&memref->stakes);
	free_memref(memref);
}

static void keep(struct ds_memref *memref, struct ds_client *client, struct rm_object *object)
{
	struct ds_residual *residual = residual_of(client, object->gpu);
	u64 bytes = rm_object_bytes(object);

	WRITE_ONCE(memref->odd, true);
	mutex_lock(&memref->lock);
	if (hold_object(memref, client, object)) {
		mutex_lock(&residual->lock);
		rm_payer_force(&residual->payer.core, bytes);
		residual->stuck += bytes;
		mutex_unlock(&residual->lock);
	}
	mutex_unlock(&memref->lock);
}

void ds_memrefs_keep(struct ds_client *client, struct rm_object *object)
{
	struct ds_memref *memref;

	list_for_each_entry(memref, &client->memrefs, link)
		if (memref->handle == object->handle)
			keep(memref, client, object);
}

void ds_memrefs_orphan(struct ds_client *client)
{
	struct ds_memref *memref, *next;

	list_for_each_entry_safe(memref, next, &client->memrefs, link)
		take_out(memref, client);
}

unsigned int ds_memref_count(void)
{
	return atomic_read(&memref_count);
}
