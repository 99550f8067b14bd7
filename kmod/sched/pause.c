// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/slab.h>

#include "channels.h"
#include "off.h"
#include "ontime.h"
#include "pause.h"
#include "rmcall.h"
#include "subdevice.h"

#define RETRY_FIRST_MS 100
#define RETRY_MOST_MS 500	/* a program stands still for so long after the driver does it again */
/* Handles that vanish between the look and the call are looked for anew, so often. */
#define TRIES 3
#define CALL_NS (600 * NSEC_PER_USEC)	/* what a pause takes on an H100 */
#define RESUME_TIMEOUT (10 * HZ)

/* Channels of one entity for one call. */
struct batch {
	u32 client, subdevice;
	struct ds_subdevice made;	/* in the entity's client, if nobody has one */
	unsigned int count;
	struct rm_channel channels[RM_CHANNELS_MAX];
};

/* ---- what is there ------------------------------------------------------------- */

/* Any will do: the program's own first, it lives as long as its channels, as does one that was made for this. Under ds_clients_lock. */
static bool find_subdevice(struct ds_client *own, u32 gpu, struct batch *batch)
{
	struct ds_client *client = own;

	mutex_lock(&client->tree);
	batch->subdevice = ds_subdevice_of(client, gpu);
	mutex_unlock(&client->tree);
	batch->client = client->rm.handle;
	if (!batch->subdevice)
		batch->subdevice = batch->made.handle;
	if (batch->subdevice)
		return true;
	list_for_each_entry(client, &ds_clients, link) {
		mutex_lock(&client->tree);
		batch->subdevice = ds_subdevice_of(client, gpu);
		mutex_unlock(&client->tree);
		batch->client = client->rm.handle;
		if (batch->subdevice)
			return true;
	}
	return false;
}

/* Who has channels has a device, and a device without a subdevice can get one. */
static bool make_subdevice(struct ds_entity *entity, struct batch *batch)
{
	struct ds_client *client = ds_entity_client_lock(entity);
	u32 device;

	if (!client)
		return false;
	mutex_lock(&client->tree);
	device = ds_device_of(client, entity->gpu);
	mutex_unlock(&client->tree);
	ds_entity_client_unlock();
	return device && !ds_subdevice_make(entity->client, device, &batch->made);
}

/* Under client->tree. */
static void count_off(struct ds_entity *entity, struct ds_client *client)
{
	struct rm_object *object = NULL;
	unsigned int count = 0;
	unsigned long flags;

	while ((object = rm_tree_next(&client->rm, object)))
		count += object->kind == RM_KIND_CHANNEL && object->gpu == entity->gpu && state_of(object) != ON;
	spin_lock_irqsave(&entity->runq->lock, flags);
	entity->pause.channels = count;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
}

/*
 * The next channels for one call: those that are in one of these states (a mask). 0: there are none, or nobody through whom to ask. -ESRCH:
 * the client has gone; -EOPNOTSUPP; -ENODEV: no subdevice.
 */
static int collect(struct ds_entity *entity, bool off, u32 states, struct batch *batch)
{
	struct ds_client *client = ds_entity_client_lock(entity);
	struct rm_object *object = NULL;
	int err = 0;

	batch->count = 0;
	if (!client)
		return -ESRCH;
	if (off && ds_shares_groups(entity->process)) {
		err = -EOPNOTSUPP;
		goto unlock;
	}
	if (!find_subdevice(client, entity->gpu, batch)) {
		err = -ENODEV;
		goto unlock;
	}
	mutex_lock(&client->tree);
	while (batch->count < RM_CHANNELS_MAX && (object = rm_tree_next(&client->rm, object))) {
		/* one that went off and looks like none of ours by now is turned on all the same */
		if (object->kind != RM_KIND_CHANNEL || !(states & BIT(state_of(object))) || object->gpu != entity->gpu ||
		    (off && object->flags & RM_OBJECT_DUP))
			continue;
		set_state(object, GOING);
		batch->channels[batch->count++] = (struct rm_channel){ client->rm.handle, object->handle };
	}
	mutex_unlock(&client->tree);
unlock:
	ds_entity_client_unlock();
	return err;
}

