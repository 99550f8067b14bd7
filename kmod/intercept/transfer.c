// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "denials.h"
#include "driver.h"
#include "exports.h"
#include "filter.h"
#include "memref.h"
#include "plan.h"
#include "rmcall.h"
#include "sharer.h"
#include "transfer.h"

/* One object on its way. */
struct piece {
	u32 handle;
	/* of an export: */
	struct ds_exported *slot;	/* with a memref, if the memory is known */
	bool unknown;		/* the tree does not have it */
	/* of an import: */
	bool taken;		/* the handle was in use before: nothing was imported by it */
	u32 class, gpu;
	struct ds_vctx *vctx;	/* who pays */
	struct rm_memory *memory;	/* held for him */
	u64 bytes;		/* charged to him */
};

struct ds_transfer {
	struct ds_call *call;
	struct rm_export export;
	struct ds_file *file;	/* that the driver takes it for, held */
	u64 turn;
	bool refused;
	struct ds_vctx *refused_to;
	struct ds_refusal refusal;
	struct piece *pieces;	/* export.count */
};

/* ---- which calls --------------------------------------------------------------- */

bool ds_transfer_is(u32 cmd)
{
	switch (cmd) {
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		return true;
	default:
		return false;
	}
}

bool ds_transfer_in(const void *block, u32 size)
{
	const struct rm_abi *abi = ds_abi();

	return abi && size == abi->nvos54.len && ds_transfer_is(rm_get32(block, abi->nvos54.cmd));
}

/*
 * The driver gives away whatever can be duplicated. A channel group or a part of one would so be shared, or live on, and a doorbell come below
 * another GPU's device, without a word to anybody here.
 */
static bool must_stay(u32 nr)
{
	const struct rm_class *class = rm_abi_class(ds_abi(), nr);

	return ds_filter_active() && class && (ds_sharer_steers(class->kind) || class->kind == RM_KIND_USERMODE);
}

/* ---- the file ------------------------------------------------------------------- */

/*
 * Who pays for what comes in by this parent: where it lies, which may be another GPU than the parent's; RM_GPU_NONE: that is not known. NULL: the
 * client has no vCtx there. Under client->tree.
 */
static struct ds_vctx *payer_of_import(struct ds_client *client, u32 parent, u32 gpu)
{
	if (gpu != RM_GPU_NONE)
		return ds_vctx_find(client, gpu);
	return ds_vctx_find(client, ds_gpu_below(client, parent)) ?: ds_vctx_find(client, ds_client_first_gpu(client));
}

/* Under the lock of the file's exports. 0; -ENOMEM: refused. */
static int hold_piece(struct ds_transfer *transfer, struct piece *piece, struct ds_exported *slot)
{
	struct ds_client *client = transfer->call->client;
	struct rm_account *refuser = NULL;
	struct rm_memory *memory;
	int err = 0;

	memory = slot->memref ? ds_memref_memory(slot->memref, &piece->gpu, &piece->class) : NULL;
	if (!memory)
		return 0;
	mutex_lock(&client->tree);
	piece->vctx = payer_of_import(client, transfer->export.parent, piece->gpu);
	err = piece->vctx ? rm_memory_hold(memory, ds_vctx_payer(piece->vctx), &refuser) : -ENOMEM;
	if (err && refuser)
		ds_refusal_fill(&transfer->refusal, refuser, rm_memory_bytes(memory));
	if (!err)
		piece->memory = memory;
	mutex_unlock(&client->tree);
	transfer->refused_to = piece->vctx;
	return err;
}

/* On which GPUs what is exported lies, a bit each. */
static u32 gpus_of(struct ds_transfer *transfer)
{
	struct ds_exports *exports = &transfer->file->exports;
	u32 gpus = 0, gpu, class, i;
	struct ds_exported *slot;

	mutex_lock(&exports->lock);
	for (i = 0; i < transfer->export.count; i++) {
		slot = ds_exports_find(exports, transfer->export.index + i);
		if (slot && slot->memref && ds_memref_memory(slot->memref, &gpu, &class) && gpu < RM_GPUS)
			gpus |= 1U << gpu;
	}
	mutex_unlock(&exports->lock);
	return gpus;
}

