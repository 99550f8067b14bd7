// SPDX-License-Identifier: GPL-2.0-only
#include "binding.h"
#include "driver.h"
#include "memref.h"

static bool is_control_file(const struct file *file)
{
	return iminor(file_inode(file)) == DS_CTL_MINOR;
}

/* The caller's file itself, held and locked. */
static long lock_own(struct ds_call *call)
{
	long err;

	call->known = ds_file_get(call->file);
	if (!call->known)
		return -ENOMEM;
	err = mutex_lock_killable(&call->known->order);
	if (err) {
		ds_file_put(call->known);
		call->known = NULL;
	}
	return err;
}

static void unlock(struct ds_call *call)
{
	ds_memrefs_unlock(call->known);
	ds_file_put(call->known);
	call->known = NULL;
}

/* From the caller's file to another, held already. Never are two locked at once. */
static long step_to(struct ds_call *call, struct ds_file *file)
{
	long err;

	unlock(call);
	err = mutex_lock_killable(&file->order);
	if (err)
		ds_file_put(file);
	else
		call->known = file;
	return err;
}

void ds_binding_register(struct ds_call *call)
{
	struct ds_file *taken = NULL;

	/* calls on the file wait: none goes by the binding before it is remembered */
	call->ret = lock_own(call);
	if (call->ret)
		return;
	call->shadow->taken = &taken;
	if (ds_call_driver(call)) {
		if (taken && !call->known->bound)
			swap(call->known->bound, taken);
		else
			call->known->astray = true;
		call->known->asked = true;
	}
	ds_file_put(taken);
	unlock(call);
}

/* The other file that the client named is on, held; NULL: it is on this one, or nowhere. */
static struct ds_file *elsewhere(const struct ds_call *call)
{
	struct ds_file *file = NULL;
	struct ds_client *client;

	if (ds_client_of_file(call->known, call->asked.client))
		return NULL;
	down_read(&ds_clients_lock);
	client = ds_client_find(call->asked.client);
	if (client && client->file != call->known)
		file = ds_file_hold(client->file);
	up_read(&ds_clients_lock);
	return file;
}

/*
 * A binding that was not seen, most likely older than this module: the driver is asked whether the caller's file may
 * use the client, and once more when nobody can free the client meanwhile.
 */
static long step_to_client(struct ds_call *call)
{
	struct ds_file *file;
	long err = 0;

	if (!call->asked.client || !ds_enforcing())
		return 0;
	while (!err) {
		file = elsewhere(call);
		if (!file)
			return 0;
		if (!ds_call_may_use(call, call->asked.client)) {
			ds_file_put(file);
			return 0;
		}
		err = step_to(call, file);
		if (err)
			return err;
		if (ds_client_of_file(call->known, call->asked.client) && ds_call_may_use(call, call->asked.client))
			return 0;
		unlock(call);
		err = lock_own(call);
	}
	return err;
}

long ds_binding_lock(struct ds_call *call)
{
	long err = lock_own(call);

	if (err)
		return err;
	if (call->known->bound)
		return step_to(call, ds_file_hold(call->known->bound));
	return step_to_client(call);
}

bool ds_binding_astray(struct ds_call *call)
{
	struct ds_file *file = call->known;

	if (file->file != call->file || !is_control_file(call->file))
		return false;
	if (!file->asked && (ds_driver_older_clients() || !ds_driver_sees_files())) {
		file->astray = ds_call_is_bound(call);
		file->asked = true;
	}
	return file->astray;
}
