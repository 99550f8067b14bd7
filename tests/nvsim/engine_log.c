// SPDX-License-Identifier: GPL-2.0-only
/* See engine_log.h. */
#include <linux/ktime.h>

#include "engine_impl.h"
#include "engine_log.h"

#define PERIOD_NS (NSEC_PER_SEC / 30)
#define KERNEL_PID 0xffffffffu /* NV_EVENT_BUFFER_KERNEL_PID, and its context */
#define NOISE_NS 1024

/* What this reader is told of it; false: nothing. */
static bool tell(const struct sim_log_reader *reader, const struct sim_switch *from, struct eventbuf_switch *to)
{
	bool own = uid_eq(reader->uid, from->uid);

	*to = (struct eventbuf_switch){ .tag = from->begins ? EVENTBUF_STARTS : EVENTBUF_ENDS,
					.context = from->context, .pid = from->pid, .when = from->when };
	if (!reader->all_users && !own)
		return false;
	if (!from->pid && !reader->kernel) {
		to->pid = KERNEL_PID;
		to->context = KERNEL_PID;
	} else if (!own && !reader->admin) {
		to->pid = 0;
		to->context = 0;
	} else {
		return true;
	}
	to->when -= to->when % NOISE_NS;
	return true;
}

static void deliver(struct sim_engine *engine)
{
	struct sim_log *log = &engine->log;
	struct sim_log_reader *reader;
	struct eventbuf_switch event;
	u32 i;

	list_for_each_entry(reader, &log->readers, in_engine) {
		mutex_lock(reader->lock);
		eventbuf_lost(reader->buf, log->lost);
		for (i = 0; i < log->count; i++)
			if (tell(reader, &log->waiting[i], &event))
				eventbuf_add(reader->buf, reader->version, &event);
		mutex_unlock(reader->lock);
	}
	log->count = 0;
	log->lost = 0;
}

void sim_log_note(struct sched_runlist *rl, struct sched_tsg *sched, bool begins, u64 when)
{
	struct sim_tsg *tsg = container_of(sched, struct sim_tsg, sched);
	struct sim_log *log = &tsg->engine->log;

	if (list_empty(&log->readers))
		return;
	if (log->count == SIM_LOG_WAITING) {
		log->lost++;
		return;
	}
	if (!log->count)
		log->since = ktime_get_ns();
	log->waiting[log->count++] = (struct sim_switch){ .when = when, .pid = tsg->pid, .uid = tsg->uid,
							  .context = tsg->handle, .begins = begins };
}

u64 sim_log_look(struct sim_engine *engine, u64 now)
{
	struct sim_log *log = &engine->log;

	if (log->count && (now - min(now, log->since) >= PERIOD_NS || log->count >= SIM_LOG_WAITING / 2))
		deliver(engine);
	return list_empty(&log->readers) ? SCHED_NEVER : now + PERIOD_NS;
}

void sim_log_join(struct sim_engine *engine, struct sim_log_reader *reader)
{
	sim_engine_lock(engine);
	/* what happened before is not for it */
	deliver(engine);
	list_add_tail(&reader->in_engine, &engine->log.readers);
	sim_engine_unlock(engine);
}

void sim_log_leave(struct sim_engine *engine, struct sim_log_reader *reader)
{
	sim_engine_lock(engine);
	list_del(&reader->in_engine);
	sim_engine_unlock(engine);
}

void sim_log_flush(struct sim_engine *engine)
{
	sim_engine_lock(engine);
	deliver(engine);
	sim_engine_unlock(engine);
}
