// SPDX-License-Identifier: GPL-2.0-only
#include <linux/sched/signal.h>

#include "bucket.h"
#include "driver.h"
#include "entity.h"
#include "lease.h"
#include "mover.h"

/* Holds end at several places that do not know of each other; a turn is longer than this. */
#define ASK_TICKS 1

static int is_paused(struct ds_entity *entity, void *process)
{
	return entity->process == process && ds_entity_paused(entity);
}

static bool is_held(struct ds_process *process)
{
	return ds_holds_of(process) || ds_bucket_empty(process) || ds_entities_each(is_paused, process);
}

static bool must_wait(struct ds_process *process, struct ds_process *owner)
{
	return !ds_entities_free() && !ds_driver_stopping() &&
	       (is_held(process) || (owner && owner != process && is_held(owner)));
}

/* However many threads wait, one of a process asks: the question takes locks that the run queues need. false: it is being killed. */
static bool wait_while_held(struct ds_process *process, struct ds_process *owner)
{
	bool killed = false;

	if (mutex_lock_killable(&process->moving))
		return false;
	while (!killed && must_wait(process, owner)) {
		schedule_timeout_killable(ASK_TICKS);
		killed = fatal_signal_pending(current);
	}
	mutex_unlock(&process->moving);
	return !killed;
}

bool ds_mover_wait(struct ds_process *owner)
{
	struct ds_process *process;
	bool may;

	if (!ds_enforcing())
		return true;
	process = ds_process_current();
	/* nobody can tell whether it is held */
	if (!process)
		return false;
	may = !must_wait(process, owner) || wait_while_held(process, owner);
	ds_process_put(process);
	return may;
}
