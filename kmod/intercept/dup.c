// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/moduleparam.h>

#include "denials.h"
#include "dup.h"
#include "filter.h"
#include "memref.h"
#include "sharer.h"
#include "plan.h"
#include "rmcall.h"
#include "steered.h"

/* Who may have a channel group in common with another process while somebody manages one of them: see share_groups. */
enum sharing {
	NOBODY,
	MPS,
};

static unsigned int share_groups = MPS;
module_param(share_groups, uint, 0644);
MODULE_PARM_DESC(share_groups,
		 "which managed programs may have a channel group in common with another process, so that they cannot be paused: 0 none, 1 with a program that is not managed, if one of both has an MPS object (default), 2 all");

/* What is known of the source before the call. */
struct source {
	bool known;
	bool ours;		/* a client of the same file: nothing changes it meanwhile */
	u32 class;
	u16 engine;
	bool mps;		/* its client takes part in MPS */
	u32 gpu;
	struct rm_memory *memory;	/* held for the destination's payer */
	struct ds_memref *flight;	/* of memory in another file: tells whether its handle came to name something else */
	struct ds_process *owner;	/* held; NULL: of nobody that is known */
	u32 hosts;		/* ds_sharer_count() of its client, when those that it has were noted */
};

/* The vCtx that the new object belongs to, and pays for it. Under the destination's tree. */
static struct ds_vctx *vctx_of(struct ds_call *call, const struct source *source)
{
	struct ds_client *client = call->client;
	u32 gpu = ds_gpu_below(client, call->asked.parent);

	if (gpu == RM_GPU_NONE)
		gpu = source->gpu;
	return ds_vctx_find(client, gpu) ?: ds_vctx_find(client, ds_client_first_gpu(client));
}

/*
 * The driver duplicates memory of one GPU below the device of another, where it stays. NULL: the destination has no vCtx for that GPU yet. Under
 * the destination's tree.
 */
static struct ds_vctx *vctx_of_memory(struct ds_call *call, const struct source *source)
{
	return source->gpu == RM_GPU_NONE ? vctx_of(call, source) : ds_vctx_find(call->client, source->gpu);
}

/* Both trees are locked. 0; -ENOMEM with what refused; -EAGAIN: the destination needs a vCtx for source->gpu. */
static int hold(struct ds_call *call, struct ds_client *owner, struct source *source,
		struct ds_vctx **vctx, struct ds_refusal *refusal)
{
	struct rm_object *object = rm_tree_find(&owner->rm, call->asked.src_object);
	struct rm_account *refuser = NULL;
	int err;

	if (!object)
		return 0;
	source->known = true;
	source->class = object->class;
	source->engine = object->engine;
	source->gpu = object->gpu;
	*vctx = rm_object_bytes(object) ? vctx_of_memory(call, source) : vctx_of(call, source);
	if (!*vctx)
		return -EAGAIN;
	err = rm_memory_share(&owner->rm, object, &source->memory);
	if (err)
		return err == -ENOENT ? 0 : err;
	err = rm_memory_hold(source->memory, ds_vctx_payer(*vctx), &refuser);
	if (err && refuser)
		ds_refusal_fill(refusal, refuser, rm_memory_bytes(source->memory));
	if (err)
		source->memory = NULL;
	return err;
}

/* As scan(), or -EAGAIN. */
static int look(struct ds_call *call, struct source *source, struct ds_vctx **vctx,
		struct ds_refusal *refusal)
{
	struct ds_client *owner;
	int err = 0;

	refusal->asked = 0;
	mutex_lock(&call->client->tree);
	*vctx = vctx_of(call, source);
	mutex_unlock(&call->client->tree);
	down_read(&ds_clients_lock);
	owner = ds_client_find(call->asked.src_client);
	if (owner) {
		ds_trees_lock(owner, call->client);
		err = hold(call, owner, source, vctx, refusal);
		ds_trees_unlock(owner, call->client);
		source->ours = owner->file == call->known;
		if (err != -EAGAIN)
			source->owner = ds_process_hold(owner->process);
		source->mps = READ_ONCE(owner->mps);
	}
	up_read(&ds_clients_lock);
	return err;
}

/* Looks the source up, wherever it is, and holds its memory for the destination. */
static int scan(struct ds_call *call, struct source *source, struct ds_vctx **vctx,
		struct ds_refusal *refusal)
{
	int err = look(call, source, vctx, refusal);

	while (err == -EAGAIN) {
		err = ds_vctx_lasting(call->client, source->gpu);
		if (!err)
			err = look(call, source, vctx, refusal);
	}
	if (err || source->ours || !source->memory)
		return err;
	source->flight = ds_memref_begin(call->asked.src_client, call->asked.src_object);
	err = PTR_ERR_OR_ZERO(source->flight);
	if (err)
		source->flight = NULL;
	return err;
}

