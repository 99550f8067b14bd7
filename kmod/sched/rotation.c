// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/slab.h>

#include "activity.h"
#include "busy.h"
#include "detshare_uapi.h"
#include "rival.h"
#include "rotation.h"
#include "run.h"

/* A gap is worth what is left of it after a switch there and one back. */
#define SWITCHES_NS (500 * NSEC_PER_USEC)
/* So long is measured at a time; the foreground leaves gaps from the larger part on, and none below the smaller one. */
#define MEASURE_NS (100 * NSEC_PER_MSEC)
#define MANY_PERCENT 10
#define FEW_PERCENT 5
/* Where gaps are few the driver is asked so often whether the foreground runs anything. */
#define ASK_NS (25 * NSEC_PER_MSEC)
#define ASKED_LEAST 3
#define BUSY_PERCENT 70
/* While it leaves none in general, one that is there already for so long is used all the same. */
#define PATIENCE_NS (2 * NSEC_PER_MSEC)

bool ds_rotation_has(const struct ds_run *run)
{
	return run->rule.turn_ns && !run->fixed;
}

static bool wants(const struct ds_run *run)
{
	return run->watched && READ_ONCE(run->active) && !run->holds && !run->spent;
}

/* As the driver has it where nobody set it. */
static s32 level_of(const struct ds_run *run)
{
	s32 level = READ_ONCE(run->level);

	return level < 0 ? DETSHARE_LEVEL_MEDIUM : level;
}

static bool is_foreground(const struct ds_run *run)
{
	return run->rule.class[0] && !ds_rotation_has(run) && level_of(run) > run->lane->rotation.least;
}

/* ---- who takes part ------------------------------------------------------------------- */

/* Room for all runs of the lane. false: no memory, so the last ones have no turns. */
static bool make_room(struct ds_rotation *rotation, unsigned int count)
{
	struct rm_rota_tenant *one, *other;

	if (count <= rotation->room)
		return true;
	count = roundup(count, 16);
	one = kvcalloc(count, sizeof(*one), GFP_KERNEL);
	other = kvcalloc(count, sizeof(*other), GFP_KERNEL);
	if (!one || !other) {
		kvfree(one);
		kvfree(other);
		return false;
	}
	memcpy(one, rotation->rota.tenants, rotation->rota.count * sizeof(*one));
	kvfree(rotation->rota.tenants);
	kvfree(rotation->spare);
	rotation->rota.tenants = one;
	rotation->spare = other;
	rotation->room = count;
	return true;
}

static struct rm_rota_tenant *find(struct rm_rota_tenant *tenants, unsigned int count, u64 key)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (tenants[i].key == key)
			return &tenants[i];
	return NULL;
}

/* For how long it was on since then. Of a call that is under way it counts as done when it began. */
static u64 ran_since(const struct ds_run *run, u64 from, u64 now)
{
	const struct ds_run_pause *pause = &run->pause;
	u64 on = from, off = now;

	spin_lock_irq(&run->lane->lock);
	if (pause->off && !(pause->moves & 1))
		off = pause->off_ns;
	else if (pause->off && pause->wanted)
		off = from;
	else if (pause->off)
		on = pause->moving_ns;
	else if (pause->moves & 1 && pause->wanted)
		off = pause->moving_ns;
	else
		on = pause->on_ns;
	spin_unlock_irq(&run->lane->lock);
	on = max(on, from);
	off = min(off, now);
	return from && off > on ? off - on : 0;
}

static bool is_off(const struct ds_run *run)
{
	return READ_ONCE(run->pause.off) || READ_ONCE(run->pause.moves) & 1;
}

static void add(struct ds_rotation *rotation, unsigned int *count, const struct ds_run *run, u64 now, u64 alone)
{
	struct rm_rota_tenant *tenant = find(rotation->spare, *count, run->rule.account), *old;

	if (!tenant) {
		if (*count == rotation->room)
			return;
		old = find(rotation->rota.tenants, rotation->rota.count, run->rule.account);
		tenant = &rotation->spare[(*count)++];
		*tenant = (struct rm_rota_tenant){ .key = run->rule.account, .debt = old ? old->debt : 0,
						    .over = old ? old->over : 0 };
	}
	/* of several classes in one account the highest counts */
	if (run->rule.turn_rank >= tenant->rank) {
		tenant->rank = run->rule.turn_rank;
		tenant->floor = run->rule.floor;
		tenant->turn = run->rule.turn_ns;
	}
	tenant->weight = max3(tenant->weight, run->rule.weight, 1U);
	if (!wants(run))
		return;
	tenant->wants = true;
	tenant->ran = max(tenant->ran, min(ran_since(run, rotation->rota.stepped, now), alone));
}

