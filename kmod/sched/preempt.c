// SPDX-License-Identifier: GPL-2.0-only
#include <linux/completion.h>
#include <linux/slab.h>

#include "channels.h"
#include "preempt.h"
#include "rmcall.h"

#define TSGS_MAX 1024

struct preempt {
	struct work_struct work;
	struct completion done;
	refcount_t refs;	/* who waits, and the work */
	struct ds_sched_result result;
	unsigned int count;
	struct rm_channel tsgs[];	/* client and channel group */
};

static void put(struct preempt *preempt)
{
	if (refcount_dec_and_test(&preempt->refs))
		kvfree(preempt);
}

static void work(struct work_struct *item)
{
	struct preempt *preempt = container_of(item, struct preempt, work);
	unsigned int i;
	u32 status;

	for (i = 0; i < preempt->count; i++) {
		status = ds_rm_preempt(preempt->tsgs[i].client, preempt->tsgs[i].channel);
		if (status == NV_ERR_OBJECT_NOT_FOUND || status == NV_ERR_INVALID_OBJECT_HANDLE ||
		    status == NV_ERR_INVALID_CLIENT)
			continue;	/* it has gone, so nothing of it runs */
		if (status) {
			preempt->result.failed++;
			preempt->result.status = status;
		} else {
			preempt->result.set++;
		}
	}
	complete_all(&preempt->done);
	put(preempt);
}

static void collect(struct preempt *preempt, struct ds_client *client)
{
	struct rm_object *object = NULL;

	mutex_lock(&client->tree);
	while (preempt->count < TSGS_MAX && (object = rm_tree_next(&client->rm, object)))
		if (ds_tsg_computes(client, object) && !(object->flags & RM_OBJECT_DUP))
			preempt->tsgs[preempt->count++] = (struct rm_channel){ client->rm.handle, object->handle };
	mutex_unlock(&client->tree);
}

int ds_preempt(const struct ds_subject *subject, struct ds_sched_result *result)
{
	struct ds_subject held = *subject;
	struct preempt *preempt;
	struct ds_client *client;
	long left;
	int err;

	err = ds_subject_hold(&held);
	if (err)
		return err;
	preempt = kvzalloc(struct_size(preempt, tsgs, TSGS_MAX), GFP_KERNEL);
	if (!preempt) {
		ds_subject_put(&held);
		return -ENOMEM;
	}
	INIT_WORK(&preempt->work, work);
	init_completion(&preempt->done);
	refcount_set(&preempt->refs, 2);
	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link)
		if (ds_subject_meant(&held, client->process))
			collect(preempt, client);
	up_read(&ds_clients_lock);
	ds_subject_put(&held);
	err = preempt->count ? 0 : -ESRCH;
	if (err) {
		kvfree(preempt);
		return err;
	}
	queue_work(ds_rm_queue, &preempt->work);
	left = wait_for_completion_killable_timeout(&preempt->done, DS_RM_PATIENCE);
	err = left < 0 ? -EINTR : left ? 0 : -ETIMEDOUT;
	if (!err)
		*result = preempt->result;
	put(preempt);
	return err;
}
