// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "rota.h"

static u64 min_of(u64 one, u64 other)
{
	return one < other ? one : other;
}

static struct rm_rota_tenant *find(const struct rm_rota *rota, u64 key)
{
	unsigned int i;

	for (i = 0; key && i < rota->count; i++)
		if (rota->tenants[i].key == key)
			return &rota->tenants[i];
	return NULL;
}

/* The highest rank that wants something. */
static u32 top_of(const struct rm_rota *rota)
{
	unsigned int i;
	u32 top = 0;

	for (i = 0; i < rota->count; i++)
		if (rota->tenants[i].wants && rota->tenants[i].rank > top)
			top = rota->tenants[i].rank;
	return top;
}

static bool has_turns(const struct rm_rota_tenant *tenant, u32 top, bool closed)
{
	return tenant->wants && !closed && tenant->rank == top;
}

/* Of many who divide a floor each has short ones, so that none waits for a second, as far as they are worth their switches. */
static u64 window_of(const struct rm_rota_tenant *tenant)
{
	u64 part = RM_ROTA_EACH_NS / RM_ROTA_WHOLE * tenant->floor;

	return part < RM_ROTA_SHORT_NS ? RM_ROTA_SHORT_NS : min_of(part, RM_ROTA_WINDOW_NS);
}

static bool lives_off_floor(const struct rm_rota_tenant *tenant, u32 top, bool closed)
{
	return tenant->wants && tenant->floor && !has_turns(tenant, top, closed);
}

/* What all who live off floors have together, millionths. */
static u64 floors_of(const struct rm_rota *rota, u32 top, bool closed)
{
	unsigned int i;
	u64 sum = 0;

	for (i = 0; i < rota->count; i++)
		if (lives_off_floor(&rota->tenants[i], top, closed))
			sum += rota->tenants[i].floor;
	return sum;
}

/* Floors of several ranks could be all of the time, and more, which would leave nothing to those above them. */
static void bound_floors(struct rm_rota *rota, u32 top, bool closed)
{
	u64 sum = floors_of(rota, top, closed), floor;
	unsigned int i;

	for (i = 0; sum > RM_ROTA_FLOORS && i < rota->count; i++) {
		floor = (u64)rota->tenants[i].floor * RM_ROTA_FLOORS / sum;
		if (lives_off_floor(&rota->tenants[i], top, closed))
			rota->tenants[i].floor = rm_max64(floor, 1);
	}
}

/* A whole window is due. */
static bool is_due(const struct rm_rota_tenant *tenant)
{
	return tenant->wants && tenant->floor && tenant->deficit >= window_of(tenant);
}

/* Who cannot be put off at all is not made to pay for all of it. */
static void ran_beyond(struct rm_rota_tenant *tenant, u64 ns)
{
	tenant->over = min_of(tenant->over + ns, RM_ROTA_ROUND_NS);
}

/* What happened since the last step: floors that were not served grow, what the holder runs is used. */
static void elapse(struct rm_rota *rota, u64 span, u32 top, bool closed)
{
	struct rm_rota_tenant *tenant;
	u64 owed, paid;
	unsigned int i;

	/* more would not be kept, and may not be multiplied */
	span = min_of(span, RM_ROTA_SPAN_NS);
	for (i = 0; i < rota->count; i++) {
		tenant = &rota->tenants[i];
		if (tenant->wants && tenant->key != rota->holder)
			ran_beyond(tenant, tenant->ran);
		if (!lives_off_floor(tenant, top, closed)) {
			tenant->deficit = 0;
			continue;
		}
		owed = span * tenant->floor / RM_ROTA_WHOLE;
		tenant->over = min_of(tenant->over, RM_ROTA_OWED_NS / RM_ROTA_WHOLE * tenant->floor);
		paid = min_of(owed, tenant->over);
		tenant->over -= paid;
		tenant->deficit += owed - paid;
		/* what could not be given is not hoarded */
		if (tenant->deficit > 2 * RM_ROTA_WINDOW_NS)
			tenant->deficit = 2 * RM_ROTA_WINDOW_NS;
	}
	rota->apart -= min_of(rota->apart, span);
	tenant = find(rota, rota->holder);
	if (!tenant)
		return;
	if (rota->kind == RM_ROTA_WINDOW) {
		paid = min_of(tenant->deficit, tenant->ran);
		tenant->deficit -= paid;
		ran_beyond(tenant, tenant->ran - paid);
	} else if (rota->waited && tenant->ran > rota->left) {
		ran_beyond(tenant, tenant->ran - rota->left);
	}
	rota->left -= min_of(rota->left, tenant->ran);
	rota->used += tenant->ran;
}