/* The driver has answered. */
static void write_down(struct ds_entity *entity, const struct batch *batch, bool off, u32 status)
{
	struct ds_client *client = ds_entity_client_lock(entity);
	struct rm_object *channel;
	unsigned int i;

	if (!client)
		return;
	mutex_lock(&client->tree);
	for (i = 0; i < batch->count; i++) {
		channel = rm_tree_find(&client->rm, batch->channels[i].channel);
		if (!channel || channel->kind != RM_KIND_CHANNEL)
			continue;
		if (state_of(channel) != GOING)
			/* another one that got the same handle: it may have been meant */
			set_state(channel, off ? UNSURE : state_of(channel));
		else
			set_state(channel, status ? UNSURE : off ? OFF : ON);
	}
	count_off(entity, client);
	mutex_unlock(&client->tree);
	ds_entity_client_unlock();
}

/* ---- to and fro ------------------------------------------------------------------ */

static u32 call(struct ds_entity *entity, struct batch *batch, bool off)
{
	struct ds_entity_pause *pause = &entity->pause;
	u64 begin = ktime_get_ns(), effect;
	u32 status;

	spin_lock_irq(&entity->runq->lock);
	pause->moving_ns = begin;
	pause->moves |= 1;
	spin_unlock_irq(&entity->runq->lock);
	status = ds_rm_disable(batch->client, batch->subdevice, batch->channels, batch->count, off);
	/* when within the call it happened nobody tells; a call that takes long has waited to be told, not to happen */
	effect = begin + min_t(u64, ktime_get_ns() - begin, CALL_NS) / 2;
	write_down(entity, batch, off, status);
	spin_lock_irq(&entity->runq->lock);
	pause->status = status;
	if (!status && off)
		pause->off_ns = effect;
	else if (!status)
		pause->on_ns = effect;
	spin_unlock_irq(&entity->runq->lock);
	return status;
}

/* All channels in one of these states. 0; -EIO: the driver refuses; -EREMOTEIO: by another's subdevice; -ESRCH, -EOPNOTSUPP, -ENODEV: as collect(). */
static int turn(struct ds_entity *entity, struct batch *batch, bool off, u32 states)
{
	unsigned int tries = 0;
	u32 status;
	bool lost;
	int err;

	for (;;) {
		err = collect(entity, off, states, batch);
		if (err || !batch->count)
			return err;
		status = call(entity, batch, off);
		lost = status && ds_off_drop_lost(entity, batch->channels, batch->count);
		/* another's subdevice may be going with its program */
		if (status == DS_RM_GONE || (status && !lost && batch->client != entity->client))
			return status == DS_RM_GONE ? -ENODEV : -EREMOTEIO;
		if (status && !lost && ++tries == TRIES)
			return -EIO;
		/* failed, so all of them are unsure now; what they are for certain is on, once turned on */
		if (status && off)
			err = turn(entity, batch, false, BIT(UNSURE));
		else if (status)
			states |= BIT(UNSURE);
		if (err)
			return err;
	}
}

static int turn_all(struct ds_entity *entity, struct batch *batch, bool off)
{
	int err = turn(entity, batch, false, off ? BIT(UNSURE) : BIT(UNSURE) | BIT(OFF));

	return err || !off ? err : turn(entity, batch, true, BIT(ON));
}

static int carry_out(struct ds_entity *entity, bool off)
{
	struct batch *batch = kmalloc(sizeof(*batch), GFP_KERNEL);
	unsigned int tries = 0;
	bool borrowed = false;
	int err;

	if (!batch)
		return -ENOMEM;
	batch->made = (struct ds_subdevice){ 0 };
	err = turn_all(entity, batch, off);
	/* what another question of ours had made goes with that one */
	while ((err == -ENODEV || err == -EREMOTEIO || (err == -EIO && borrowed)) && tries++ < TRIES && make_subdevice(entity, batch)) {
		borrowed = !batch->made.ours;
		err = turn_all(entity, batch, off);
		ds_subdevice_done(&batch->made);
	}
	kfree(batch);
	return err;
}

static void queue(struct ds_entity *entity)
{
	ds_entity_hold(entity);
	if (!queue_work(ds_rm_queue, &entity->pause.work))
		ds_entity_put(entity);
}

