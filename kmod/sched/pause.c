// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/slab.h>

#include "channels.h"
#include "pause.h"
#include "rmcall.h"
#include "subdevice.h"

#define RETRY_FIRST_MS 100
#define RETRY_MOST_MS 5000
/* Handles that vanish between the look and the call are looked for anew, so often. */
#define TRIES 3
#define CALL_NS (600 * NSEC_PER_USEC)	/* what a pause takes on an H100 */
#define RESUME_TIMEOUT (10 * HZ)

/* What a channel's object (priv) says, under client->tree. */
enum state {
	ON,
	OFF,		/* once, by us */
	UNSURE,		/* a call failed: it may be off by us */
	GOING,		/* a call is under way */
};

static enum state state_of(const struct rm_object *channel)
{
	return (unsigned long)channel->priv;
}

static void set_state(struct rm_object *channel, enum state state)
{
	channel->priv = (void *)(unsigned long)state;
}

/* Channels of one run for one call. */
struct batch {
	u32 client, subdevice;
	struct ds_subdevice made;	/* in the run's client, if nobody has one */
	unsigned int count;
	struct rm_channel channels[RM_CHANNELS_MAX];
};

/* ---- what is there ------------------------------------------------------------- */

/* Any will do: the program's own first, it lives as long as its channels; one that was made for this last. Under ds_clients_lock. */
static bool find_subdevice(struct ds_client *own, u32 gpu, struct batch *batch)
{
	struct ds_client *client = own;

	mutex_lock(&client->tree);
	batch->subdevice = ds_subdevice_of(client, gpu);
	mutex_unlock(&client->tree);
	batch->client = client->rm.handle;
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
	batch->client = own->rm.handle;
	batch->subdevice = batch->made.handle;
	return batch->subdevice;
}

/* Who has channels has a device, and a device without a subdevice can get one. */
static bool make_subdevice(struct ds_run *run, struct batch *batch)
{
	struct ds_client *client = ds_run_client_lock(run);
	u32 device;

	if (!client)
		return false;
	mutex_lock(&client->tree);
	device = ds_device_of(client, run->gpu);
	mutex_unlock(&client->tree);
	ds_run_client_unlock();
	return device && !ds_subdevice_make(run->client, device, &batch->made);
}

/* Under client->tree. */
static void count_off(struct ds_run *run, struct ds_client *client)
{
	struct rm_object *object = NULL;
	unsigned int count = 0;
	unsigned long flags;

	while ((object = rm_tree_next(&client->rm, object)))
		count += object->kind == RM_KIND_CHANNEL && object->gpu == run->gpu && state_of(object) != ON;
	spin_lock_irqsave(&run->lane->lock, flags);
	run->pause.channels = count;
	spin_unlock_irqrestore(&run->lane->lock, flags);
}

/*
 * The next channels for one call: those that are in one of these states (a mask). 0: there are none, or nobody through whom to ask. -ESRCH:
 * the client has gone; -EOPNOTSUPP; -ENODEV: no subdevice.
 */
static int collect(struct ds_run *run, bool off, u32 states, struct batch *batch)
{
	struct ds_client *client = ds_run_client_lock(run);
	struct rm_object *object = NULL;
	int err = 0;

	batch->count = 0;
	if (!client)
		return -ESRCH;
	if (off && ds_shares_groups(run->process)) {
		err = -EOPNOTSUPP;
		goto unlock;
	}
	if (!find_subdevice(client, run->gpu, batch)) {
		err = -ENODEV;
		goto unlock;
	}
	mutex_lock(&client->tree);
	while (batch->count < RM_CHANNELS_MAX && (object = rm_tree_next(&client->rm, object))) {
		/* one that went off and looks like none of ours by now is turned on all the same */
		if (object->kind != RM_KIND_CHANNEL || !(states & BIT(state_of(object))) || object->gpu != run->gpu ||
		    (off && object->flags & RM_OBJECT_DUP))
			continue;
		set_state(object, GOING);
		batch->channels[batch->count++] = (struct rm_channel){ client->rm.handle, object->handle };
	}
	mutex_unlock(&client->tree);
unlock:
	ds_run_client_unlock();
	return err;
}

