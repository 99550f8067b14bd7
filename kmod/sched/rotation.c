// SPDX-License-Identifier: GPL-2.0-only
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/slab.h>
#include <linux/stringhash.h>

#include "activity.h"
#include "busy.h"
#include "detshare_uapi.h"
#include "gangs.h"
#include "ontime.h"
#include "rival.h"
#include "rotation.h"
#include "entity.h"
#include "spots.h"

/* A gap is worth what is left of it after a switch there and one back. */
#define SWITCHES_NS (500 * NSEC_PER_USEC)
/* So long is measured at a time; the foreground leaves gaps from the larger part on, twice in a row, and none below the smaller one. */
#define MEASURE_NS (100 * NSEC_PER_MSEC)
#define MANY_PERCENT 10
#define FEW_PERCENT 5
/* So many measurements with gaps follow one without before spot checks are enough: a gap now and then is none in general. */
#define WARY 10
/* And as many follow its first sight: it counts as quiet until it is seen to launch. */
#define WARY_NEW 3
/* Where gaps are few the driver is asked so often whether the foreground runs anything. */
#define ASK_NS (25 * NSEC_PER_MSEC)
#define ASKED_LEAST 3
#define BUSY_PERCENT 70
/* While it leaves none in general, one that is there already for so long is used all the same. */
#define PATIENCE_NS (2 * NSEC_PER_MSEC)

bool ds_rotation_has(const struct ds_entity *entity)
{
	return entity->rule.turn_ns && !entity->fixed;
}

/* Whom the driver does not put back would have turns, and windows, in which nobody runs. */
static bool wants(const struct ds_entity *entity)
{
	return entity->watched && READ_ONCE(entity->active) && !entity->holds && !entity->spent && !READ_ONCE(entity->pause.stuck);
}

/* As the driver has it where nobody set it. */
static s32 level_of(const struct ds_entity *entity)
{
	s32 level = READ_ONCE(entity->level);

	return level < 0 ? DETSHARE_LEVEL_MEDIUM : level;
}

static bool is_foreground(const struct ds_entity *entity)
{
	return entity->rule.class[0] && !ds_rotation_has(entity) && level_of(entity) > entity->runq->rotation.least;
}

/* It is, and no order and no empty bucket holds it. */
static bool works_above(const struct ds_entity *entity)
{
	return is_foreground(entity) && !entity->holds && !entity->spent;
}

/* ---- who takes part ------------------------------------------------------------------- */

/* Room for all entities of the runq. false: no memory, so the last ones have no turns. */
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

/* Are calls under way that may change what this look counts? */
static bool count_on(struct ds_entity *entity, u64 now)
{
	u64 before = entity->on_told;
	bool open;

	spin_lock_irq(&entity->runq->lock);
	entity->on_told = ds_ontime(&entity->pause, now);
	open = ds_ontime_is_open(&entity->pause);
	spin_unlock_irq(&entity->runq->lock);
	entity->on_new = before ? entity->on_told - before : 0;
	return open;
}

static bool is_off(const struct ds_entity *entity)
{
	return ds_entity_in_doubt(entity) || READ_ONCE(entity->pause.moves) & 1;
}

/* For how much of the time that it was on it pays: ns. */
static u64 pay(struct ds_entity *entity, s64 alone)
{
	s64 ns = max_t(s64, min(entity->on_unpaid + entity->on_new, alone), 0);

	entity->on_unpaid += entity->on_new - ns;
	return ns;
}

