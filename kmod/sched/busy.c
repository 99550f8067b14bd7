// SPDX-License-Identifier: GPL-2.0-only
#include <linux/bitops.h>
#include <linux/completion.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "bucket.h"
#include "busy.h"
#include "channels.h"
#include "detshare_uapi.h"
#include "sharer.h"
#include "rmcall.h"
#include "entity.h"

static bool ask_busy = true;
module_param(ask_busy, bool, 0644);
MODULE_PARM_DESC(ask_busy, "ask the driver whether programs that show no life still run something (default: y)");

/*
 * An answer takes a fraction of a millisecond. A driver that takes longer than this so often in a row does not answer, but idles channels; or
 * somebody holds its locks. So it is asked again some time later, and if it is slow then, after a longer time.
 */
#define SLOW_NS NSEC_PER_SEC
#define SLOW_MOST 3
#define REST_S 10
#define LONG_REST_S 60
/* New channels that are asked about in a row, and then once in so long, until the driver has called somebody idle. */
#define TRIES_MOST 3
#define TRY_AGAIN_NS NSEC_PER_SEC

static struct gpu {
	enum detshare_ability ability;
	unsigned int slow;	/* answers in a row, to questions that did not wait together */
	u64 slow_ns;		/* when the last of them came, ktime */
	u64 rest_ns;		/* not asked until then, ktime */
	unsigned int tries;	/* with new channels */
	u64 tried_ns;		/* the last time, ktime */
} gpus[RM_GPUS];
static DEFINE_MUTEX(gpus_lock);	/* a leaf */

static bool rests(const struct gpu *known, u64 now)
{
	return now < READ_ONCE(known->rest_ns);
}

bool ds_busy_can(u32 gpu)
{
	return READ_ONCE(ask_busy) && gpu < RM_GPUS && READ_ONCE(gpus[gpu].ability) != DETSHARE_ABILITY_ABSENT &&
	       !rests(&gpus[gpu], ktime_get_ns());
}

bool ds_busy_rests(u32 gpu)
{
	return READ_ONCE(ask_busy) && gpu < RM_GPUS && READ_ONCE(gpus[gpu].ability) == DETSHARE_ABILITY_PRESENT &&
	       rests(&gpus[gpu], ktime_get_ns());
}

void ds_busy_forget(void)
{
	mutex_lock(&gpus_lock);
	memset(gpus, 0, sizeof(gpus));
	mutex_unlock(&gpus_lock);
}

/* ---- what the driver is good for --------------------------------------------- */

static enum ds_busy meaning(u32 status)
{
	switch (status) {
	case NV_OK:
		return DS_BUSY_NO;
	case NV_ERR_TIMEOUT:
	case NV_ERR_BUSY_RETRY:
		return DS_BUSY_YES;
	case DS_RM_GONE:
		return DS_BUSY_UNKNOWN;
	default:
		return DS_BUSY_UNSURE;
	}
}

/* Is it this driver that cannot tell, or are it these channels? */
static bool is_inability(u32 status)
{
	return status == NV_ERR_NOT_SUPPORTED || status == NV_ERR_INSUFFICIENT_PERMISSIONS || status == NV_ERR_INVALID_COMMAND ||
	       status == NV_ERR_INVALID_FLAGS || status == NV_ERR_INVALID_ARGUMENT;
}

/* gpus_lock is held. How long it is left alone from now on, in seconds; 0: it is not. */
static unsigned int learn_pace(struct gpu *known, u64 begin, u64 took)
{
	unsigned int seconds;

	if (took <= SLOW_NS) {
		known->slow = 0;
		return 0;
	}
	if (begin < known->slow_ns)
		return 0;
	known->slow_ns = begin + took;
	if (++known->slow < SLOW_MOST)
		return 0;
	seconds = known->slow == SLOW_MOST ? REST_S : LONG_REST_S;
	WRITE_ONCE(known->rest_ns, known->slow_ns + seconds * NSEC_PER_SEC);
	return seconds;
}

/*
 * Only "idle" shows that the driver can tell, and nobody can make it say that of what runs. A program can bring about all else: a refusal is
 * believed of who never said it, and until then.
 */
