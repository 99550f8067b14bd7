// SPDX-License-Identifier: GPL-2.0-only
/* The simulated GPU's thread and its runlists. Objects on them: engine_objects.c. */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "engine_impl.h"
#include "methods.h"

#define COPY_SWITCH_NS 20000 /* not measured */
/* how often doorbells are looked at: while one is about to be rung, while somebody rang lately, and else */
#define POLL_SOON_NS 50000
#define POLL_NS	     100000
#define POLL_IDLE_NS 500000
#define SOON_NS	     (2 * NSEC_PER_MSEC)
#define LATELY_NS    (200 * NSEC_PER_MSEC)
/* the thread runs events of several kernels at once rather than wake more often */
#define SHORTEST_SLEEP_NS 50000
#define SLACK_NS	  20000
#define STEP_BUDGET	  4096 /* dwords */

static unsigned int switch_us = 85, restore_us = 120, late_us = 120, save_us;
module_param(switch_us, uint, 0444);
MODULE_PARM_DESC(switch_us, "no context is on the engine for so long, between two (an H200: 85)");
module_param(restore_us, uint, 0444);
MODULE_PARM_DESC(restore_us, "so much of its slice restores the context that comes (an H200: more than 100)");
module_param(late_us, uint, 0444);
MODULE_PARM_DESC(late_us, "the end of a slice after a switch is acted on so late (an H200: 115 to 150)");
module_param(save_us, uint, 0444);
MODULE_PARM_DESC(save_us, "what it takes more to take a kernel off in its midst (none was seen: 0)");

static void engine_advance(struct sim_engine *engine, u64 now)
{
	struct sim_runlist *runlist;

	list_for_each_entry(runlist, &engine->runlists, in_engine)
		sched_advance(&runlist->sched, now);
}

static u64 engine_next(const struct sim_engine *engine)
{
	const struct sim_runlist *runlist;
	u64 next = SCHED_NEVER;

	list_for_each_entry(runlist, &engine->runlists, in_engine)
		next = min(next, sched_next(&runlist->sched));
	return next;
}

void sim_engine_lock(struct sim_engine *engine)
{
	mutex_lock(&engine->lock);
	engine_advance(engine, ktime_get_ns());
}

void sim_engine_unlock(struct sim_engine *engine)
{
	bool wake = engine->chans;

	engine_advance(engine, ktime_get_ns());
	mutex_unlock(&engine->lock);
	if (wake) {
		atomic_set(&engine->kicked, 1);
		wake_up_process(engine->thread);
	}
}

/* One look at everything; when to look again. */
static u64 engine_look(struct sim_engine *engine)
{
	u64 now, next = SCHED_NEVER;

	mutex_lock(&engine->lock);
	/* before the clock is read: nothing may begin before it was rung for, however late this thread is */
	if (engine->chans)
		sim_poll_doorbells(engine);
	now = ktime_get_ns();
	engine_advance(engine, now);
	if (engine->chans) {
		sim_ring_posted(engine, now);
		sim_poll_watched(engine);
		engine_advance(engine, now);
		next = engine_next(engine);
		if (now - min(now, READ_ONCE(engine->expected)) < SOON_NS)
			next = min(next, now + POLL_SOON_NS);
		else if (!list_empty(&engine->watched) || now - engine->last_ring < LATELY_NS)
			next = min(next, now + POLL_NS);
		else if (!list_empty(&engine->doorbells))
			next = min(next, now + POLL_IDLE_NS);
		next = max(min(next, sim_log_look(engine, now)), now + SHORTEST_SLEEP_NS);
	}
	mutex_unlock(&engine->lock);
	return next;
}

static int engine_thread(void *data)
{
	struct sim_engine *engine = data;
	ktime_t until;
	u64 next;

	while (!kthread_should_stop()) {
		atomic_set(&engine->kicked, 0);
		next = engine_look(engine);
		set_current_state(TASK_IDLE);
		if (atomic_read(&engine->kicked) || kthread_should_stop()) {
			__set_current_state(TASK_RUNNING);
			cond_resched();
			continue;
		}
		until = ns_to_ktime(next);
		if (next == SCHED_NEVER)
			schedule();
		else
			schedule_hrtimeout_range(&until, SLACK_NS, HRTIMER_MODE_ABS);
	}
	return 0;
}

static void userd_write(const struct sim_chan *chan, u32 at, u32 value)
{
	u8 *page = kmap_local_page(chan->userd);

	WRITE_ONCE(*(u32 *)(page + chan->userd_offset + at), value);
	kunmap_local(page);
}

/* What a kernel of this channel may use at most. */
static u32 sms_of(const struct sim_chan *chan)
{
	const struct sim_tsg *tsg = container_of(chan->sched.tsg, struct sim_tsg, sched);
	u32 cap = tsg->tpc_mode == SIM_TPC_NONE ? 0 : tsg->caps[chan->veid];

	return cap ? min(cap, chan->engine->sms) : chan->engine->sms;
}

enum sched_state sim_chan_step(struct sched_chan *sched, u64 when)
{
	struct sim_chan *chan = container_of(sched, struct sim_chan, sched);
	const struct ring_kernel *kernel = &chan->ring.kernel;
	enum ring_result result;
	u32 sms;