static void add(struct ds_rotation *rotation, unsigned int *count, struct ds_entity *entity, s64 alone)
{
	struct rm_rota_tenant *tenant = find(rotation->spare, *count, entity->rule.account), *old;

	if (!tenant) {
		if (*count == rotation->room)
			return;
		old = find(rotation->rota.tenants, rotation->rota.count, entity->rule.account);
		tenant = &rotation->spare[(*count)++];
		*tenant = (struct rm_rota_tenant){ .key = entity->rule.account, .deficit = old ? old->deficit : 0,
						    .over = old ? old->over : 0, .saved = old ? old->saved : 0,
						    .rested = old && old->rested };
	}
	/* of several classes in one account the highest counts */
	if (entity->rule.turn_rank >= tenant->rank) {
		tenant->rank = entity->rule.turn_rank;
		tenant->floor = entity->rule.floor * (RM_ROTA_WHOLE / 1000);
		tenant->share = full_name_hash(NULL, entity->rule.class, strlen(entity->rule.class));
		tenant->turn = entity->rule.turn_ns;
	}
	tenant->weight = max3(tenant->weight, entity->rule.weight, 1U);
	if (!wants(entity)) {
		entity->on_unpaid = 0;
		return;
	}
	tenant->wants = true;
	tenant->ran = max(tenant->ran, pay(entity, alone));
}

/*
 * For how long the others could get something done, and did not pay: beside a foreground that leaves no gaps they do not, and within the calls
 * that begin and end a window both may be on. Where it cannot be off windows pass all the same.
 */
static s64 without_foreground(struct ds_runq *runq, u64 now)
{
	struct ds_rotation *rotation = &runq->rotation;
	const struct ds_entity *entity;
	s64 beside = S64_MIN;

	if (!rotation->gaps.closed) {
		rotation->alone = 0;
		return S64_MAX;
	}
	list_for_each_entry(entity, &runq->entities, link)
		if (is_foreground(entity) && wants(entity) && !READ_ONCE(entity->pause.err))
			beside = max(beside, entity->on_new);
	if (rotation->rota.stepped)
		rotation->alone += (s64)(now - rotation->rota.stepped) - (beside == S64_MIN ? 0 : beside);
	return rotation->alone;
}

/* Nothing that was counted changes any more: who was on beside the foreground had nothing of it, and what nobody used is nobody's. */
static void close_account(struct ds_runq *runq)
{
	struct ds_entity *entity;

	runq->rotation.alone = 0;
	list_for_each_entry(entity, &runq->entities, link)
		entity->on_unpaid = 0;
}

static u64 most_paid(const struct rm_rota_tenant *tenants, unsigned int count)
{
	unsigned int i;
	u64 most = 0;

	for (i = 0; i < count; i++)
		most = max(most, tenants[i].ran);
	return most;
}

/* All that have turns, into `spare`; how many. */
static unsigned int collect(struct ds_runq *runq, u64 now)
{
	struct ds_rotation *rotation = &runq->rotation;
	unsigned int entities = 0, count = 0;
	struct ds_entity *entity;
	bool open = false;
	s64 alone;

	rotation->least = DETSHARE_LEVEL_HIGH;
	list_for_each_entry(entity, &runq->entities, link) {
		open |= count_on(entity, now);
		entity->fixed |= READ_ONCE(entity->pause.err) == -EOPNOTSUPP;
		if (!ds_rotation_has(entity))
			continue;
		entities++;
		rotation->least = min(rotation->least, level_of(entity));
	}
	make_room(rotation, entities);
	alone = without_foreground(runq, now);
	list_for_each_entry(entity, &runq->entities, link)
		if (ds_rotation_has(entity))
			add(rotation, &count, entity, alone);
	rotation->alone -= rotation->gaps.closed ? most_paid(rotation->spare, count) : 0;
	if (!open)
		close_account(runq);
	rm_rota_divide(rotation->spare, count);
	return count;
}

/* ---- what the foreground leaves --------------------------------------------------------- */

/* Is any of it at work? *since: since when it is not. */
static bool is_busy(const struct ds_runq *runq, bool *there, u64 *since)
{
	const struct ds_entity *entity;
	bool busy = false;

	*there = false;
	*since = 0;
	list_for_each_entry(entity, &runq->entities, link) {
		if (!works_above(entity))
			continue;
		*there = true;
		busy |= wants(entity);
		*since = max(*since, ds_entity_ended(entity) ?: READ_ONCE(entity->last_ns));
	}
	return busy;
}

static u64 useful(u64 from, u64 to)
{
	return to > from + SWITCHES_NS ? to - from - SWITCHES_NS : 0;
}

