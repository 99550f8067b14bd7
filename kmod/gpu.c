// SPDX-License-Identifier: GPL-2.0-only
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "gpu.h"
#include "rm/tree.h"
#include "rmcall.h"

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
	/* the client may have gone meanwhile; the next one is asked again then */
	if (uuid[0])
		strscpy(gpus[question->gpu].uuid, uuid, sizeof(uuid));
	if (total)
		gpus[question->gpu].total = total;
	mutex_unlock(&gpus_lock);
	kfree(question);
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
}

u32 ds_gpu_ask(u32 client, u32 subdevice)
{
	char uuid[sizeof(gpus[0].uuid)];
	u64 total;
	u32 gpu;

	ds_rm_gpu_uuid(client, subdevice, uuid, sizeof(uuid));
	ds_rm_gpu_total(client, subdevice, &total);
	mutex_lock(&gpus_lock);
	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (gpus[gpu].seen && !strcmp(gpus[gpu].uuid, uuid))
			goto found;
	for (gpu = 0; gpu < RM_GPUS - 1; gpu++)
		if (!gpus[gpu].seen)
			break;
	gpus[gpu].seen = true;
	strscpy(gpus[gpu].uuid, uuid, sizeof(uuid));
	gpus[gpu].total = total;
found:
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
