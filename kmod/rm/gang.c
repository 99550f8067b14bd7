// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "gang.h"

#define OTHERS ((u64)-1)	/* a key; no account has it */

static struct rm_gang *find(const struct rm_gangs *gangs, u64 key)
{
	unsigned int i;

	for (i = 0; i < gangs->count; i++)
		if (gangs->tenants[i].tenant.key == key)
			return &gangs->tenants[i];
	return NULL;
}

static bool spans(const struct rm_gang *gang)
{
	return gang->on & (gang->on - 1);
}

/* ---- what each does ------------------------------------------------------------------------ */

static void look(struct rm_gang *gang, u64 now)
{
	u32 gpu;

	gang->on = 0;
	for (gpu = 0; gpu < RM_GPUS; gpu++)
		if (gang->at[gpu].wanted && now < gang->at[gpu].wanted + RM_GANG_KEEP_NS)
			gang->on |= (u32)1 << gpu;
}

/* Who wanted nothing for long is forgotten. */
static void forget(struct rm_gangs *gangs, u64 now)
{
	unsigned int i, kept = 0;

	for (i = 0; i < gangs->count; i++) {
		look(&gangs->tenants[i], now);
		if (!gangs->tenants[i].on)
			continue;
		if (kept != i)
			gangs->tenants[kept] = gangs->tenants[i];
		kept++;
	}
	gangs->count = kept;
}

static void tell(struct rm_gangs *gangs, u32 gpu, const struct rm_rota_tenant *told, u64 now)
{
	struct rm_gang *gang = find(gangs, told->key);
	struct rm_gang_place *place;

	if (!told->wants)
		return;
	if (!gang) {
		if (gangs->count == gangs->room)
			return;
		gang = &gangs->tenants[gangs->count++];
		memset(gang, 0, sizeof(*gang));
		gang->tenant.key = told->key;
	}
	gang->rank = told->rank + 1;
	gang->tenant.weight = told->weight;
	gang->tenant.turn = told->turn;
	place = &gang->at[gpu];
	place->wants = true;
	place->wanted = now;
	/* what it ran before the turn passed was counted, or is not known */
	place->ran += rm_min64(told->ran, now - rm_min64(now, gangs->since));
	place->floor = told->floor;
	look(gang, now);
}

static void tell_all(struct rm_gangs *gangs, u32 gpu, const struct rm_rota_tenant *tenants, unsigned int count, u64 now)
{
	unsigned int i;

	for (i = 0; i < gangs->count; i++)
		gangs->tenants[i].at[gpu].wants = false;
	for (i = 0; i < count; i++)
		tell(gangs, gpu, &tenants[i], now);
}

/* Those that are none stay in `tenants`. */
static void part(struct rm_gangs *gangs, u32 gpu, struct rm_rota_tenant *tenants, unsigned int *count)
{
	struct rm_gang_others *others = &gangs->others[gpu];
	const struct rm_gang *gang;
	unsigned int i, kept = 0;

	*others = (struct rm_gang_others){ 0 };
	for (i = 0; i < *count; i++) {
		gang = find(gangs, tenants[i].key);
		if (gang && spans(gang))
			continue;
		if (tenants[i].wants) {
			others->want = true;
			others->floor += tenants[i].floor;
			if (tenants[i].rank + 1 > others->rank) {
				others->rank = tenants[i].rank + 1;
				others->turn = 0;
			}
			if (tenants[i].rank + 1 == others->rank)
				others->turn += tenants[i].turn * tenants[i].weight;
		}
		tenants[kept++] = tenants[i];
	}
	*count = kept;
}

/* ---- their rota ---------------------------------------------------------------------------- */

/* What stands for the others on all of the gangs' GPUs. */
static void stand_in(struct rm_gangs *gangs, u64 now)
{
	struct rm_rota_tenant *rest = &gangs->rest;
	u32 gpu;

	rest->key = OTHERS;
	rest->rank = 0;
	rest->weight = 1;
	rest->floor = 0;
	rest->turn = 0;
	rest->wants = false;
	for (gpu = 0; gpu < RM_GPUS; gpu++) {
		const struct rm_gang_others *others = &gangs->others[gpu];

		if (!(gangs->covered >> gpu & 1) || !others->want)
			continue;
		rest->wants = true;
		if (others->rank > rest->rank)
			rest->rank = others->rank;
		if (others->floor > rest->floor)
			rest->floor = others->floor;
		rest->turn = rm_max64(rest->turn, others->turn);
	}
	rest->ran = gangs->rota.holder == OTHERS && gangs->rota.stepped && now > gangs->rota.stepped ? now - gangs->rota.stepped : 0;
}