/* The answers of the driver about the foreground; a question, where too few came. */
static void sample(struct ds_scan *scan, struct ds_gaps *gaps)
{
	struct ds_entity *entity;

	list_for_each_entry(entity, &scan->runq->entities, link) {
		enum ds_busy said;
		u64 asked;

		if (!is_foreground(entity) || !wants(entity) || is_off(entity))
			continue;
		spin_lock_irq(&scan->runq->lock);
		said = entity->busy.said;
		asked = entity->busy.asked_ns;
		spin_unlock_irq(&scan->runq->lock);
		if (asked > gaps->asked_ns && asked >= scan->now - MEASURE_NS) {
			gaps->asked_ns = asked;
			gaps->asked += said == DS_BUSY_YES || said == DS_BUSY_NO;
			gaps->busy += said == DS_BUSY_YES;
		}
		if (gaps->few && ds_busy_can(entity->gpu)) {
			if (scan->now >= asked + ASK_NS)
				ds_busy_ask(entity);
			ds_scan_again(scan, max(asked, scan->now) + ASK_NS);
		}
	}
}

static void judge(struct ds_scan *scan, struct ds_gaps *gaps)
{
	u64 now = scan->now, span = now - gaps->began_ns;
	bool had_few = gaps->few;

	if (gaps->quiet_ns)
		gaps->useful += useful(max(gaps->quiet_ns, gaps->began_ns), now);
	gaps->few = gaps->useful * 100 < span * (gaps->closed ? MANY_PERCENT : FEW_PERCENT);
	/* one that stalled once leaves no more gaps for it; without an answer it counts as busy for as long as it shows life */
	if (!gaps->few)
		gaps->closed &= had_few;
	else if (gaps->asked >= ASKED_LEAST)
		gaps->closed = gaps->busy * 100 >= gaps->asked * BUSY_PERCENT;
	gaps->began_ns = now;
	gaps->useful = 0;
	if (gaps->few)
		gaps->wary = WARY;
	else if (gaps->wary)
		gaps->wary--;
	if (gaps->few && gaps->asked < ASKED_LEAST)
		return;
	gaps->asked = 0;
	gaps->busy = 0;
	if (!gaps->few && !gaps->wary && ds_busy_can(scan->runq->gpu)) {
		*gaps = (struct ds_gaps){ 0 };
		ds_spots_begin(scan->runq, scan->now);
	}
}

/* Of whose channels are off, or are being moved, there is no answer: it would be asked again and again. */
static bool can_be_asked(const struct ds_entity *entity)
{
	return works_above(entity) && !is_off(entity);
}

/* Are there turns at this moment? */
static bool measure(struct ds_scan *scan)
{
	struct ds_spots *spots = &scan->runq->rotation.spots;
	struct ds_gaps *gaps = &scan->runq->rotation.gaps;
	bool there, busy;
	u64 since;

	busy = is_busy(scan->runq, &there, &since);
	if (!there) {
		*gaps = (struct ds_gaps){ 0 };
		*spots = (struct ds_spots){ 0 };
		return true;
	}
	if (spots->suffice) {
		if (!ds_spots_scan(scan->runq, scan->now, can_be_asked))
			gaps->wary = WARY;
		if (!spots->suffice)
			ds_scan_again(scan, scan->now);
		else if (!spots->asking_ns)
			ds_scan_again(scan, spots->next_ns);
		return true;
	}
	if (!gaps->began_ns) {
		gaps->began_ns = scan->now;
		if (!gaps->wary && !spots->next_ns)
			gaps->wary = WARY_NEW;
	}
	if (busy && gaps->quiet_ns) {
		gaps->useful += useful(max(gaps->quiet_ns, gaps->began_ns), scan->now);
		gaps->quiet_ns = 0;
	} else if (!busy && !gaps->quiet_ns) {
		gaps->quiet_ns = since ?: scan->now;
	}
	if (busy)
		sample(scan, gaps);
	if (scan->now - gaps->began_ns >= MEASURE_NS)
		judge(scan, gaps);
	if (spots->suffice) {
		ds_scan_again(scan, spots->next_ns);
		return true;
	}
	ds_scan_again(scan, gaps->began_ns + MEASURE_NS);
	if (!gaps->closed)
		return true;
	if (busy)
		return false;
	if (scan->now - gaps->quiet_ns >= PATIENCE_NS)
		return true;
	ds_scan_again(scan, gaps->quiet_ns + PATIENCE_NS);
	return false;
}

