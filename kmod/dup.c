// SPDX-License-Identifier: GPL-2.0-only
#include "alloc.h"
#include "dup.h"
#include "guest.h"
#include "rmcall.h"

/* What is known of the source before the call. */
struct source {
	bool known;
	bool ours;		/* a client of the same file: nothing changes it meanwhile */
	u32 class;
	u16 engine;
	u32 gpu;
	struct rm_memory *memory;	/* held for the destination's payer */
	struct ds_process *owner;	/* held; NULL: of nobody that is known */
};

/* The vCtx that the new object belongs to, and pays for it. Under the destination's tree. */
static struct ds_vctx *vctx_of(struct ds_call *call, const struct source *source)
{
	struct ds_client *client = call->client;
	struct rm_object *parent = rm_tree_find(&client->rm, call->asked.parent);
	u32 gpu = parent && parent->gpu != RM_GPU_NONE ? parent->gpu : source->gpu;

	return ds_vctx_find(client, gpu) ?: ds_vctx_find(client, ds_client_first_gpu(client));
}

/* Both trees are locked. 0, or -ENOMEM with what refused. */
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
	*vctx = vctx_of(call, source);
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

/* Looks the source up, wherever it is, and holds its memory for the destination. */
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
		if (owner->process != call->client->process && !source->owner)
			source->owner = ds_process_hold(owner->process);
	}
	up_read(&ds_clients_lock);
	return err;
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

	return class && ds_guest_steers(class->kind);
}

/*
 * Of another process's channel group: its owner's orders hold for the client from before the driver made the duplicate. It is noted by the
 * handle that was asked for; when the driver has answered, by the right one or not at all.
 */
static int note_host(struct ds_call *call, const struct source *source)
{
	return source->owner ? ds_guest_new(call->client->rm.handle, call->asked.object, source->owner) : 0;
}

static void settle_host(struct ds_call *call, const struct source *source, bool made)
{
	u32 client = call->client->rm.handle;

	if (!source->owner)
		return;
	made = made && steers(call, source);
	if (made && call->done.object == call->asked.object)
		return;
	if (made && ds_guest_new(client, call->done.object, source->owner))
		pr_warn_once("no memory to note whose channel group process %d is in\n",
			     ds_process_nr(call->client->process));
	ds_guest_gone(client, call->asked.object, source->owner);
}

/* Two processes have a channel group in common from now on, as under MPS: neither can be paused alone. */
static void note_sharing(struct ds_call *call)
{
	struct ds_client *owner;

	down_read(&ds_clients_lock);
	owner = ds_client_find(call->asked.src_client);
	if (!owner || owner->process != call->client->process)
		WRITE_ONCE(call->client->shared, true);
	if (owner && owner->process != call->client->process)
		WRITE_ONCE(owner->shared, true);
	up_read(&ds_clients_lock);
}

/* With room for the object reserved. false: there is none; it was answered. */
static bool duplicate(struct ds_call *call, struct source *source)
{
	struct ds_client *client = call->client;
	struct ds_vctx *vctx = NULL;
	struct ds_refusal refusal;
	u64 bytes;

	if (look(call, source, &vctx, &refusal) || note_host(call, source)) {
		drop(call, source, vctx);
		goto refuse;
	}
	if (!ds_call_driver(call)) {
		settle_host(call, source, false);
		drop(call, source, vctx);
		return false;
	}
	if (!verify(call, source, vctx, &bytes, &refusal)) {
		settle_host(call, source, false);
		goto refuse;
	}
	settle_host(call, source, true);
	mutex_lock(&client->tree);
	insert(call, source, vctx, bytes);
	mutex_unlock(&client->tree);
	if (source->class == KEPLER_CHANNEL_GROUP_A)
		note_sharing(call);
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
	ds_process_put(source.owner);
}