	if (chan->kernel_watched && kernel->count)
		chan->ring.memory->write(chan->ring.vas, kernel->count, &sched->ran,
					 sizeof(sched->ran));
	chan->kernel_watched = false;
	/* a channel that is on its engine finds entries that nobody rang for */
	do
		result = ring_step(&chan->ring, when, STEP_BUDGET);
	while (result == RING_IDLE && sim_chan_look(chan));
	userd_write(chan, SIM_USERD_GP_GET, chan->ring.get);
	switch (result) {
	case RING_IDLE:
		return CHAN_IDLE;
	case RING_MORE:
		return CHAN_HOST;
	case RING_KERNEL:
		sms = sms_of(chan);
		sched->sms = min(kernel->sms, sms);
		sched->left = kernel->ns;
		if (kernel->ns != SIM_KERNEL_ENDLESS && kernel->sms > sms)
			sched->left = mul_u64_u32_div(kernel->ns, kernel->sms, sms);
		chan->kernel_watched = kernel->until || kernel->count;
		if (chan->kernel_watched && list_empty(&chan->watch))
			list_add_tail(&chan->watch, &chan->engine->watched);
		return CHAN_WAITING;
	case RING_ACQUIRE:
		if (list_empty(&chan->watch))
			list_add_tail(&chan->watch, &chan->engine->watched);
		return CHAN_BLOCKED;
	default:
		pr_info_ratelimited(
			"nvsim: gpu %u: channel 0x%x stopped: nothing usable at GPU address 0x%llx\n",
			chan->engine->gpu, chan->handle, (unsigned long long)chan->ring.fault);
		return CHAN_DEAD;
	}
}

static u32 runlist_of(u32 engine_type)
{
	return engine_type == 0 || engine_type == 1 || engine_type == 9 || engine_type == 10
		       ? 0
		       : engine_type & 0x7f;
}

/*
 * The runlist of an engine, made at its first use; it stays until the engine goes. NULL: no memory.
 * /
 */
struct sim_runlist *sim_engine_runlist(struct sim_engine *engine, u32 engine_type)
{
	u32 id = runlist_of(engine_type);
	struct sim_runlist *runlist;

	list_for_each_entry(runlist, &engine->runlists, in_engine)
		if (runlist->id == id)
			return runlist;
	runlist = kzalloc(sizeof(*runlist), GFP_KERNEL);
	if (!runlist)
		return NULL;
	runlist->id = id;
	xa_init_flags(&runlist->chans, XA_FLAGS_ALLOC);
	ida_init(&runlist->tsg_ids);
	sched_runlist_init(&runlist->sched, id ? 1 : engine->sms,
			   id ? COPY_SWITCH_NS : (u64)switch_us * NSEC_PER_USEC,
			   id ? 0 : (u64)restore_us * NSEC_PER_USEC, sim_chan_step);
	runlist->sched.log = id ? NULL : sim_log_note;
	runlist->sched.late_ns = id ? 0 : (u64)late_us * NSEC_PER_USEC;
	runlist->sched.save_ns = id ? 0 : (u64)save_us * NSEC_PER_USEC;
	sched_advance(&runlist->sched, ktime_get_ns());
	list_add_tail(&runlist->in_engine, &engine->runlists);
	return runlist;
}

struct sim_engine *sim_engine_create(u32 gpu, u32 sms, const struct sim_mem_ops *ops)
{
	struct sim_engine *engine = kvzalloc(sizeof(*engine), GFP_KERNEL);

	if (!engine)
		return ERR_PTR(-ENOMEM);
	engine->filler = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!engine->filler) {
		kvfree(engine);
		return ERR_PTR(-ENOMEM);
	}
	engine->gpu = gpu;
	engine->sms = max(sms, 1u);
	engine->memory = (struct ring_memory){ .read = ops->read, .write = ops->write };
	mutex_init(&engine->lock);
	spin_lock_init(&engine->post_lock);
	spin_lock_init(&engine->doorbell_lock);
	atomic_set(&engine->kicked, 0);
	INIT_LIST_HEAD(&engine->runlists);
	INIT_LIST_HEAD(&engine->tsgs);
	INIT_LIST_HEAD(&engine->doorbells);
	INIT_LIST_HEAD(&engine->watched);
	INIT_LIST_HEAD(&engine->log.readers);
	engine->thread = kthread_run(engine_thread, engine, "nvsim-gpu%u", gpu);
	if (IS_ERR(engine->thread)) {
		long error = PTR_ERR(engine->thread);

		__free_page(engine->filler);
		kvfree(engine);
		return ERR_PTR(error);
	}
	return engine;
}

void sim_engine_destroy(struct sim_engine *engine)
{
	struct sim_runlist *runlist, *next;

	/*
	 * objects hold a pointer to the engine: freeing it under them would be worse than keeping
	 * it
	 */
	if (WARN_ON(!list_empty(&engine->tsgs) || engine->chans || !list_empty(&engine->doorbells)))
		return;
	kthread_stop(engine->thread);
	list_for_each_entry_safe(runlist, next, &engine->runlists, in_engine) {
		xa_destroy(&runlist->chans);
		ida_destroy(&runlist->tsg_ids);
		kfree(runlist);
	}
	__free_page(engine->filler);
	mutex_destroy(&engine->lock);
	kvfree(engine);
}