static bool hold_all(struct ds_transfer *transfer)
{
	struct ds_exports *exports = &transfer->file->exports;
	unsigned long gpus = gpus_of(transfer);
	struct ds_exported *slot;
	int err = 0;
	u32 i;

	for_each_set_bit(i, &gpus, RM_GPUS)
		err = err ?: ds_vctx_lasting(transfer->call->client, i);
	mutex_lock(&exports->lock);
	for (i = 0; i < transfer->export.count && !err; i++) {
		slot = ds_exports_find(exports, transfer->export.index + i);
		if (slot)
			err = hold_piece(transfer, &transfer->pieces[i], slot);
	}
	mutex_unlock(&exports->lock);
	transfer->refused = err;
	return !err;
}

/* Under client->tree. */
static void drop_piece(struct piece *piece)
{
	if (piece->memory)
		rm_memory_drop(piece->memory, ds_vctx_payer(piece->vctx));
	else if (piece->bytes)
		rm_payer_uncharge(ds_vctx_payer(piece->vctx), piece->bytes);
	piece->memory = NULL;
	piece->bytes = 0;
}

/* The driver looks its file up anew: what was held by what it found before is not what it takes. */
static void drop_held(struct ds_transfer *transfer)
{
	struct ds_client *client = transfer->call->client;
	u32 i;

	mutex_lock(&client->tree);
	for (i = 0; i < transfer->export.count; i++)
		drop_piece(&transfer->pieces[i]);
	mutex_unlock(&client->tree);
}

bool ds_transfer_file(struct ds_transfer *transfer, const struct file *file)
{
	if (transfer->file && transfer->export.import)
		drop_held(transfer);
	ds_file_put(transfer->file);
	transfer->file = ds_file_get(file);
	if (!transfer->file)
		return false;
	if (transfer->export.import)
		return hold_all(transfer);
	mutex_lock(&transfer->file->exports.lock);
	transfer->turn = ++transfer->file->exports.turns;
	mutex_unlock(&transfer->file->exports.lock);
	return true;
}

/* ---- export ----------------------------------------------------------------------- */

static void drop_exports(struct ds_transfer *transfer)
{
	u32 i;

	for (i = 0; i < transfer->export.count; i++)
		ds_exported_free(transfer->pieces[i].slot);
}

/* 0; -ENOMEM; -EPERM: it could not be followed, and its owner has a limit; -EACCES: it must stay. */
static int prepare_exports(struct ds_transfer *transfer)
{
	struct ds_client *client = transfer->call->client;
	struct rm_object *object;
	struct piece *piece;
	u32 i;

	for (i = 0; i < transfer->export.count; i++) {
		piece = &transfer->pieces[i];
		/* an empty place is made empty, too */
		piece->slot = kzalloc(sizeof(*piece->slot), GFP_KERNEL_ACCOUNT);
		if (!piece->slot)
			return -ENOMEM;
		piece->slot->index = transfer->export.index + i;
		mutex_lock(&client->tree);
		object = rm_tree_find(&client->rm, piece->handle);
		if (object) {
			piece->class = object->class;
			piece->slot->memref = ds_memref_object(client, object);
		}
		mutex_unlock(&client->tree);
		if (IS_ERR(piece->slot->memref)) {
			piece->slot->memref = NULL;
			return -ENOMEM;
		}
		piece->unknown = piece->handle && !object;
		if (piece->unknown)
			ds_rm_class(client->rm.handle, piece->handle, &piece->class);
		if (must_stay(piece->class))
			return -EACCES;
		if (!ds_driver_sees_files() && piece->slot->memref && ds_memref_limited(piece->slot->memref))
			return -EPERM;
	}
	return 0;
}

/* Memory that was there before the client was known. */
static void ask(struct ds_transfer *transfer, struct piece *piece)
{
	struct ds_client *client = transfer->call->client;
	struct ds_memref *memref;
	u64 bytes;

	if (ds_rm_memory_bytes(client->rm.handle, piece->handle, &bytes) || !bytes)
		return;
	mutex_lock(&client->tree);
	memref = ds_memref_bytes(client, ds_client_first_gpu(client), bytes);
	mutex_unlock(&client->tree);
	if (!IS_ERR(memref))
		piece->slot->memref = memref;
}