/* ---- one look ------------------------------------------------------------------------------ */

static bool is_to_rest(const struct ds_entity *entity, const struct ds_rotation *rotation, bool closed)
{
	const struct rm_gang_word *gang = &rotation->gang;
	u64 holder = gang->taken ? gang->holder : rotation->rota.holder;

	if (!wants(entity))
		return false;
	if (is_foreground(entity))
		return closed && (gang->taken ? gang->kind : rotation->rota.kind) == RM_ROTA_WINDOW;
	return ds_rotation_has(entity) && holder != entity->rule.account;
}

static bool anybody_wants(const struct rm_rota_tenant *tenants, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (tenants[i].wants)
			return true;
	return false;
}

/* Who has this GPU, of those that work on several and of the others; `spare` becomes the others. */
static void step(struct ds_scan *scan, unsigned int count, bool closed)
{
	struct ds_rotation *rotation = &scan->runq->rotation;
	struct rm_rota *rota = &rotation->rota;
	u64 next;

	if (scan->free)
		rotation->gang = (struct rm_gang_word){ .next = RM_ROTA_NEVER };
	else
		ds_gangs_step(scan->runq->gpu, rotation->spare, &count, closed, scan->now, &rotation->gang);
	swap(rota->tenants, rotation->spare);
	rota->count = count;
	next = rotation->gang.next;
	if (rotation->gang.taken)
		rm_rota_yield(rota, scan->now, closed);
	else
		next = min(next, rm_rota_step(rota, scan->now, closed));
	if (next != RM_ROTA_NEVER && !scan->free)
		ds_scan_again(scan, next);
}

void ds_rotation_scan(struct ds_scan *scan)
{
	struct ds_runq *runq = scan->runq;
	struct ds_rotation *rotation = &runq->rotation;
	struct ds_entity *entity;
	unsigned int count;
	bool closed = false;

	count = collect(runq, scan->now);
	ds_rival_scan(scan, anybody_wants(rotation->spare, count));
	if (count && !scan->free)
		closed = !measure(scan);
	else
		rotation->gaps = (struct ds_gaps){ 0 };
	step(scan, count, closed);
	list_for_each_entry(entity, &runq->entities, link) {
		entity->spans = rotation->gang.here && ds_rotation_has(entity) &&
				!find(rotation->rota.tenants, rotation->rota.count, entity->rule.account);
		entity->resting = !scan->free && is_to_rest(entity, rotation, closed);
	}
}

void ds_rotation_tell(struct ds_runq *runq, struct ds_rotation_info *info)
{
	const struct ds_rotation *rotation = &runq->rotation;
	const struct rm_gang_word *gang = &rotation->gang;
	u64 holder = gang->taken ? gang->holder : rotation->rota.holder;
	const struct ds_entity *entity;

	*info = (struct ds_rotation_info){ .mode = DETSHARE_TURN_MODE_NONE };
	if (!rotation->rota.count && !gang->here)
		return;
	info->mode = rotation->gaps.closed ? DETSHARE_TURN_MODE_WINDOWS : DETSHARE_TURN_MODE_TURNS;
	if (!holder)
		return;
	info->left_ms = div_u64(gang->taken ? gang->left : rotation->rota.left, NSEC_PER_MSEC);
	list_for_each_entry(entity, &runq->entities, link) {
		if (!ds_rotation_has(entity) || entity->rule.account != holder)
			continue;
		info->vctx = entity->vctx;
		info->pid = ds_process_nr(entity->process);
		return;
	}
}

void ds_rotation_exit(struct ds_runq *runq)
{
	kvfree(runq->rotation.rota.tenants);
	kvfree(runq->rotation.spare);
}
