// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/string.h>
#include <linux/time64.h>

#include "entity.h"
#include "turns.h"
#include "usage.h"

/* A time is charged in no more pieces, however often its runs began and ended. */
#define PIECES_MOST 16

/* ---- what is known of one entity ------------------------------------------------------- */

/* Its spell of work since it was seen last, and *until when it is seen now. Under runq->lock. */
static struct ds_spell newest(const struct ds_entity *entity, u64 now, u64 *until)
{
	const struct ds_entity_pause *pause = &entity->pause;
	u64 seen = entity->usage.seen_ns, late = now - min(now, DS_USAGE_LATE_NS), ended = ds_entity_ended(entity);
	/* who is put back works when its context is there again */
	struct ds_spell spell = { .from = max3(seen, entity->since_ns, pause->on_ns + DS_SWITCH_NS) };

	*until = max3(min(now, entity->known_ns), seen, late);
	spell.to = *until;
	if (pause->moving_ns) {
		/* a call that takes it off or puts it back is under way: it is off from the beginning of one that does not return */
		spell.to = clamp(pause->moving_ns, seen, *until);
		*until = max(spell.to, late);
	}
	if (pause->off)
		spell.to = min(spell.to, pause->off_ns);
	if (ended)
		spell.to = min(spell.to, ended);
	/* one that went idle was at work until it had ended */
	if (!entity->watched || !seen || (!entity->active && !ended))
		spell.to = spell.from;
	return spell;
}

static void append(struct ds_usage *usage, struct ds_spell spell)
{
	struct ds_spell *last = usage->count ? &usage->spells[usage->count - 1] : NULL;

	if (spell.from >= spell.to)
		return;
	/* who begins and ends too often to be written down pays for the gap */
	if (last && (last->to >= spell.from || usage->count == DS_SPELLS_MOST))
		last->to = max(last->to, spell.to);
	else
		usage->spells[usage->count++] = spell;
}

/* What is to be known of an entity to charge it. Only this needs the runq's lock, which faults take. */
static void see(struct ds_entity *entity, u64 now)
{
	struct ds_usage *usage = &entity->usage;
	struct ds_spell spell, rest;
	u64 until;

	spin_lock_irq(&entity->runq->lock);
	spell = newest(entity, now, &until);
	rest = entity->rest;
	if (rest.to <= until)
		entity->rest.to = 0;
	usage->tsgs = entity->tsgs;
	usage->slice_us = entity->slice_us;
	usage->level = entity->level;
	spin_unlock_irq(&entity->runq->lock);
	if (rest.to) {
		append(usage, (struct ds_spell){ .from = spell.from, .to = min(spell.to, rest.from) });
		spell.from = max(spell.from, rest.to);
	}
	append(usage, spell);
	usage->seen_ns = until;
}

/* What is charged goes. */
static void forget(struct ds_usage *usage, u64 until)
{
	unsigned int gone = 0;

	while (gone < usage->count && usage->spells[gone].to <= until)
		gone++;
	usage->count -= gone;
	memmove(usage->spells, usage->spells + gone, usage->count * sizeof(*usage->spells));
	if (usage->count)
		usage->spells[0].from = max(usage->spells[0].from, until);
}

/* ---- what it costs -------------------------------------------------------------------- */

static u64 work_in(const struct ds_usage *usage, u64 from, u64 to)
{
	const struct ds_spell *spell;
	u64 work = 0;

	for (spell = usage->spells; spell < usage->spells + usage->count; spell++)
		if (spell->from < to && spell->to > from)
			work += min(spell->to, to) - max(spell->from, from);
	return work;
}

/* When somebody begins or ends next, from `least` on. */
static u64 next_edge(const struct ds_runq *runq, u64 least, u64 until)
{
	const struct ds_spell *spell;
	const struct ds_entity *entity;

	list_for_each_entry(entity, &runq->entities, link) {
		for (spell = entity->usage.spells; spell < entity->usage.spells + entity->usage.count; spell++) {
			if (spell->from >= least)
				until = min(until, spell->from);
			if (spell->to >= least)
				until = min(until, spell->to);
		}
	}
	return until;
}

static u64 own_part(const struct ds_turns *turns, const struct ds_usage *usage)
{
	return ds_turns_used(turns, usage->level, usage->tsgs, usage->slice_us);
}

static void charge(struct ds_runq *runq, u64 from, u64 to)
{
	struct ds_turns turns = { 0 };
	struct ds_usage *usage;
	struct ds_entity *entity;
	u64 round = 0, work;

	list_for_each_entry(entity, &runq->entities, link)
		if (work_in(&entity->usage, from, to))
			ds_turns_add(&turns, entity->usage.level, entity->usage.tsgs);
	ds_turns_count(&turns);
	list_for_each_entry(entity, &runq->entities, link) {
		usage = &entity->usage;
		if (work_in(usage, from, to))
			round = ds_turns_sum(round, ds_turns_taken(&turns, usage->level, usage->tsgs, usage->slice_us));
	}
	list_for_each_entry(entity, &runq->entities, link) {
		usage = &entity->usage;
		work = work_in(usage, from, to);
		usage->charged += round ? mul_u64_u64_div_u64(work, own_part(&turns, usage), round) : work;
	}
}

static void add_used(struct ds_entity *entity)
{
	spin_lock_irq(&entity->runq->lock);
	entity->used_ns += entity->usage.charged;
	spin_unlock_irq(&entity->runq->lock);
}

u64 ds_usage_charge(struct ds_runq *runq, u64 now)
{
	u64 from = runq->charged_ns, until = now, at, least;
	struct ds_entity *entity;

	list_for_each_entry(entity, &runq->entities, link) {
		see(entity, now);
		until = min(until, entity->usage.seen_ns);
		entity->usage.charged = 0;
	}
	until = max(until, from);
	least = max((until - from) / PIECES_MOST, 1ULL);
	while (from < until) {
		at = next_edge(runq, from + least, until);
		charge(runq, from, at);
		from = at;
	}
	list_for_each_entry(entity, &runq->entities, link) {
		forget(&entity->usage, until);
		add_used(entity);
	}
	runq->charged_ns = until;
	return until;
}

static bool is_at_work(const struct ds_entity *entity)
{
	return entity->watched && READ_ONCE(entity->active) && !ds_entity_ended(entity) && !READ_ONCE(entity->pause.off);
}

u64 ds_usage_end(struct ds_entity *entity, u64 now)
{
	struct ds_runq *runq = entity->runq;
	struct ds_turns turns = { 0 };
	struct ds_entity *other;
	u64 round = 0;

	spin_lock_irq(&runq->lock);
	entity->known_ns = now;
	spin_unlock_irq(&runq->lock);
	see(entity, now);
	list_for_each_entry(other, &runq->entities, link)
		if (other == entity || is_at_work(other))
			ds_turns_add(&turns, other->usage.level, other->usage.tsgs);
	ds_turns_count(&turns);
	list_for_each_entry(other, &runq->entities, link)
		if (other == entity || is_at_work(other))
			round = ds_turns_sum(round, ds_turns_taken(&turns, other->usage.level, other->usage.tsgs,
								  other->usage.slice_us));
	return mul_u64_u64_div_u64(work_in(&entity->usage, runq->charged_ns, now), own_part(&turns, &entity->usage), round);
}