/* What it does on all of its GPUs together: it wants what it wants anywhere, and ran for as long as where it ran most. */
static void sum_up(struct rm_gang *gang, u32 closed)
{
	struct rm_rota_tenant *tenant = &gang->tenant;
	u64 ran = 0;
	u32 gpu;

	tenant->wants = false;
	tenant->floor = (u32)-1;
	for (gpu = 0; gpu < RM_GPUS; gpu++) {
		const struct rm_gang_place *place = &gang->at[gpu];

		if (!(gang->on >> gpu & 1))
			continue;
		tenant->wants |= place->wants;
		ran = rm_max64(ran, place->ran);
		if (place->floor < tenant->floor)
			tenant->floor = place->floor;
	}
	tenant->ran = ran - rm_min64(ran, gang->told);
	gang->told = rm_max64(ran, gang->told);
	/* below all that have turns */
	tenant->rank = gang->on & closed ? 0 : gang->rank;
}

/* Those that take part, the stand-in first. */
static void gather(struct rm_gangs *gangs, u64 now)
{
	struct rm_rota *rota = &gangs->rota;
	unsigned int i;

	gangs->covered = 0;
	for (i = 0; i < gangs->count; i++)
		if (spans(&gangs->tenants[i]))
			gangs->covered |= gangs->tenants[i].on;
	stand_in(gangs, now);
	rota->tenants = gangs->scratch;
	rota->tenants[0] = gangs->rest;
	rota->count = 1;
	for (i = 0; i < gangs->count; i++) {
		if (!spans(&gangs->tenants[i]))
			continue;
		sum_up(&gangs->tenants[i], gangs->closed);
		rota->tenants[rota->count++] = gangs->tenants[i].tenant;
	}
}

/* What is theirs to keep until the next step. */
static void scatter(struct rm_gangs *gangs)
{
	unsigned int i, from = 1;

	gangs->rest = gangs->rota.tenants[0];
	for (i = 0; i < gangs->count; i++)
		if (spans(&gangs->tenants[i]))
			gangs->tenants[i].tenant = gangs->rota.tenants[from++];
}

static void count_anew(struct rm_gangs *gangs, u64 now)
{
	unsigned int i;
	u32 gpu;

	gangs->since = now;
	for (i = 0; i < gangs->count; i++) {
		gangs->tenants[i].told = 0;
		for (gpu = 0; gpu < RM_GPUS; gpu++)
			gangs->tenants[i].at[gpu].ran = 0;
	}
}

/* Nobody has turns but those of whom no GPU is closed. */
static bool all_closed(const struct rm_rota *rota)
{
	unsigned int i;

	for (i = 0; i < rota->count; i++)
		if (rota->tenants[i].wants && rota->tenants[i].rank)
			return false;
	return true;
}

void rm_gang_step(struct rm_gangs *gangs, u32 gpu, struct rm_rota_tenant *tenants, unsigned int *count, bool closed, u64 now,
		  struct rm_gang_word *word)
{
	struct rm_rota *rota = &gangs->rota;
	u64 holder = rota->holder;
	enum rm_rota_kind kind = rota->kind;
	u32 covered = gangs->covered;
	const struct rm_gang *gang;

	*word = (struct rm_gang_word){ .next = RM_ROTA_NEVER };
	/* another GPU's step may have been later */
	now = rm_max64(now, rota->stepped);
	gangs->closed = (gangs->closed & ~((u32)1 << gpu)) | (u32)closed << gpu;
	forget(gangs, now);
	tell_all(gangs, gpu, tenants, *count, now);
	part(gangs, gpu, tenants, count);
	gather(gangs, now);
	if (gangs->covered) {
		word->next = rm_rota_step(rota, now, all_closed(rota));
		scatter(gangs);
	} else {
		*rota = (struct rm_rota){ 0 };
		gangs->rest = (struct rm_rota_tenant){ 0 };
	}
	if (rota->holder != holder || rota->kind != kind)
		count_anew(gangs, now);
	if (rota->holder != holder || rota->kind != kind || gangs->covered != covered)
		word->again = (gangs->covered | covered) & ~((u32)1 << gpu);
	word->here = gangs->covered >> gpu & 1;
	if (!word->here)
		word->next = RM_ROTA_NEVER;
	gang = rota->holder == OTHERS ? NULL : find(gangs, rota->holder);
	if (!gang || !(gang->on >> gpu & 1))
		return;
	word->taken = true;
	word->holder = rota->holder;
	word->kind = rota->kind;
	word->left = rota->left;
}