/* The driver has answered. */
static void write_down(struct ds_run *run, const struct batch *batch, bool off, u32 status)
{
	struct ds_client *client = ds_run_client_lock(run);
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
		else if (status)
			set_state(channel, UNSURE);
		else
			set_state(channel, off ? OFF : ON);
	}
	count_off(run, client);
	mutex_unlock(&client->tree);
	ds_run_client_unlock();
}

/* ---- to and fro ------------------------------------------------------------------ */

static u32 call(struct ds_run *run, struct batch *batch, bool off)
{
	struct ds_run_pause *pause = &run->pause;
	u64 begin = ktime_get_ns(), effect;
	u32 status;

	spin_lock_irq(&run->lane->lock);
	pause->moving_ns = begin;
	pause->moves++;
	spin_unlock_irq(&run->lane->lock);
	status = ds_rm_disable(batch->client, batch->subdevice, batch->channels, batch->count, off);
	/* when within the call it happened nobody tells; a call that takes long has waited to be told, not to happen */
	effect = begin + min_t(u64, ktime_get_ns() - begin, CALL_NS) / 2;
	write_down(run, batch, off, status);
	spin_lock_irq(&run->lane->lock);
	pause->status = status;
	pause->moves++;
	if (!status && off)
		pause->off_ns = effect;
	else if (!status)
		pause->on_ns = effect;
	spin_unlock_irq(&run->lane->lock);
	return status;
}

/* All channels in one of these states. 0; -EIO: the driver refuses; -ESRCH, -EOPNOTSUPP, -ENODEV: as collect(). */
static int turn(struct ds_run *run, struct batch *batch, bool off, u32 states)
{
	unsigned int tries = 0;
	u32 status;
	int err;

	for (;;) {
		err = collect(run, off, states, batch);
		if (err || !batch->count)
			return err;
		status = call(run, batch, off);
		if (status == DS_RM_GONE)
			return -ENODEV;
		if (status && ++tries == TRIES)
			return -EIO;
		/* failed, so all of them are unsure now; what they are for certain is on, once turned on */
		if (status && off)
			err = turn(run, batch, false, BIT(UNSURE));
		else if (status)
			states |= BIT(UNSURE);
		if (err)
			return err;
	}
}

static int turn_all(struct ds_run *run, struct batch *batch, bool off)
{
	int err = turn(run, batch, false, off ? BIT(UNSURE) : BIT(UNSURE) | BIT(OFF));

	return err || !off ? err : turn(run, batch, true, BIT(ON));
}

static int carry_out(struct ds_run *run, bool off)
{
	struct batch *batch = kmalloc(sizeof(*batch), GFP_KERNEL);
	int err;

	if (!batch)
		return -ENOMEM;
	batch->made = (struct ds_subdevice){ 0 };
	err = turn_all(run, batch, off);
	if (err == -ENODEV && make_subdevice(run, batch)) {
		err = turn_all(run, batch, off);
		ds_subdevice_done(&batch->made);
	}
	kfree(batch);
	return err;
}

static void queue(struct ds_run *run)
{
	ds_run_hold(run);
	if (!queue_work(ds_rm_queue, &run->pause.work))
		ds_run_put(run);
}

static void tell(struct ds_run *run, bool off)
{
	struct ds_event_run event;
	u32 reasons;

	spin_lock_irq(&run->lane->lock);
	reasons = run->pause.wanted;
	spin_unlock_irq(&run->lane->lock);
	ds_run_event(run, &event);
	ds_event_hold(off ? DETSHARE_CMD_PAUSED : DETSHARE_CMD_RESUMED, &event, ktime_get_ns(), reasons | ds_gate_reasons(run->gate));
}