static void export(struct ds_transfer *transfer)
{
	struct ds_call *call = transfer->call;
	struct piece *piece;
	int err;
	u32 i;

	err = prepare_exports(transfer);
	if (err == -EACCES)
		ds_denied(call->asked.client, call->asked.cmd, DETSHARE_DENIAL_ORDER, NV_ERR_INSUFFICIENT_PERMISSIONS,
			  "gives a channel group or a doorbell away by descriptor");
	if (err) {
		ds_call_refuse(call, err == -EACCES ? NV_ERR_INSUFFICIENT_PERMISSIONS :
				     err == -EPERM ? NV_ERR_NOT_SUPPORTED : NV_ERR_NO_MEMORY);
		drop_exports(transfer);
		return;
	}
	if (!ds_call_driver(call) || !transfer->file) {
		drop_exports(transfer);
		return;
	}
	for (i = 0; i < transfer->export.count; i++)
		if (transfer->pieces[i].unknown)
			ask(transfer, &transfer->pieces[i]);
	mutex_lock(&transfer->file->exports.lock);
	for (i = 0; i < transfer->export.count; i++) {
		piece = &transfer->pieces[i];
		piece->slot->turn = transfer->turn;
		ds_exports_put(&transfer->file->exports, piece->slot);
	}
	mutex_unlock(&transfer->file->exports.lock);
}

/* ---- import ------------------------------------------------------------------------ */

static void drop_imports(struct ds_transfer *transfer)
{
	struct ds_client *client = transfer->call->client;
	u32 i;

	mutex_lock(&client->tree);
	for (i = 0; i < transfer->export.count; i++) {
		drop_piece(&transfer->pieces[i]);
		rm_tree_unreserve(&client->rm);
	}
	mutex_unlock(&client->tree);
}

static int prepare_imports(struct ds_transfer *transfer)
{
	struct ds_client *client = transfer->call->client;
	struct piece *piece;
	int err = 0;
	u32 i;

	mutex_lock(&client->tree);
	for (i = 0; i < transfer->export.count; i++) {
		piece = &transfer->pieces[i];
		piece->gpu = RM_GPU_NONE;
		piece->taken = piece->handle && rm_tree_find(&client->rm, piece->handle);
		err = rm_tree_reserve(&client->rm);
		if (err)
			break;
	}
	if (err)
		while (i--)
			rm_tree_unreserve(&client->rm);
	mutex_unlock(&client->tree);
	return err;
}

/* What has come in, by the driver's own word. 0; -ENOMEM: more than may be; -EACCES: exported when nobody looked, it must stay. */
static int verify(struct ds_transfer *transfer, struct piece *piece)
{
	struct ds_client *client = transfer->call->client;
	struct rm_account *refuser = NULL;
	u64 bytes;
	int err = 0;

	if (piece->taken || !piece->handle || ds_rm_class(client->rm.handle, piece->handle, &piece->class)) {
		piece->handle = 0;
		return 0;
	}
	if (must_stay(piece->class))
		return -EACCES;
	if (ds_rm_memory_bytes(client->rm.handle, piece->handle, &bytes))
		bytes = 0;
	mutex_lock(&client->tree);
	if (!piece->vctx)
		piece->vctx = payer_of_import(client, transfer->export.parent, piece->gpu);
	if (bytes > (piece->memory ? rm_memory_bytes(piece->memory) : 0)) {
		drop_piece(piece);
		err = rm_payer_charge(ds_vctx_payer(piece->vctx), bytes, &refuser);
		if (!err)
			piece->bytes = bytes;
		else if (refuser)
			ds_refusal_fill(&transfer->refusal, refuser, bytes);
	}
	mutex_unlock(&client->tree);
	transfer->refused_to = piece->vctx;
	return err;
}