static void tell(struct ds_entity *entity, bool off)
{
	struct ds_event_entity event;
	u32 reasons;

	spin_lock_irq(&entity->runq->lock);
	reasons = entity->pause.wanted;
	spin_unlock_irq(&entity->runq->lock);
	ds_entity_event(entity, &event);
	ds_event_hold(off ? DETSHARE_CMD_PAUSED : DETSHARE_CMD_RESUMED, &event, ktime_get_ns(), reasons | ds_gate_reasons(entity->gate));
}

/* What could not be done is tried again, less and less often; what cannot be paused at all is not. */
static void try_later(struct ds_entity *entity, int err, bool off)
{
	struct ds_entity_pause *pause = &entity->pause;
	unsigned int ms;

	if (err == -ESRCH || (off && err == -EOPNOTSUPP) || READ_ONCE(entity->gone) || READ_ONCE(pause->forgotten))
		return;
	ms = min_t(unsigned int, RETRY_FIRST_MS << min(pause->failures, 10U), RETRY_MOST_MS);
	pause->failures++;
	ds_entity_hold(entity);
	if (!queue_delayed_work(ds_rm_queue, &pause->retry, msecs_to_jiffies(ms)))
		ds_entity_put(entity);
	/* dropped meanwhile: ds_pause_drop_entity() may have looked too early, and nobody else stops the timer */
	if (READ_ONCE(entity->gone) && cancel_delayed_work(&pause->retry))
		ds_entity_put(entity);
}

static void work(struct work_struct *item)
{
	struct ds_entity *entity = container_of(item, struct ds_entity, pause.work);
	struct ds_entity_pause *pause = &entity->pause;
	bool off, was, more;
	u64 asked;
	int err;

	do {
		spin_lock_irq(&entity->runq->lock);
		off = pause->wanted;
		was = pause->off;
		asked = pause->asked;
		spin_unlock_irq(&entity->runq->lock);
		err = carry_out(entity, off);
		spin_lock_irq(&entity->runq->lock);
		if (err == -ESRCH)
			pause->channels = 0;
		pause->err = off ? err : 0;
		/* a pause that was refused may have left some off; they are being turned on */
		pause->off = err == -ESRCH ? false : off ? !err : pause->channels;
		pause->stuck = pause->off && !off;
		ds_ontime_settle(pause, was);
		pause->settled = asked;
		pause->moving_ns = 0;
		pause->moves += pause->moves & 1;
		more = pause->asked != asked;
		spin_unlock_irq(&entity->runq->lock);
		wake_up_all(&pause->wait);
		if (was != pause->off)
			tell(entity, pause->off);
	} while (more);
	if (err)
		try_later(entity, err, off);
	else
		pause->failures = 0;
	ds_runq_scan(entity->runq);
	ds_entity_put(entity);
}

static void retry(struct work_struct *item)
{
	struct ds_entity *entity = container_of(to_delayed_work(item), struct ds_entity, pause.retry);

	queue(entity);
	ds_entity_put(entity);
}

void ds_pause_want(struct ds_entity *entity, u32 reason, bool paused)
{
	struct ds_entity_pause *pause = &entity->pause;
	unsigned long flags;
	bool before, changed;

	spin_lock_irqsave(&entity->runq->lock, flags);
	before = pause->wanted;
	pause->wanted = paused ? pause->wanted | reason : pause->wanted & ~reason;
	changed = before != !!pause->wanted;
	pause->asked += changed;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
	if (changed)
		queue(entity);
}

static bool is_settled(struct ds_entity *entity, u64 asked)
{
	unsigned long flags;
	bool settled;

	spin_lock_irqsave(&entity->runq->lock, flags);
	settled = entity->pause.settled >= asked || entity->gone;
	spin_unlock_irqrestore(&entity->runq->lock, flags);
	return settled;
}

int ds_pause_wait(struct ds_entity *entity, unsigned long timeout)
{
	u64 asked;
	long left;

	spin_lock_irq(&entity->runq->lock);
	asked = entity->pause.asked;
	spin_unlock_irq(&entity->runq->lock);
	left = wait_event_killable_timeout(entity->pause.wait, is_settled(entity, asked), timeout);
	return left < 0 ? -EINTR : left ? 0 : -ETIMEDOUT;
}

/* ---- channels that come and go ------------------------------------------------------ */

