// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>

#include "activity.h"
#include "busy.h"
#include "lane.h"
#include "look.h"
#include "pause.h"
#include "spend.h"
#include "usage.h"

static struct ds_run *make_run(const struct ds_client *client, const struct ds_vctx *vctx)
{
	struct ds_run *run = ds_run_make(client, vctx, ds_activity_kicked);

	if (!run)
		return NULL;
	ds_pause_init_run(run);
	ds_busy_init_run(run);
	return run;
}

static void join(struct ds_run *run)
{
	struct ds_lane *lane = run->lane;
	unsigned long flags;

	mutex_lock(&lane->members);
	spin_lock_irqsave(&lane->lock, flags);
	list_add_tail(&run->link, &lane->runs);
	lane->stale = true;
	spin_unlock_irqrestore(&lane->lock, flags);
	mutex_unlock(&lane->members);
	/* what holds for its process holds for it before its maker goes on */
	ds_lane_settle_killable(lane);
}

struct ds_run *ds_run_of(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx;
	struct ds_run *run;

	if (gpu >= RM_GPUS)
		return NULL;
	mutex_lock(&client->tree);
	vctx = ds_vctx_find(client, gpu);
	run = vctx ? vctx->run : NULL;
	mutex_unlock(&client->tree);
	if (run || !vctx)
		return run;
	/* order is held: nobody else makes it, and the vCtx stays */
	run = make_run(client, vctx);
	if (!run)
		return NULL;
	mutex_lock(&client->tree);
	vctx->run = run;
	mutex_unlock(&client->tree);
	join(run);
	return run;
}

void ds_run_drop(struct ds_vctx *vctx)
{
	struct ds_run *run = vctx->run;
	unsigned long flags;

	if (!run)
		return;
	vctx->run = NULL;
	mutex_lock(&run->lane->members);
	if (ds_bucket_on())
		ds_bucket_pay(run, ds_usage_end(run, ktime_get_ns()));
	spin_lock_irqsave(&run->lane->lock, flags);
	list_del(&run->link);
	run->gone = true;
	spin_unlock_irqrestore(&run->lane->lock, flags);
	mutex_unlock(&run->lane->members);
	ds_gate_leave(run->gate);
	ds_pause_drop_run(run);
	/* whom it held, or was held for */
	ds_lane_look(run->lane);
	ds_run_put(run);
}

void ds_lane_tell(u32 gpu, struct ds_rotation_info *info)
{
	struct ds_lane *lane = ds_lane_at(gpu);

	mutex_lock(&lane->members);
	ds_rotation_tell(lane, info);
	mutex_unlock(&lane->members);
}

/* ---- nobody is held --------------------------------------------------------------------- */

static int wait_resumed(struct ds_run *run, void *unused)
{
	/* nobody kills who unloads or suspends here: the driver answers, or the retry gives up */
	ds_pause_wait_resumed(run);
	return 0;
}

void ds_runs_let_go(void)
{
	ds_runs_set_free(true);
	ds_lanes_settle();
	ds_runs_each(wait_resumed, NULL);
}

void ds_runs_take_back(void)
{
	ds_runs_set_free(false);
	ds_lanes_stale();
}

static int forget(struct ds_run *run, void *unused)
{
	ds_pause_forget(run);
	flush_work(&run->busy.work);
	return 0;
}

void ds_runs_forget(void)
{
	ds_runs_each(forget, NULL);
}

int ds_lane_init(void)
{
	return ds_run_init(ds_look_init_lane);
}

void ds_lane_exit(void)
{
	ds_run_exit(ds_rotation_exit);
}