static u64 turn_of(const struct rm_rota *rota, const struct rm_rota_tenant *tenant, u32 top)
{
	u64 own = tenant->turn * tenant->weight, round = 0, most;
	u64 floors = floors_of(rota, top, false);
	unsigned int i;

	for (i = 0; i < rota->count; i++)
		if (has_turns(&rota->tenants[i], top, false))
			round += rota->tenants[i].turn * rota->tenants[i].weight;
	/* windows come in between */
	most = RM_ROTA_ROUND_NS / RM_ROTA_WHOLE * (RM_ROTA_WHOLE - min_of(floors, RM_ROTA_FLOORS));
	/* in millionths, so that nothing overflows: weights are 1000 at most, turns a second */
	if (round > most)
		own = own / 1000 * (most / 1000) / (round / 1000) * 1000;
	return own > RM_ROTA_LEAST_NS ? own : RM_ROTA_LEAST_NS;
}

static struct rm_rota_tenant *next_window(const struct rm_rota *rota, u32 top, bool closed)
{
	struct rm_rota_tenant *tenant, *found = NULL;
	unsigned int i;

	for (i = 0; !rota->apart && i < rota->count; i++) {
		tenant = &rota->tenants[i];
		if (!has_turns(tenant, top, closed) && is_due(tenant) && (!found || tenant->deficit > found->deficit))
			found = tenant;
	}
	return found;
}

/* Who is back from a rest, and has some of its turn left. */
static struct rm_rota_tenant *who_is_back(const struct rm_rota *rota, u32 top, bool closed)
{
	struct rm_rota_tenant *tenant;
	unsigned int i;

	for (i = 0; i < rota->count; i++) {
		tenant = &rota->tenants[i];
		if (tenant->key != rota->holder && tenant->saved && tenant->rested && has_turns(tenant, top, closed))
			return tenant;
	}
	return NULL;
}

/* Who is back, then who let it through, then after who had the last one; himself, if there is no other. */
static struct rm_rota_tenant *next_turn(const struct rm_rota *rota, u32 top, bool closed)
{
	struct rm_rota_tenant *last = find(rota, rota->last), *tenant = who_is_back(rota, top, closed);
	unsigned int from = last ? last - rota->tenants + 1 : 0, i;

	if (tenant)
		return tenant;
	if (last && last->saved && has_turns(last, top, closed))
		return last;
	for (i = 0; i < rota->count; i++) {
		tenant = &rota->tenants[(from + i) % rota->count];
		if (has_turns(tenant, top, closed)) {
			tenant->saved = 0; /* of the round before */
			return tenant;
		}
	}
	return NULL;
}

static void give(struct rm_rota *rota, struct rm_rota_tenant *tenant, enum rm_rota_kind kind, u64 left)
{
	rota->holder = tenant ? tenant->key : 0;
	rota->kind = kind;
	rota->left = left;
	rota->used = 0;
}

/* What is left of its turn, or a whole one: what it ran beyond its last ones is taken off that. */
static void give_turn(struct rm_rota *rota, struct rm_rota_tenant *tenant, u32 top)
{
	u64 left = tenant->saved, over;

	if (!left) {
		left = turn_of(rota, tenant, top);
		over = min_of(tenant->over, left / 2);
		tenant->over -= over;
		left -= over;
		rota->last = tenant->key;
	}
	tenant->saved = 0;
	tenant->rested = false;
	give(rota, tenant, RM_ROTA_TURN, left);
}

/* It has the rest of its turn when it is back. */
static void put_by(const struct rm_rota *rota, struct rm_rota_tenant *holder)
{
	if (rota->kind != RM_ROTA_TURN)
		return;
	holder->saved = rota->left;
	holder->rested = true;
}

/*
 * Of many who are due at the same moment the windows come one at a time: whom floors are defended against is not off for all of them in a row.
 * A quarter of the way to the next one, so that nobody loses by it; where a turn between them would take more than that, nothing.
 */
static void part_windows(struct rm_rota *rota, u32 top, bool closed)
{
	u64 floors = floors_of(rota, top, closed), apart;

	if (rota->kind != RM_ROTA_WINDOW || !floors)
		return;
	apart = min_of(rota->used, RM_ROTA_WINDOW_NS) * (RM_ROTA_WHOLE - floors) / floors / 4;
	rota->apart = apart < RM_ROTA_LEAST_NS ? 0 : apart;
}

