// SPDX-License-Identifier: GPL-2.0-only
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/wait.h>

#include "gpu.h"
#include "rm/tree.h"
#include "rmcall.h"

static_assert(RM_GPUS == RM_GPU_NONE);

static struct ds_gpu gpus[RM_GPUS];
static DEFINE_MUTEX(gpus_lock);

/* What is being asked, so that a GPU may not be taken for another. */
static atomic_t asking;
static DECLARE_WAIT_QUEUE_HEAD(answered);

/* Of whoever waits for it, and of the work item. */
struct question {
	struct work_struct work;
	refcount_t refs;
	bool given_up;		/* by now the handle may name another GPU's subdevice; gpus_lock */
	bool done;		/* written under gpus_lock */
	u32 gpu, client, subdevice;
};

static void put_question(struct question *question)
{
	if (refcount_dec_and_test(&question->refs))
		kfree(question);
}

static void ask(struct work_struct *work)
{
	struct question *question = container_of(work, struct question, work);
	char uuid[sizeof(gpus[0].uuid)];
	u64 total;

	ds_rm_gpu_uuid(question->client, question->subdevice, uuid, sizeof(uuid));
	ds_rm_gpu_total(question->client, question->subdevice, &total);
	mutex_lock(&gpus_lock);
	/* what the driver did not tell the next one is asked again */
	if (uuid[0] && !question->given_up)
		strscpy(gpus[question->gpu].uuid, uuid, sizeof(uuid));
	if (total && !question->given_up)
		gpus[question->gpu].total = total;
	WRITE_ONCE(question->done, true);
	mutex_unlock(&gpus_lock);
	atomic_dec(&asking);
	wake_up_all(&answered);
	put_question(question);
}

static void give_up(struct question *question)
{
	bool done;

	mutex_lock(&gpus_lock);
	done = question->done;
	question->given_up = true;
	mutex_unlock(&gpus_lock);
	if (!done && !fatal_signal_pending(current))
		pr_warn_ratelimited("the driver has not said within %u s who GPU %u is: it is shown without a name until the next program makes a subdevice there, when the driver is asked again. If that goes on, look in the log for what the driver says of this GPU\n",
				    DS_RM_PATIENCE / HZ, question->gpu);
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
	refcount_set(&question->refs, 2);
	question->gpu = gpu;
	question->client = client;
	question->subdevice = subdevice;
	INIT_WORK(&question->work, ask);
	atomic_inc(&asking);
	queue_work(ds_rm_queue, &question->work);
	/* until the caller goes on the handle names no other GPU's subdevice */
	if (wait_event_killable_timeout(answered, READ_ONCE(question->done), DS_RM_PATIENCE) <= 0)
		give_up(question);
	put_question(question);
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
	/* it may be one of those that are being asked: rather of none than taken for a second one */
	if (!all_named() && wait_event_killable_timeout(answered, !atomic_read(&asking), DS_RM_PATIENCE) <= 0) {
		pr_warn_ratelimited("the driver has not said within %u s who the GPUs are: memory of client %#x that is older than this module counts on the first GPU\n",
				    DS_RM_PATIENCE / HZ, client);
		return RM_GPU_NONE;
	}
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