static void learn(u32 gpu, u32 status, u64 begin, u64 took)
{
	struct gpu *known = &gpus[gpu];
	unsigned int seconds;
	bool refuses = false;

	mutex_lock(&gpus_lock);
	seconds = learn_pace(known, begin, took);
	if (meaning(status) == DS_BUSY_NO) {
		WRITE_ONCE(known->ability, DETSHARE_ABILITY_PRESENT);
	} else if (known->ability == DETSHARE_ABILITY_UNKNOWN && is_inability(status)) {
		refuses = true;
		WRITE_ONCE(known->ability, DETSHARE_ABILITY_ABSENT);
	}
	mutex_unlock(&gpus_lock);
	if (refuses)
		pr_warn("the driver is not asked on GPU %u whether programs still run something: it refuses (status %#x). Kernels longer than a millisecond look idle\n",
			gpu, status);
	if (seconds)
		pr_warn("the driver is not asked on GPU %u for %u s whether programs still run something: it takes too long. Who has a bucket counts as busy from its launches on, of others kernels longer than a millisecond look idle\n",
			gpu, seconds);
}

/* ---- one question -------------------------------------------------------------- */

struct question {
	bool counted;	/* the entity pays for its GPU time */
	u32 client, device;
	unsigned int count;
	u32 channels[RM_CHANNELS_MAX];
};

static u32 device_above(const struct ds_client *client, const struct rm_object *object)
{
	while (object && object->kind != RM_KIND_DEVICE)
		object = rm_tree_parent(&client->rm, object);
	return object ? object->handle : 0;
}

/* The next channels of the entity's, from the skip-th on. false: there are none, or they are not to be asked about. */
static bool collect(const struct ds_entity *entity, unsigned int skip, struct question *question)
{
	struct ds_client *client = ds_entity_client_lock(entity);
	struct rm_object *object = NULL;

	question->count = 0;
	if (!client)
		return false;
	mutex_lock(&client->tree);
	question->client = client->rm.handle;
	while (question->count < RM_CHANNELS_MAX && (object = rm_tree_next(&client->rm, object))) {
		if (!ds_channel_computes(client, object, entity->gpu) || (skip && skip--))
			continue;
		question->device = device_above(client, object);
		question->channels[question->count++] = object->handle;
	}
	mutex_unlock(&client->tree);
	/* "busy" may be about others of its group: that is for who pays, and not for who waits for it */
	if (!question->counted && ds_shares_groups(entity->process))
		question->count = 0;
	ds_entity_client_unlock();
	return question->count && question->device;
}

/* *asked: about when the driver looked. */
static u32 ask(u32 gpu, const struct question *question, u64 *asked)
{
	u64 begin = ktime_get_ns(), took, near;
	u32 status;

	status = ds_rm_ask_idle(question->client, question->device, question->channels, question->count);
	took = ktime_get_ns() - begin;
	/* nobody tells when within the call: "busy" when it has waited for "idle", which may have been told late */
	near = min_t(u64, took, NSEC_PER_MSEC / 2) / 2;
	*asked = begin + (meaning(status) == DS_BUSY_YES ? took - near : near);
	if (status != DS_RM_GONE)
		learn(gpu, status, begin, took);
	return status;
}

/* Busy if any of its channels is; who was never heard to say no is not believed. */
static enum ds_busy ask_all(const struct ds_entity *entity, struct question *question, u64 *asked)
{
	enum ds_busy said = DS_BUSY_UNKNOWN;
	unsigned int skip = 0;

	*asked = ktime_get_ns();
	question->counted = ds_bucket_meant(entity->process);
	while (collect(entity, skip, question)) {
		said = meaning(ask(entity->gpu, question, asked));
		if (said != DS_BUSY_NO)
			break;
		skip += question->count;
	}
	if (said != DS_BUSY_NO && READ_ONCE(gpus[entity->gpu].ability) != DETSHARE_ABILITY_PRESENT)
		return DS_BUSY_UNKNOWN;
	return said;
}

