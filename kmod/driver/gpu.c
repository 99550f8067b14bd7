// SPDX-License-Identifier: GPL-2.0-only
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "gpu.h"
#include "rm/tree.h"
#include "rmcall.h"

static_assert(RM_GPUS == RM_GPU_NONE);

static struct ds_gpu gpus[RM_GPUS];
static DEFINE_MUTEX(gpus_lock);

struct question {
	struct work_struct work;
	u32 gpu, client, subdevice;
};

static void ask(struct work_struct *work)
{
	struct question *question = container_of(work, struct question, work);
	char uuid[sizeof(gpus[0].uuid)];
	u64 total;

	ds_rm_gpu_uuid(question->client, question->subdevice, uuid, sizeof(uuid));
	ds_rm_gpu_total(question->client, question->subdevice, &total);
	mutex_lock(&gpus_lock);
	/* what the driver did not tell the next one is asked again */
	if (uuid[0])
		strscpy(gpus[question->gpu].uuid, uuid, sizeof(uuid));
	if (total)
		gpus[question->gpu].total = total;
	mutex_unlock(&gpus_lock);
}

void ds_gpu_seen(u32 gpu, u32 client, u32 subdevice)
{
	struct question *question;
	bool known;

	if (gpu >= RM_GPUS)
		return;
	mutex_lock(&gpus_lock);
	gpus[gpu].seen = true;
	known = gpus[gpu].uuid[0] && gpus[gpu].total;
	mutex_unlock(&gpus_lock);
	if (known)
		return;
	question = kzalloc(sizeof(*question), GFP_KERNEL);
	if (!question)
		return;
	question->gpu = gpu;
	question->client = client;
	question->subdevice = subdevice;
	INIT_WORK(&question->work, ask);
	queue_work(ds_rm_queue, &question->work);
	/* until the caller goes on the handle names no other GPU's subdevice */
	flush_work(&question->work);
	kfree(question);
}

/* Under gpus_lock. */
static u32 find_uuid(const char *uuid)
{
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (gpus[gpu].seen && !strcmp(gpus[gpu].uuid, uuid))
			return gpu;
	return RM_GPU_NONE;
}

static bool all_named(void)
{
	bool all;

	mutex_lock(&gpus_lock);
	all = find_uuid("") == RM_GPU_NONE;
	mutex_unlock(&gpus_lock);
	return all;
}

u32 ds_gpu_ask(u32 client, u32 subdevice)
{
	char uuid[sizeof(gpus[0].uuid)];
	u64 total;
	u32 gpu;

	if (ds_rm_gpu_uuid(client, subdevice, uuid, sizeof(uuid)) || !uuid[0])
		return RM_GPU_NONE;
	ds_rm_gpu_total(client, subdevice, &total);
	/* it may be one of those that are being asked */
	if (!all_named())
		flush_workqueue(ds_rm_queue);
	mutex_lock(&gpus_lock);
	gpu = find_uuid(uuid);
	if (gpu != RM_GPU_NONE)
		goto unlock;
	for (gpu = 0; gpu < RM_GPUS && gpus[gpu].seen; gpu++)
		;
	/* RM_GPUS is RM_GPU_NONE: there is no place for one more */
	if (gpu < RM_GPUS) {
		gpus[gpu].seen = true;
		strscpy(gpus[gpu].uuid, uuid, sizeof(uuid));
		gpus[gpu].total = total;
	}
unlock:
	mutex_unlock(&gpus_lock);
	return gpu;
}

bool ds_gpu_get(u32 gpu, struct ds_gpu *info)
{
	if (gpu >= RM_GPUS)
		return false;
	mutex_lock(&gpus_lock);
	*info = gpus[gpu];
	mutex_unlock(&gpus_lock);
	return info->seen;
}

unsigned int ds_gpu_count(void)
{
	unsigned int count = 0, gpu;

	mutex_lock(&gpus_lock);
	for (gpu = 0; gpu < RM_GPUS; gpu++)
		count += gpus[gpu].seen;
	mutex_unlock(&gpus_lock);
	return count;
}

void ds_gpu_forget(void)
{
	mutex_lock(&gpus_lock);
	memset(gpus, 0, sizeof(gpus));
	mutex_unlock(&gpus_lock);
}