/* A floor is the class's: those who want the GPU divide it. */
static void divide_floors(struct rm_rota_tenant *tenants, unsigned int count)
{
	unsigned int i, j, sharing;

	for (i = 0; i < count; i++) {
		if (!tenants[i].wants || !tenants[i].floor)
			continue;
		for (sharing = 0, j = 0; j < count; j++)
			sharing += tenants[j].wants && tenants[j].rank == tenants[i].rank;
		tenants[i].share = max(tenants[i].floor / sharing, 1U);
	}
	for (i = 0; i < count; i++)
		tenants[i].floor = tenants[i].share;
}

/*
 * For how long since the last step the others could get something done: beside a foreground that leaves no gaps they do not, and within
 * the calls that begin and end a window both may be on. Where it cannot be off windows pass all the same.
 */
static u64 without_foreground(struct ds_lane *lane, u64 now)
{
	u64 from = lane->rotation.rota.stepped, beside = 0;
	const struct ds_run *run;

	if (!lane->rotation.gaps.closed)
		return U64_MAX;
	list_for_each_entry(run, &lane->runs, link)
		if (is_foreground(run) && wants(run) && !READ_ONCE(run->pause.err))
			beside = max(beside, ran_since(run, from, now));
	return now - from - beside;
}

static void collect(struct ds_lane *lane, u64 now)
{
	struct ds_rotation *rotation = &lane->rotation;
	unsigned int runs = 0, count = 0;
	struct ds_run *run;
	u64 alone;

	rotation->least = DETSHARE_LEVEL_HIGH;
	list_for_each_entry(run, &lane->runs, link) {
		run->fixed |= READ_ONCE(run->pause.err) == -EOPNOTSUPP;
		if (!ds_rotation_has(run))
			continue;
		runs++;
		rotation->least = min(rotation->least, level_of(run));
	}
	make_room(rotation, runs);
	alone = without_foreground(lane, now);
	list_for_each_entry(run, &lane->runs, link)
		if (ds_rotation_has(run))
			add(rotation, &count, run, now, alone);
	divide_floors(rotation->spare, count);
	swap(rotation->rota.tenants, rotation->spare);
	rotation->rota.count = count;
}

/* ---- what the foreground leaves --------------------------------------------------------- */

/* Is any of it at work? *since: since when it is not. */
static bool is_busy(const struct ds_lane *lane, bool *there, u64 *since)
{
	const struct ds_run *run;
	bool busy = false;

	*there = false;
	*since = 0;
	list_for_each_entry(run, &lane->runs, link) {
		if (!is_foreground(run) || run->holds || run->spent)
			continue;
		*there = true;
		busy |= wants(run);
		*since = max(*since, ds_run_ended(run) ?: READ_ONCE(run->last_ns));
	}
	return busy;
}

static u64 useful(u64 from, u64 to)
{
	return to > from + SWITCHES_NS ? to - from - SWITCHES_NS : 0;
}

/* The answers of the driver about the foreground; a question, where too few came. */
static void sample(struct ds_look *look, struct ds_gaps *gaps)
{
	struct ds_run *run;

	list_for_each_entry(run, &look->lane->runs, link) {
		enum ds_busy said;
		u64 asked;

		if (!is_foreground(run) || !wants(run) || is_off(run))
			continue;
		spin_lock_irq(&look->lane->lock);
		said = run->busy.said;
		asked = run->busy.asked_ns;
		spin_unlock_irq(&look->lane->lock);
		if (asked > gaps->asked_ns && asked >= look->now - MEASURE_NS) {
			gaps->asked_ns = asked;
			gaps->asked += said == DS_BUSY_YES || said == DS_BUSY_NO;
			gaps->busy += said == DS_BUSY_YES;
		}
		if (gaps->few && ds_busy_can(run->gpu)) {
			if (look->now >= asked + ASK_NS)
				ds_busy_ask(run);
			ds_look_again(look, max(asked, look->now) + ASK_NS);
		}
	}
}