/* Under client->tree. */
static void insert(struct ds_transfer *transfer, struct piece *piece)
{
	struct rm_client *client = &transfer->call->client->rm;
	struct rm_insert insert = {
		.handle = piece->handle,
		.parent = transfer->export.parent,
		.class = piece->class,
		.gpu = piece->vctx->gpu,
		.flags = RM_OBJECT_DUP,
		.memory = piece->memory,
		.bytes = piece->memory ? 0 : piece->bytes,
	};

	rm_tree_insert(client, &insert);
}

static void read_handles(struct ds_transfer *transfer)
{
	struct ds_shadow *shadow = transfer->call->shadow;
	u32 i;

	for (i = 0; i < transfer->export.count; i++)
		transfer->pieces[i].handle = rm_export_handle(&transfer->export, shadow->params, i);
}

static void refuse_imports(struct ds_transfer *transfer)
{
	ds_alloc_refused(transfer->call, transfer->refused_to, transfer->refusal.asked ? &transfer->refusal : NULL);
}

static void undo_imports(struct ds_transfer *transfer)
{
	struct ds_client *client = transfer->call->client;
	struct piece *piece;
	u32 i;

	for (i = 0; i < transfer->export.count; i++) {
		piece = &transfer->pieces[i];
		if (piece->handle && !piece->taken)
			ds_rm_free(client->rm.handle, piece->handle);
	}
}

static void import(struct ds_transfer *transfer)
{
	struct ds_call *call = transfer->call;
	struct ds_client *client = call->client;
	bool made;
	u32 i;

	if (prepare_imports(transfer)) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	made = ds_call_driver(call);
	if (made)
		read_handles(transfer);
	for (i = 0; made && i < transfer->export.count && !transfer->refused; i++)
		transfer->refused = verify(transfer, &transfer->pieces[i]);
	if (made && transfer->refused)
		undo_imports(transfer);
	if (!made || transfer->refused) {
		drop_imports(transfer);
		if (transfer->refused)
			refuse_imports(transfer);
		return;
	}
	mutex_lock(&client->tree);
	for (i = 0; i < transfer->export.count; i++) {
		if (transfer->pieces[i].handle) {
			insert(transfer, &transfer->pieces[i]);
		} else {
			drop_piece(&transfer->pieces[i]);
			rm_tree_unreserve(&client->rm);
		}
	}
	mutex_unlock(&client->tree);
}

static bool is_limited(struct ds_client *client)
{
	struct ds_vctx *vctx;
	struct rm_view view;
	bool limited = false;

	mutex_lock(&client->tree);
	list_for_each_entry(vctx, &client->vctxs, link) {
		rm_payer_view(ds_vctx_payer(vctx), &view);
		limited |= view.limit != RM_NO_LIMIT;
	}
	mutex_unlock(&client->tree);
	return limited;
}

/*
 * Parameters in the serialised form cannot be read here. No driver of a known ABI has this form for these controls: each refuses the
 * call, in its own words. Who has a limit does not get as far.
 */
static void transfer_serialised(struct ds_call *call)
{
	if (is_limited(call->client))
		ds_call_refuse(call, NV_ERR_INVALID_ARGUMENT);
	else
		ds_call_driver(call);
}

void ds_transfer(struct ds_call *call)
{
	struct ds_transfer transfer = { .call = call };
	struct ds_shadow *shadow = call->shadow;
	u32 size = call->asked.params_size;

	if (!call->client || !call->asked.params || size > PAGE_SIZE) {
		ds_call_driver(call);
		return;
	}
	if (call->asked.flags & NVOS54_FLAGS_FINN_SERIALIZED) {
		transfer_serialised(call);
		return;
	}
	if (ds_shadow_read_params(shadow, call->asked.params, size)) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	if (rm_decode_export(call->abi, call->asked.cmd, shadow->params, shadow->params_size, &transfer.export)) {
		ds_call_driver(call);	/* which refuses it: a wrong size */
		return;
	}
	transfer.pieces = kvcalloc(transfer.export.count, sizeof(*transfer.pieces), GFP_KERNEL_ACCOUNT);
	if (!transfer.pieces && transfer.export.count) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		return;
	}
	read_handles(&transfer);
	shadow->transfer = &transfer;
	if (transfer.export.import)
		import(&transfer);
	else
		export(&transfer);
	ds_file_put(transfer.file);
	kvfree(transfer.pieces);
}