/* The driver has looked the source up. Was it the memory that is held? */
static bool was_that(struct source *source)
{
	u32 gpu, class;
	bool that = source->ours || !source->memory ||
		    (source->flight && !ds_memref_odd(source->flight) && ds_memref_memory(source->flight, &gpu, &class) == source->memory);

	ds_memref_drop(source->flight);
	source->flight = NULL;
	return that;
}

static void drop(struct ds_call *call, struct source *source, struct ds_vctx *vctx)
{
	if (!source->memory)
		return;
	mutex_lock(&call->client->tree);
	rm_memory_drop(source->memory, ds_vctx_payer(vctx));
	mutex_unlock(&call->client->tree);
	source->memory = NULL;
}

/*
 * The source may have been freed and made anew between our look and the driver's, or be of a client that we do not
 * follow: the driver is asked what the destination has got. false: more than it may have; it is freed again.
 */
static bool verify(struct ds_call *call, struct source *source, struct ds_vctx *vctx, u64 *bytes,
		   struct ds_refusal *refusal)
{
	struct ds_client *client = call->client;
	struct rm_account *refuser = NULL;
	u64 held = source->memory ? rm_memory_bytes(source->memory) : 0;
	int err;

	*bytes = 0;
	if (source->ours)
		return true;
	/* a doorbell must be known as one by whatever name it came */
	ds_rm_class(client->rm.handle, call->done.object, &source->class);
	if (ds_rm_memory_bytes(client->rm.handle, call->done.object, bytes))
		*bytes = 0;	/* no memory object */
	if (*bytes <= held)
		return true;
	drop(call, source, vctx);
	mutex_lock(&client->tree);
	err = rm_payer_charge(ds_vctx_payer(vctx), *bytes, &refuser);
	if (err && refuser)
		ds_refusal_fill(refusal, refuser, *bytes);
	mutex_unlock(&client->tree);
	if (err)
		ds_rm_free(client->rm.handle, call->done.object);
	return !err;
}

static void insert(struct ds_call *call, const struct source *source, const struct ds_vctx *vctx, u64 bytes)
{
	struct rm_insert insert = {
		.handle = call->done.object,
		.parent = call->asked.parent,
		.class = source->class,
		.engine = source->engine,
		.gpu = vctx->gpu,
		.flags = RM_OBJECT_DUP,
		.memory = source->memory,
		.bytes = source->memory ? 0 : bytes,
	};

	rm_tree_insert(&call->client->rm, &insert);
}

static bool steers(const struct ds_call *call, const struct source *source)
{
	const struct rm_class *class = rm_abi_class(call->abi, source->class);

	return class && ds_sharer_steers(class->kind);
}

/*
 * Perhaps of another process's channel group, or of what its client has of one: the orders of all whose it may be hold for this client
 * from before the driver makes the duplicate.
 */
static int note_hosts(struct ds_call *call, struct source *source)
{
	struct ds_client *client = call->client;
	int err = 0;

	if (source->owner && source->owner != client->process)
		err = ds_sharer_new(client->rm.handle, client->process, source->owner);
	do {
		source->hosts = ds_sharer_count(call->asked.src_client);
		err = err ?: ds_sharer_copy(client->rm.handle, client->process, call->asked.src_client);
	} while (!err && source->hosts != ds_sharer_count(call->asked.src_client));
	return err;
}

static void settle_hosts(struct ds_call *call, const struct source *source, bool made)
{
	struct ds_client *client = call->client;
	u32 object = made && steers(call, source) ? call->done.object : 0;

	/* two processes have it in common from now on, as under MPS: neither can be paused alone */
	ds_sharer_settle(client->rm.handle, client->process, object, source->class == KEPLER_CHANNEL_GROUP_A);
	if (object && !source->owner && source->class == KEPLER_CHANNEL_GROUP_A)
		WRITE_ONCE(client->shared, true);
}

/* Has the source become other memory, or its client another's, or a sharer of one more, since it was noted? Then it may be a duplicate of that. */
static bool changed(struct ds_call *call, struct source *source)
{
	struct ds_client *owner;
	bool other;

	if (!was_that(source))
		return true;
	if (source->ours || !steers(call, source))
		return false;
	down_read(&ds_clients_lock);
	owner = ds_client_find(call->asked.src_client);
	other = (owner ? owner->process : NULL) != source->owner;
	up_read(&ds_clients_lock);
	return other || ds_sharer_count(call->asked.src_client) != source->hosts;
}

static bool anybody(struct ds_process *host)
{
	return true;
}