static void work(struct work_struct *item)
{
	struct ds_entity *entity = container_of(item, struct ds_entity, busy.work);
	struct question *question = kmalloc(sizeof(*question), GFP_KERNEL);
	enum ds_busy said = DS_BUSY_UNKNOWN;
	u64 begun = ktime_get_ns(), asked = begun;
	unsigned int moves;

	spin_lock_irq(&entity->runq->lock);
	moves = entity->pause.moves;
	spin_unlock_irq(&entity->runq->lock);
	if (question)
		said = ask_all(entity, question, &asked);
	kfree(question);
	spin_lock_irq(&entity->runq->lock);
	/* what may be about channels that are off is no answer */
	if (moves == entity->pause.moves && !(moves & 1) && !ds_entity_in_doubt(entity)) {
		entity->busy.said = said;
		entity->busy.begun_ns = begun;
		entity->busy.asked_ns = asked;
		entity->busy.chance = get_random_u32();
	}
	entity->busy.asking = false;
	spin_unlock_irq(&entity->runq->lock);
	ds_runq_scan(entity->runq);
	ds_entity_put(entity);
}

void ds_busy_ask(struct ds_entity *entity)
{
	bool asks;

	spin_lock_irq(&entity->runq->lock);
	asks = !entity->busy.asking && !entity->gone;
	entity->busy.asking |= asks;
	spin_unlock_irq(&entity->runq->lock);
	if (!asks)
		return;
	ds_entity_hold(entity);
	/* it is not queued: who asked last has let go of `asking` as its last word */
	if (!queue_work(ds_rm_queue, &entity->busy.work))
		ds_entity_put(entity);
}

void ds_busy_init_entity(struct ds_entity *entity)
{
	INIT_WORK(&entity->busy.work, work);
}

/* ---- a channel that has nothing to do -------------------------------------------- */

/* Of whoever waits for it, and of the work item. */
struct trial {
	struct work_struct work;
	refcount_t refs;
	struct completion done;
	u32 gpu;
	struct question question;
};

static void put_trial(struct trial *trial)
{
	if (refcount_dec_and_test(&trial->refs))
		kfree(trial);
}

static void try_it(struct work_struct *item)
{
	struct trial *trial = container_of(item, struct trial, work);
	u64 asked;

	ask(trial->gpu, &trial->question, &asked);
	complete(&trial->done);
	put_trial(trial);
}

static bool worth_a_try(u32 gpu)
{
	struct gpu *known = &gpus[gpu];
	u64 now = ktime_get_ns();
	bool worth;

	mutex_lock(&gpus_lock);
	worth = known->ability != DETSHARE_ABILITY_PRESENT && !rests(known, now) &&
		(known->tries < TRIES_MOST || now - known->tried_ns >= TRY_AGAIN_NS);
	if (worth) {
		known->tries++;
		known->tried_ns = now;
	}
	mutex_unlock(&gpus_lock);
	return worth;
}

/* false: there is nothing to try, or it was tried. */
static bool prepare(struct trial *trial, struct ds_client *client, u32 handle)
{
	struct rm_object *channel;
	bool wanted;

	mutex_lock(&client->tree);
	channel = rm_tree_find(&client->rm, handle);
	wanted = channel && channel->gpu < RM_GPUS && ds_channel_computes(client, channel, channel->gpu);
	if (wanted) {
		trial->gpu = channel->gpu;
		trial->question.client = client->rm.handle;
		trial->question.device = device_above(client, channel);
		trial->question.channels[0] = handle;
		trial->question.count = 1;
	}
	mutex_unlock(&client->tree);
	return wanted && trial->question.device && !client->shared && !ds_sharer_shares(client->process) &&
	       READ_ONCE(ask_busy) && worth_a_try(trial->gpu);
}

void ds_busy_channel_new(struct ds_client *client, u32 handle)
{
	struct trial *trial = kzalloc(sizeof(*trial), GFP_KERNEL);

	if (!trial)
		return;
	refcount_set(&trial->refs, 1);
	if (prepare(trial, client, handle)) {
		refcount_inc(&trial->refs);
		init_completion(&trial->done);
		INIT_WORK(&trial->work, try_it);
		queue_work(ds_rm_queue, &trial->work);
		/*
		 * nobody can have given a new one work: its maker does not know of it yet. One that has just got its first object may have
		 * some: the answer teaches nothing then. Nor does one that comes too late: "idle" is not said of what runs, and
		 * all else is not believed.
		 */
		if (!wait_for_completion_killable_timeout(&trial->done, DS_RM_PATIENCE))
			pr_warn_ratelimited("the driver has not said within %u s whether a new channel on GPU %u is idle: its program goes on, and the next one is asked about\n",
					    DS_RM_PATIENCE / HZ, trial->gpu);
	}
	put_trial(trial);
}