static void judge(struct ds_gaps *gaps, u64 now)
{
	u64 span = now - gaps->began_ns;

	if (gaps->quiet_ns)
		gaps->useful += useful(max(gaps->quiet_ns, gaps->began_ns), now);
	gaps->few = gaps->useful * 100 < span * (gaps->closed ? MANY_PERCENT : FEW_PERCENT);
	/* without an answer it counts as busy for as long as it shows life */
	if (!gaps->few)
		gaps->closed = false;
	else if (gaps->asked >= ASKED_LEAST)
		gaps->closed = gaps->busy * 100 >= gaps->asked * BUSY_PERCENT;
	gaps->began_ns = now;
	gaps->useful = 0;
	if (gaps->few && gaps->asked < ASKED_LEAST)
		return;
	gaps->asked = 0;
	gaps->busy = 0;
}

/* Are there turns at this moment? */
static bool measure(struct ds_look *look)
{
	struct ds_gaps *gaps = &look->lane->rotation.gaps;
	bool there, busy;
	u64 since;

	busy = is_busy(look->lane, &there, &since);
	if (!there) {
		*gaps = (struct ds_gaps){ 0 };
		return true;
	}
	if (!gaps->began_ns)
		gaps->began_ns = look->now;
	if (busy && gaps->quiet_ns) {
		gaps->useful += useful(max(gaps->quiet_ns, gaps->began_ns), look->now);
		gaps->quiet_ns = 0;
	} else if (!busy && !gaps->quiet_ns) {
		gaps->quiet_ns = since ?: look->now;
	}
	if (busy)
		sample(look, gaps);
	if (look->now - gaps->began_ns >= MEASURE_NS)
		judge(gaps, look->now);
	ds_look_again(look, gaps->began_ns + MEASURE_NS);
	if (!gaps->closed)
		return true;
	if (busy)
		return false;
	if (look->now - gaps->quiet_ns >= PATIENCE_NS)
		return true;
	ds_look_again(look, gaps->quiet_ns + PATIENCE_NS);
	return false;
}

/* ---- one look ------------------------------------------------------------------------------ */

static bool is_to_rest(const struct ds_run *run, const struct rm_rota *rota, bool closed)
{
	if (is_foreground(run))
		return closed && rota->kind == RM_ROTA_WINDOW && wants(run);
	return ds_rotation_has(run) && rota->holder != run->rule.account && wants(run);
}

static bool anybody_wants(const struct rm_rota *rota)
{
	unsigned int i;

	for (i = 0; i < rota->count; i++)
		if (rota->tenants[i].wants)
			return true;
	return false;
}

void ds_rotation_look(struct ds_look *look)
{
	struct ds_lane *lane = look->lane;
	struct rm_rota *rota = &lane->rotation.rota;
	struct ds_run *run;
	bool closed = false;
	u64 next;

	collect(lane, look->now);
	ds_rival_look(look, anybody_wants(rota));
	if (rota->count && !look->free)
		closed = !measure(look);
	else
		lane->rotation.gaps = (struct ds_gaps){ 0 };
	next = rm_rota_step(rota, look->now, closed);
	if (next != RM_ROTA_NEVER && !look->free)
		ds_look_again(look, next);
	list_for_each_entry(run, &lane->runs, link)
		run->resting = !look->free && is_to_rest(run, rota, closed);
}

void ds_rotation_tell(struct ds_lane *lane, struct ds_rotation_info *info)
{
	const struct ds_rotation *rotation = &lane->rotation;
	const struct ds_run *run;

	*info = (struct ds_rotation_info){ .mode = DETSHARE_TURN_MODE_NONE };
	if (!rotation->rota.count)
		return;
	info->mode = rotation->gaps.closed ? DETSHARE_TURN_MODE_WINDOWS : DETSHARE_TURN_MODE_TURNS;
	if (!rotation->rota.holder)
		return;
	info->left_ms = div_u64(rotation->rota.left, NSEC_PER_MSEC);
	list_for_each_entry(run, &lane->runs, link) {
		if (!ds_rotation_has(run) || run->rule.account != rotation->rota.holder)
			continue;
		info->vctx = run->vctx;
		info->pid = ds_process_nr(run->process);
		return;
	}
}

void ds_rotation_exit(struct ds_lane *lane)
{
	kvfree(lane->rotation.rota.tenants);
	kvfree(lane->rotation.spare);
}
