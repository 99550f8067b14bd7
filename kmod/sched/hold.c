// SPDX-License-Identifier: GPL-2.0-only
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "bucket.h"
#include "hold.h"
#include "lease.h"
#include "pause.h"
#include "rmcall.h"
#include "entity.h"
#include "sched.h"

/* The entities that are meant, held. */
struct meant {
	const struct ds_subject *subject;	/* held */
	unsigned int count, room;
	struct ds_entity **entities;
};

static int add(struct ds_entity *entity, void *data)
{
	struct meant *meant = data;

	if (!ds_subject_meant(meant->subject, entity->process))
		return 0;
	if (meant->count < meant->room)
		meant->entities[meant->count] = ds_entity_hold(entity);
	meant->count++;
	return 0;
}

static void put_meant(struct meant *meant)
{
	unsigned int i;

	for (i = 0; i < min(meant->count, meant->room); i++)
		ds_entity_put(meant->entities[i]);
	kvfree(meant->entities);
}

/* -ENOMEM. */
static int find_meant(struct meant *meant, const struct ds_subject *subject)
{
	unsigned int room = ds_entity_count() + 8;

	for (;;) {
		*meant = (struct meant){ .subject = subject, .room = room };
		meant->entities = kvcalloc(room, sizeof(*meant->entities), GFP_KERNEL);
		if (!meant->entities)
			return -ENOMEM;
		ds_entities_each(add, meant);
		if (meant->count <= meant->room)
			return 0;
		room = meant->count + 8;
		put_meant(meant);
	}
}

/* Why an entity cannot be paused (ds_entity_pause.err), in words. */
static const char *why_not(int err)
{
	switch (err) {
	case 0:
		return NULL;
	case -EOPNOTSUPP:
		return "it shares channel groups with other processes (MPS), and pausing one of them would hang the others";
	case -ENODEV:
		return "nobody on this GPU has a subdevice through which the driver could be asked, and it refuses to make one; it is asked again";
	case -EREMOTEIO:
		return "the driver refuses, see status, through another program's subdevice, and makes none here; it is asked again";
	case -ENOMEM:
		return "the kernel has no memory";
	default:
		return "the driver refuses, see status; it is asked again";
	}
}

static int add_result(struct ds_entity *entity, bool pause, struct ds_hold_result *result)
{
	int err;

	spin_lock_irq(&entity->runq->lock);
	err = entity->gone ? 0 : entity->pause.err;
	result->entities++;
	result->gated += !!ds_gate_reasons(entity->gate);
	result->paused += entity->pause.off;
	if (pause && !entity->pause.off && err) {
		result->failed++;
		result->why = why_not(err);
		if (err == -EIO || err == -EREMOTEIO)
			result->status = entity->pause.status;
	}
	spin_unlock_irq(&entity->runq->lock);
	return err;
}

/* *cannot: a pause was asked for, and everybody's was refused for good. */
static int wait_for_all(const struct ds_subject *subject, bool pause, u64 begin, struct ds_hold_result *result, bool *cannot)
{
	unsigned long until = jiffies + DS_RM_PATIENCE;
	unsigned int refused = 0, i;
	struct meant meant;
	int err;

	err = find_meant(&meant, subject);
	if (err)
		return err;
	for (i = 0; !err && i < meant.count; i++)
		err = ds_pause_wait(meant.entities[i], ds_rm_patience(until));
	result->pause_ns = ktime_get_ns() - begin;
	for (i = 0; i < meant.count; i++)
		refused += add_result(meant.entities[i], pause, result) == -EOPNOTSUPP;
	*cannot = pause && refused && refused == meant.count;
	put_meant(&meant);
	return err;
}

static int settle(const struct ds_subject *subject, bool pause, struct ds_hold_result *result, bool *cannot)
{
	u64 begin = ktime_get_ns();

	*result = (struct ds_hold_result){ 0 };
	if (!ds_runqs_settle())
		return -ETIMEDOUT;
	result->gate_ns = ktime_get_ns() - begin;
	return wait_for_all(subject, pause, begin, result, cannot);
}

int ds_hold_set(const struct ds_subject *subject, bool gate, bool pause, u32 lease_ms, struct ds_hold_result *result)
{
	struct ds_hold_result first;
	struct ds_subject held;
	bool cannot = false;
	u64 number;
	int err;

	err = ds_lease_set(subject, gate, pause, lease_ms, &held, &number);
	if (err)
		return err;
	ds_sched_again();
	err = settle(&held, pause, result, &cannot);
	if (!err && cannot && !gate) {
		ds_lease_refuse(&held, number);
		ds_runqs_settle();
		err = -EOPNOTSUPP;
	} else if (ds_lease_keep(&held, number)) {
		first = *result;
		ds_sched_again();
		err = err ?: settle(&held, pause, result, &cannot);
		result->gate_ns = first.gate_ns;
		result->pause_ns = first.pause_ns;
	}
	ds_subject_put(&held);
	return err;
}

int ds_hold_del(const struct ds_subject *subject, struct ds_hold_result *result)
{
	struct ds_subject held = *subject;
	struct ds_hold_result unasked;
	bool cannot;
	int err;

	/* one that is gone names nobody to wait for */
	if (!ds_lease_del(subject))
		return -ENOENT;
	ds_sched_again();
	if (ds_subject_hold(&held)) {
		ds_runqs_stale();
		return 0;
	}
	err = settle(&held, false, result ?: &unasked, &cannot);
	ds_subject_put(&held);
	return err;
}

bool ds_hold_at(unsigned int index, struct ds_hold_info *info)
{
	struct ds_lease lease;
	struct meant meant;
	unsigned int i;

	if (!ds_lease_at(index, &lease))
		return false;
	*info = (struct ds_hold_info){
		.subject = lease.subject,
		.gate = lease.gate,
		.pause = lease.pause,
		.left_ms = lease.left_ms,
	};
	if (find_meant(&meant, &info->subject))
		return true;
	for (i = 0; i < meant.count; i++)
		add_result(meant.entities[i], info->pause, &info->result);
	put_meant(&meant);
	return true;
}

void ds_hold_desert(const struct ds_subject *subject)
{
	ds_hold_del(subject, NULL);
	ds_bucket_del(subject);
}