/* What could not be done is tried again, less and less often; what cannot be paused at all is not. */
static void try_later(struct ds_run *run, int err, bool off)
{
	struct ds_run_pause *pause = &run->pause;
	unsigned int ms;

	if (err == -ESRCH || (off && err == -EOPNOTSUPP) || READ_ONCE(run->gone) || READ_ONCE(pause->forgotten))
		return;
	ms = min_t(unsigned int, RETRY_FIRST_MS << min(pause->failures, 10U), RETRY_MOST_MS);
	pause->failures++;
	ds_run_hold(run);
	if (!queue_delayed_work(ds_rm_queue, &pause->retry, msecs_to_jiffies(ms)))
		ds_run_put(run);
	/* dropped meanwhile: ds_pause_drop_run() may have looked too early, and nobody else stops the timer */
	if (READ_ONCE(run->gone) && cancel_delayed_work(&pause->retry))
		ds_run_put(run);
}

static void work(struct work_struct *item)
{
	struct ds_run *run = container_of(item, struct ds_run, pause.work);
	struct ds_run_pause *pause = &run->pause;
	bool off, was, more;
	u64 asked;
	int err;

	do {
		spin_lock_irq(&run->lane->lock);
		off = pause->wanted;
		was = pause->off;
		asked = pause->asked;
		spin_unlock_irq(&run->lane->lock);
		err = carry_out(run, off);
		spin_lock_irq(&run->lane->lock);
		if (err == -ESRCH)
			pause->channels = 0;
		pause->err = off ? err : 0;
		/* a pause that was refused may have left some off; they are being turned on */
		pause->off = err == -ESRCH ? false : off ? !err : pause->channels;
		pause->settled = asked;
		pause->moving_ns = 0;
		more = pause->asked != asked;
		spin_unlock_irq(&run->lane->lock);
		wake_up_all(&pause->wait);
		if (was != pause->off)
			tell(run, pause->off);
	} while (more);
	if (err)
		try_later(run, err, off);
	else
		pause->failures = 0;
	ds_lane_look(run->lane);
	ds_run_put(run);
}

static void retry(struct work_struct *item)
{
	struct ds_run *run = container_of(to_delayed_work(item), struct ds_run, pause.retry);

	queue(run);
	ds_run_put(run);
}

void ds_pause_want(struct ds_run *run, u32 reason, bool paused)
{
	struct ds_run_pause *pause = &run->pause;
	unsigned long flags;
	bool before, changed;

	spin_lock_irqsave(&run->lane->lock, flags);
	before = pause->wanted;
	pause->wanted = paused ? pause->wanted | reason : pause->wanted & ~reason;
	changed = before != !!pause->wanted;
	pause->asked += changed;
	spin_unlock_irqrestore(&run->lane->lock, flags);
	if (changed)
		queue(run);
}

static bool is_settled(struct ds_run *run, u64 asked)
{
	unsigned long flags;
	bool settled;

	spin_lock_irqsave(&run->lane->lock, flags);
	settled = run->pause.settled >= asked || run->gone;
	spin_unlock_irqrestore(&run->lane->lock, flags);
	return settled;
}

int ds_pause_wait(struct ds_run *run, unsigned long timeout)
{
	u64 asked;
	long left;

	spin_lock_irq(&run->lane->lock);
	asked = run->pause.asked;
	spin_unlock_irq(&run->lane->lock);
	left = wait_event_killable_timeout(run->pause.wait, is_settled(run, asked), timeout);
	return left < 0 ? -EINTR : left ? 0 : -ETIMEDOUT;
}

/* ---- channels that come and go ------------------------------------------------------ */