/*
 * Is it a channel group that another process has too, or may have? Then neither can be paused alone. Or a part of one, with which channels
 * of the one run in memory of the other?
 */
static bool is_shared(const struct ds_call *call, const struct source *source)
{
	return (source->class == KEPLER_CHANNEL_GROUP_A || source->class == FERMI_CONTEXT_SHARE_A) &&
	       (source->owner != call->client->process || ds_sharer_any(call->asked.src_client, anybody));
}

static bool may_share(const struct ds_call *call, const struct source *source, bool both_managed)
{
	switch (READ_ONCE(share_groups)) {
	case NOBODY:
		return false;
	case MPS:
		/* anybody can make an MPS object: of one tenant's programs, which are all managed, none is a server for the others */
		return !both_managed && (source->mps || READ_ONCE(call->client->mps));
	default:
		return true;
	}
}

/* Is a process managed of which, or by way of which, the group is? */
static bool gives_managed(const struct ds_call *call, const struct source *source)
{
	return (source->owner && ds_process_steered(source->owner)) || ds_sharer_any(call->asked.src_client, ds_process_steered);
}

/* Has the caller got what would put a managed program out of reach of pauses? Then it is freed again. */
static bool put_out_of_reach(struct ds_call *call, struct source *source, struct ds_vctx *vctx)
{
	bool takes, gives;

	if (!ds_filter_active() || !is_shared(call, source))
		return false;
	takes = ds_process_steered(call->client->process);
	gives = gives_managed(call, source);
	if ((!takes && !gives) || may_share(call, source, takes && gives))
		return false;
	ds_rm_free(call->client->rm.handle, call->done.object);
	settle_hosts(call, source, false);
	drop(call, source, vctx);
	ds_denied(call->client->rm.handle, NV_ESC_RM_DUP_OBJECT, DETSHARE_DENIAL_ORDER, NV_ERR_INSUFFICIENT_PERMISSIONS,
		  "shares a channel group with another process");
	ds_call_refuse(call, NV_ERR_INSUFFICIENT_PERMISSIONS);
	return true;
}

/* A doorbell below another GPU's device: which GPU's gate it then belongs to only the driver knows. It is freed again. */
static bool strayed(struct ds_call *call, struct source *source, struct ds_vctx *vctx)
{
	const struct rm_class *class = rm_abi_class(call->abi, source->class);

	if (!class || class->kind != RM_KIND_USERMODE || source->gpu == RM_GPU_NONE || source->gpu == vctx->gpu)
		return false;
	ds_rm_free(call->client->rm.handle, call->done.object);
	settle_hosts(call, source, false);
	drop(call, source, vctx);
	ds_call_refuse(call, NV_ERR_INVALID_OBJECT_PARENT);
	return true;
}

/* With room for the object reserved. false: there is none; it was answered. */
static bool duplicate(struct ds_call *call, struct source *source)
{
	struct ds_client *client = call->client;
	struct ds_vctx *vctx = NULL;
	struct ds_refusal refusal;
	u64 bytes;

	if (scan(call, source, &vctx, &refusal) || note_hosts(call, source)) {
		settle_hosts(call, source, false);
		drop(call, source, vctx);
		goto refuse;
	}
	if (!ds_call_driver(call)) {
		settle_hosts(call, source, false);
		drop(call, source, vctx);
		return false;
	}
	if (!verify(call, source, vctx, &bytes, &refusal)) {
		settle_hosts(call, source, false);
		goto refuse;
	}
	if (put_out_of_reach(call, source, vctx) || strayed(call, source, vctx))
		return false;
	if (changed(call, source)) {
		ds_rm_free(client->rm.handle, call->done.object);
		settle_hosts(call, source, false);
		drop(call, source, vctx);
		ds_call_refuse(call, NV_ERR_BUSY_RETRY);
		return false;
	}
	mutex_lock(&client->tree);
	insert(call, source, vctx, bytes);
	mutex_unlock(&client->tree);
	/* after one that had its handle has died */
	settle_hosts(call, source, true);
	return true;
refuse:
	ds_alloc_refused(call, vctx, refusal.asked ? &refusal : NULL);
	return false;
}

void ds_dup(struct ds_call *call)
{
	struct source source = { .gpu = RM_GPU_NONE };
	struct ds_client *client = call->client;
	int err;

	if (!client) {
		ds_call_driver(call);
		return;
	}
	mutex_lock(&client->tree);
	err = rm_tree_reserve(&client->rm);
	mutex_unlock(&client->tree);
	if (err) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	if (!duplicate(call, &source)) {
		mutex_lock(&client->tree);
		rm_tree_unreserve(&client->rm);
		mutex_unlock(&client->tree);
	}
	ds_memref_drop(source.flight);
	ds_process_put(source.owner);
}