void ds_pause_channel_new(struct ds_client *client, u32 handle)
{
	struct rm_object *channel;
	struct ds_vctx *vctx;
	struct ds_entity *entity;
	bool wanted = false;

	mutex_lock(&client->tree);
	channel = rm_tree_find(&client->rm, handle);
	vctx = channel ? ds_vctx_find(client, channel->gpu) : NULL;
	entity = vctx ? vctx->entity : NULL;
	if (entity) {
		spin_lock_irq(&entity->runq->lock);
		wanted = entity->pause.wanted;
		entity->pause.asked += wanted;
		spin_unlock_irq(&entity->runq->lock);
	}
	mutex_unlock(&client->tree);
	/* the order of the file is held, so the entity stays */
	if (!wanted)
		return;
	queue(entity);
	ds_pause_wait(entity, MAX_SCHEDULE_TIMEOUT);
}

/* The index-th entity of a process, held; NULL: it has no so many. */
struct of_process {
	const struct ds_process *process;
	unsigned int index;
	struct ds_entity *found;
};

static int at_index(struct ds_entity *entity, void *data)
{
	struct of_process *search = data;

	if (entity->process != search->process || search->index--)
		return 0;
	search->found = ds_entity_hold(entity);
	return 1;
}

static void doubt(struct ds_entity *entity)
{
	struct ds_client *client = ds_entity_client_lock(entity);
	struct rm_object *object = NULL;
	bool any = false;

	if (!client)
		return;
	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		if (object->kind != RM_KIND_CHANNEL || object->gpu != entity->gpu || state_of(object) == ON)
			continue;
		set_state(object, UNSURE);
		any = true;
	}
	mutex_unlock(&client->tree);
	ds_entity_client_unlock();
	if (!any)
		return;
	spin_lock_irq(&entity->runq->lock);
	entity->pause.asked++;
	spin_unlock_irq(&entity->runq->lock);
	queue(entity);
}

void ds_pause_doubt(const struct ds_process *process)
{
	unsigned int i;

	for (i = 0;; i++) {
		struct of_process search = { .process = process, .index = i };

		if (!ds_entities_each(at_index, &search))
			break;
		doubt(search.found);
		ds_entity_put(search.found);
	}
}

void ds_pause_channel_gone(struct ds_client *client, struct rm_object *channel)
{
	struct ds_vctx *vctx = ds_vctx_find(client, channel->gpu);
	unsigned long flags;

	if (state_of(channel) == ON || !vctx || !vctx->entity)
		return;
	spin_lock_irqsave(&vctx->entity->runq->lock, flags);
	vctx->entity->pause.channels -= !!vctx->entity->pause.channels;
	spin_unlock_irqrestore(&vctx->entity->runq->lock, flags);
}

/* ---- for runq.c ----------------------------------------------------------------------- */

void ds_pause_init_entity(struct ds_entity *entity)
{
	INIT_WORK(&entity->pause.work, work);
	INIT_DELAYED_WORK(&entity->pause.retry, retry);
	init_waitqueue_head(&entity->pause.wait);
}

void ds_pause_drop_entity(struct ds_entity *entity)
{
	if (cancel_delayed_work(&entity->pause.retry))
		ds_entity_put(entity);
	wake_up_all(&entity->pause.wait);
}

static bool is_on(struct ds_entity *entity)
{
	unsigned long flags;
	bool on;

	spin_lock_irqsave(&entity->runq->lock, flags);
	on = entity->gone || (entity->pause.settled == entity->pause.asked && !entity->pause.channels);
	spin_unlock_irqrestore(&entity->runq->lock, flags);
	return on;
}

bool ds_pause_wait_resumed(struct ds_entity *entity, bool patient)
{
	if (wait_event_timeout(entity->pause.wait, is_on(entity), patient ? RESUME_TIMEOUT : 0))
		return true;
	pr_err("%u channels of process %d stay off the run list: the driver refuses to put them back (status %#x)\n",
	       entity->pause.channels, ds_process_nr(entity->process), entity->pause.status);
	return false;
}

void ds_pause_forget(struct ds_entity *entity)
{
	WRITE_ONCE(entity->pause.forgotten, true);
	/* what had begun before may have started the timer, and the timer another one, which starts none */
	flush_work(&entity->pause.work);
	if (cancel_delayed_work_sync(&entity->pause.retry))
		ds_entity_put(entity);
	flush_work(&entity->pause.work);
}