void ds_pause_channel_new(struct ds_client *client, u32 handle)
{
	struct rm_object *channel;
	struct ds_vctx *vctx;
	struct ds_run *run;
	bool wanted = false;

	mutex_lock(&client->tree);
	channel = rm_tree_find(&client->rm, handle);
	vctx = channel ? ds_vctx_find(client, channel->gpu) : NULL;
	run = vctx ? vctx->run : NULL;
	if (run) {
		spin_lock_irq(&run->lane->lock);
		wanted = run->pause.wanted;
		run->pause.asked += wanted;
		spin_unlock_irq(&run->lane->lock);
	}
	mutex_unlock(&client->tree);
	/* the order of the file is held, so the run stays */
	if (!wanted)
		return;
	queue(run);
	ds_pause_wait(run, MAX_SCHEDULE_TIMEOUT);
}

/* The index-th run of a process, held; NULL: it has no so many. */
struct of_process {
	const struct ds_process *process;
	unsigned int index;
	struct ds_run *found;
};

static int at_index(struct ds_run *run, void *data)
{
	struct of_process *search = data;

	if (run->process != search->process || search->index--)
		return 0;
	search->found = ds_run_hold(run);
	return 1;
}

static void doubt(struct ds_run *run)
{
	struct ds_client *client = ds_run_client_lock(run);
	struct rm_object *object = NULL;
	bool any = false;

	if (!client)
		return;
	mutex_lock(&client->tree);
	while ((object = rm_tree_next(&client->rm, object))) {
		if (object->kind != RM_KIND_CHANNEL || object->gpu != run->gpu || state_of(object) == ON)
			continue;
		set_state(object, UNSURE);
		any = true;
	}
	mutex_unlock(&client->tree);
	ds_run_client_unlock();
	if (!any)
		return;
	spin_lock_irq(&run->lane->lock);
	run->pause.asked++;
	spin_unlock_irq(&run->lane->lock);
	queue(run);
}

void ds_pause_doubt(const struct ds_process *process)
{
	unsigned int i;

	for (i = 0;; i++) {
		struct of_process search = { .process = process, .index = i };

		if (!ds_runs_each(at_index, &search))
			break;
		doubt(search.found);
		ds_run_put(search.found);
	}
}

void ds_pause_channel_gone(struct ds_client *client, struct rm_object *channel)
{
	struct ds_vctx *vctx = ds_vctx_find(client, channel->gpu);
	unsigned long flags;

	if (state_of(channel) == ON || !vctx || !vctx->run)
		return;
	spin_lock_irqsave(&vctx->run->lane->lock, flags);
	vctx->run->pause.channels -= !!vctx->run->pause.channels;
	spin_unlock_irqrestore(&vctx->run->lane->lock, flags);
}

/* ---- for lane.c ----------------------------------------------------------------------- */

void ds_pause_init_run(struct ds_run *run)
{
	INIT_WORK(&run->pause.work, work);
	INIT_DELAYED_WORK(&run->pause.retry, retry);
	init_waitqueue_head(&run->pause.wait);
}

void ds_pause_drop_run(struct ds_run *run)
{
	if (cancel_delayed_work(&run->pause.retry))
		ds_run_put(run);
	wake_up_all(&run->pause.wait);
}

static bool is_on(struct ds_run *run)
{
	unsigned long flags;
	bool on;

	spin_lock_irqsave(&run->lane->lock, flags);
	on = run->gone || (run->pause.settled == run->pause.asked && !run->pause.channels);
	spin_unlock_irqrestore(&run->lane->lock, flags);
	return on;
}

void ds_pause_wait_resumed(struct ds_run *run)
{
	if (!wait_event_timeout(run->pause.wait, is_on(run), RESUME_TIMEOUT))
		pr_err("%u channels of process %d stay off the run list: the driver refuses to put them back (status %#x)\n",
		       run->pause.channels, ds_process_nr(run->process), run->pause.status);
}

void ds_pause_forget(struct ds_run *run)
{
	WRITE_ONCE(run->pause.forgotten, true);
	/* what had begun before may have started the timer, and the timer another one, which starts none */
	flush_work(&run->pause.work);
	if (cancel_delayed_work_sync(&run->pause.retry))
		ds_run_put(run);
	flush_work(&run->pause.work);
}
