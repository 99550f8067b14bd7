// SPDX-License-Identifier: GPL-2.0-only
#include <linux/bitops.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "ceiling.h"
#include "client.h"
#include "rmcall.h"
#include "subdevice.h"

#define SHARES_MAX 64	/* context shares of one channel group */

static struct gpu {
	enum detshare_ability ability;
	u32 status;		/* the driver's no */
	unsigned int tpcs;	/* 0: not asked yet */
} gpus[RM_GPUS];
static DEFINE_MUTEX(gpus_lock);	/* a leaf */

/* What a ceiling is set on: the channel group's context shares, and who is asked how many TPCs there are. */
struct ground {
	bool computes;		/* it has a compute object */
	u32 device, subdevice;
	unsigned int count;
	u32 shares[SHARES_MAX];
};

static bool scan(u32 client_handle, u32 tsg_handle, struct ground *ground)
{
	struct ds_client *client;
	struct rm_object *tsg, *object;

	*ground = (struct ground){ 0 };
	down_read(&ds_clients_lock);
	client = ds_client_find(client_handle);
	if (!client) {
		up_read(&ds_clients_lock);
		return false;
	}
	mutex_lock(&client->tree);
	tsg = rm_tree_find(&client->rm, tsg_handle);
	if (tsg) {
		ground->computes = rm_tree_computes(&client->rm, tsg);
		for (object = rm_tree_child(&client->rm, tsg); object; object = rm_tree_sibling(&client->rm, object))
			if (object->kind == RM_KIND_CTXSHARE && ground->count < SHARES_MAX)
				ground->shares[ground->count++] = object->handle;
		ground->device = ds_device_of(client, tsg->gpu);
		ground->subdevice = ds_subdevice_of(client, tsg->gpu);
	}
	mutex_unlock(&client->tree);
	up_read(&ds_clients_lock);
	return tsg;
}

static u32 ask(u32 client, const struct ground *ground, unsigned int *tpcs)
{
	struct ds_subdevice made;
	u32 status;

	if (ground->subdevice)
		return ds_rm_gpu_tpcs(client, ground->subdevice, tpcs);
	if (ds_subdevice_make(client, ground->device, &made))
		return NV_ERR_OBJECT_NOT_FOUND;
	status = ds_rm_gpu_tpcs(client, made.handle, tpcs);
	ds_subdevice_done(&made);
	return status;
}

/* Once for each GPU. */
static u32 count_tpcs(u32 gpu, u32 client, const struct ground *ground, unsigned int *tpcs)
{
	u32 status;

	mutex_lock(&gpus_lock);
	*tpcs = gpus[gpu].tpcs;
	mutex_unlock(&gpus_lock);
	if (*tpcs)
		return NV_OK;
	status = ask(client, ground, tpcs);
	if (status)
		return status;
	mutex_lock(&gpus_lock);
	gpus[gpu].tpcs = *tpcs;
	mutex_unlock(&gpus_lock);
	return NV_OK;
}

/*
 * The mode first, then a table for each context share. The mode is never taken back: an H100 refused that and the program hung (docs/results,
 * driver-calls-h100). Without a table it changes nothing, and a table of all TPCs is no ceiling.
 */
static u32 set(u32 client, u32 tsg, const struct ground *ground, unsigned int used)
{
	unsigned int i;
	u32 status;

	status = ds_rm_tpc_mode(client, tsg, RM_TPC_STATIC, false);
	for (i = 0; !status && i < ground->count; i++)
		status = ds_rm_tpc_table(client, ground->shares[i], used);
	return status;
}

/* Is it this driver that cannot, or this channel group? */
static bool is_inability(u32 status)
{
	return status == NV_ERR_NOT_SUPPORTED || status == NV_ERR_INSUFFICIENT_PERMISSIONS || status == NV_ERR_INVALID_COMMAND;
}

static void learn(u32 gpu, u32 status)
{
	bool news;

	if (status && !is_inability(status))
		return;
	mutex_lock(&gpus_lock);
	news = gpus[gpu].ability == DETSHARE_ABILITY_UNKNOWN;
	gpus[gpu].ability = status ? DETSHARE_ABILITY_ABSENT : DETSHARE_ABILITY_PRESENT;
	gpus[gpu].status = status;
	mutex_unlock(&gpus_lock);
	if (news && status)
		pr_warn("the driver refuses TPC ceilings on GPU %u (status %#x): none is set there\n", gpu, status);
}

u32 ds_ceiling_set(u32 gpu, u32 client, u32 tsg, u32 percent, bool *is_set)
{
	struct ground *ground;
	unsigned int tpcs;
	u32 status;

	*is_set = false;
	if (gpu >= RM_GPUS)
		return NV_ERR_INVALID_ARGUMENT;
	if (percent && ds_ceiling_ability(gpu, &status) == DETSHARE_ABILITY_ABSENT)
		return status;
	ground = kmalloc(sizeof(*ground), GFP_KERNEL);
	if (!ground)
		return NV_ERR_NO_MEMORY;
	status = NV_OK;
	if (!scan(client, tsg, ground))
		goto free;
	/* told by sched.c when there is something to cap */
	if (!ground->computes || !ground->count)
		goto free;
	status = count_tpcs(gpu, client, ground, &tpcs);
	if (!status)
		status = set(client, tsg, ground, rm_tpcs_of(tpcs, percent ?: 100));
	learn(gpu, status);
	*is_set = !status;
free:
	kfree(ground);
	return status;
}

bool ds_ceiling_again(u32 status)
{
	return status == NV_ERR_OBJECT_NOT_FOUND || status == NV_ERR_BUSY_RETRY || status == NV_ERR_NO_MEMORY;
}

enum detshare_ability ds_ceiling_ability(u32 gpu, u32 *status)
{
	enum detshare_ability ability = DETSHARE_ABILITY_UNKNOWN;

	*status = NV_OK;
	if (gpu >= RM_GPUS)
		return ability;
	mutex_lock(&gpus_lock);
	ability = gpus[gpu].ability;
	*status = gpus[gpu].status;
	mutex_unlock(&gpus_lock);
	return ability;
}

void ds_ceiling_forget(void)
{
	mutex_lock(&gpus_lock);
	memset(gpus, 0, sizeof(gpus));
	mutex_unlock(&gpus_lock);
}