static bool is_alone(const struct rm_rota *rota, const struct rm_rota_tenant *holder, u32 top, bool closed)
{
	unsigned int i;

	for (i = 0; i < rota->count; i++)
		if (&rota->tenants[i] != holder && has_turns(&rota->tenants[i], top, closed))
			return false;
	return true;
}

static void choose(struct rm_rota *rota, u32 top, bool closed)
{
	struct rm_rota_tenant *holder = find(rota, rota->holder), *window = next_window(rota, top, closed), *turn;
	bool may;

	if (!holder)
		give(rota, NULL, RM_ROTA_NONE, 0);
	may = holder && holder->wants && (rota->kind == RM_ROTA_WINDOW || has_turns(holder, top, closed));
	if (may && rota->left) {
		if (rota->kind == RM_ROTA_WINDOW || rota->used < RM_ROTA_LEAST_NS)
			return;
		turn = who_is_back(rota, top, closed);
		if (!window && turn) {
			holder->saved = rota->left;
			give_turn(rota, turn, top);
		}
		if (!window)
			return;
	}
	part_windows(rota, top, closed);
	window = next_window(rota, top, closed);
	/* a window does not wait for the end of a turn: what the floor gives meanwhile would be lost */
	if (holder && (may ? rota->left : !holder->wants))
		put_by(rota, holder);
	if (window) {
		give(rota, window, RM_ROTA_WINDOW, window_of(window));
		return;
	}
	turn = next_turn(rota, top, closed);
	/*
	 * nobody else waits: it goes on, owes nobody anything, and makes way for the first who does. Where others do it was let through by
	 * who had the last turn, and has its own now
	 */
	if (turn && turn == holder && rota->kind == RM_ROTA_TURN && is_alone(rota, holder, top, closed))
		holder->over = 0;
	else if (turn)
		give_turn(rota, turn, top);
	else
		give(rota, NULL, RM_ROTA_NONE, 0);
}

static void go_on(struct rm_rota *rota, u64 now, u32 top, bool closed)
{
	bound_floors(rota, top, closed);
	elapse(rota, rota->stepped && now > rota->stepped ? now - rota->stepped : 0, top, closed);
	rota->stepped = now;
}

void rm_rota_yield(struct rm_rota *rota, u64 now, bool closed)
{
	struct rm_rota_tenant *holder;

	go_on(rota, now, top_of(rota), closed);
	holder = find(rota, rota->holder);
	if (holder)
		put_by(rota, holder);
	give(rota, NULL, RM_ROTA_NONE, 0);
	rota->waited = false;
}

u64 rm_rota_step(struct rm_rota *rota, u64 now, bool closed)
{
	u64 next = RM_ROTA_NEVER, when;
	u32 top = top_of(rota);
	unsigned int i;

	go_on(rota, now, top, closed);
	choose(rota, top, closed);
	if (rota->holder && rota->left)
		next = now + rota->left;
	if (rota->kind == RM_ROTA_TURN && rota->used < RM_ROTA_LEAST_NS &&
	    (who_is_back(rota, top, closed) || next_window(rota, top, closed)))
		next = min_of(next, now + RM_ROTA_LEAST_NS - rota->used);
	rota->waited = false;
	for (i = 0; i < rota->count; i++) {
		const struct rm_rota_tenant *tenant = &rota->tenants[i];

		rota->waited |= tenant->key != rota->holder && has_turns(tenant, top, closed);
		if (!lives_off_floor(tenant, top, closed))
			continue;
		when = now + rota->apart;
		if (!is_due(tenant))
			when = now + (window_of(tenant) - tenant->deficit) * RM_ROTA_WHOLE / tenant->floor + 1;
		if (when > now && when < next)
			next = when;
	}
	return next;
}

void rm_rota_divide(struct rm_rota_tenant *tenants, unsigned int count)
{
	unsigned int i, j, sharing;

	for (i = 0; i < count; i++) {
		for (sharing = 0, j = 0; j < count; j++)
			sharing += tenants[j].wants && tenants[j].share == tenants[i].share;
		if (!tenants[i].wants)
			tenants[i].floor = 0;
		else if (tenants[i].floor)
			tenants[i].floor = rm_max64(tenants[i].floor / sharing, 1);
	}
}
