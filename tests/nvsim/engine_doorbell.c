// SPDX-License-Identifier: GPL-2.0-only
/* Doorbells: pages that clients store tokens to, tokens that come by other ways, and who rang. Contracts: engine.h. */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "engine_impl.h"
#include "methods.h"

static void wake_engine(struct sim_engine *engine)
{
	atomic_set(&engine->kicked, 1);
	wake_up_process(engine->thread);
}

struct sim_doorbell *sim_doorbell_create(struct sim_engine *engine,
					 const struct sim_doorbell_owner *owner, bool pages)
{
	struct sim_doorbell *doorbell = kzalloc(sizeof(*doorbell), GFP_KERNEL);

	if (!doorbell)
		return ERR_PTR(-ENOMEM);
	doorbell->page = pages ? alloc_page(GFP_KERNEL | __GFP_ZERO) : NULL;
	if (pages && !doorbell->page) {
		kfree(doorbell);
		return ERR_PTR(-ENOMEM);
	}
	doorbell->engine = engine;
	doorbell->owner = *owner;
	spin_lock(&engine->doorbell_lock);
	list_add_tail(&doorbell->in_engine, &engine->doorbells);
	spin_unlock(&engine->doorbell_lock);
	wake_engine(engine);
	return doorbell;
}

void sim_doorbell_destroy(struct sim_doorbell *doorbell)
{
	struct sim_engine *engine = doorbell->engine;

	spin_lock(&engine->doorbell_lock);
	list_del(&doorbell->in_engine);
	spin_unlock(&engine->doorbell_lock);
	if (doorbell->page)
		__free_page(doorbell->page);
	kfree(doorbell);
}

struct page *sim_doorbell_page(const struct sim_doorbell *doorbell, unsigned int i)
{
	return i ? doorbell->engine->filler : doorbell->page;
}

bool sim_doorbell_has(struct sim_engine *engine, const struct page *page)
{
	struct sim_doorbell *doorbell;
	bool found = false;

	spin_lock(&engine->doorbell_lock);
	list_for_each_entry(doorbell, &engine->doorbells, in_engine)
		found |= page && doorbell->page == page;
	spin_unlock(&engine->doorbell_lock);
	return found;
}

/* ---- rings ---- */

static void rang(struct sim_doorbell *doorbell, u64 now)
{
	atomic64_inc(&doorbell->rings);
	atomic64_set(&doorbell->last, now);
}

static void ring_token(struct sim_engine *engine, u32 token, u64 now)
{
	struct sim_runlist *runlist;
	struct sim_chan *chan;
	struct sim_tsg *tsg;

	engine->last_ring = now;
	list_for_each_entry(runlist, &engine->runlists, in_engine) {
		if (runlist->id != token >> 16)
			continue;
		chan = xa_load(&runlist->chans, token & 0xffff);
		if (!chan || !chan->sched.tsg)
			return;
		tsg = container_of(chan->sched.tsg, struct sim_tsg, sched);
		tsg->rings++;
		tsg->last_ring = now;
		sim_chan_ring(chan);
		return;
	}
}

/* False: too many wait already. */
static bool post(struct sim_engine *engine, u32 token)
{
	bool room;

	spin_lock(&engine->post_lock);
	room = engine->nposted < SIM_POSTS;
	if (room)
		engine->posted[engine->nposted++] = token;
	spin_unlock(&engine->post_lock);
	return room;
}

void sim_doorbell_post(struct sim_doorbell *doorbell, u32 token)
{
	rang(doorbell, ktime_get_ns());
	/* without room it is lost: who rings so often rings again */
	post(doorbell->engine, token);
	wake_engine(doorbell->engine);
}

void sim_doorbell_expect(struct sim_doorbell *doorbell)
{
	WRITE_ONCE(doorbell->engine->expected, ktime_get_ns());
	wake_engine(doorbell->engine);
}

void sim_ring_posted(struct sim_engine *engine, u64 now)
{
	u32 tokens[SIM_POSTS], count;

	spin_lock(&engine->post_lock);
	count = engine->nposted;
	memcpy(tokens, engine->posted, count * sizeof(*tokens));
	engine->nposted = 0;
	spin_unlock(&engine->post_lock);
	for (u32 i = 0; i < count; i++)
		ring_token(engine, tokens[i], now);
}

/* Takes the token of each page; where there is no room it stays for the next look. */
void sim_poll_doorbells(struct sim_engine *engine)
{
	struct sim_doorbell *doorbell;
	u64 now = ktime_get_ns();
	u32 token;
	u8 *page;

	spin_lock(&engine->doorbell_lock);
	list_for_each_entry(doorbell, &engine->doorbells, in_engine) {
		if (!doorbell->page)
			continue;
		page = kmap_local_page(doorbell->page);
		WRITE_ONCE(*(u32 *)(page + SIM_USERMODE_TIME_0), (u32)now);
		WRITE_ONCE(*(u32 *)(page + SIM_USERMODE_TIME_1), (u32)(now >> 32));
		token = READ_ONCE(*(u32 *)(page + SIM_USERMODE_DOORBELL));
		/*
		 * GP_PUT is read after the word was taken: a later ring finds it 0 again and is not
		 * lost
		 */
		if (token && post(engine, token)) {
			cmpxchg((u32 *)(page + SIM_USERMODE_DOORBELL), token, 0);
			rang(doorbell, ktime_get_ns());
		}
		kunmap_local(page);
	}
	spin_unlock(&engine->doorbell_lock);
}

/* ---- listing ---- */

static u64 kicks_of(const struct sim_doorbell *doorbell)
{
	u8 *page;
	u64 kicks;

	if (!doorbell->page)
		return atomic64_read(&doorbell->rings);
	page = kmap_local_page(doorbell->page);
	kicks = READ_ONCE(*(u64 *)(page + SIM_USERMODE_KICKS));
	kunmap_local(page);
	return kicks;
}

int sim_engine_kick_show(struct seq_file *m, struct sim_engine *engine)
{
	struct sim_doorbell *doorbell;

	seq_puts(m, "way client object pid kicks rings last_ns\n");
	spin_lock(&engine->doorbell_lock);
	list_for_each_entry(doorbell, &engine->doorbells, in_engine)
		seq_printf(m, "%s 0x%08x 0x%08x %d %llu %lld %lld\n", doorbell->owner.way,
			   doorbell->owner.client, doorbell->owner.object, doorbell->owner.pid,
			   kicks_of(doorbell), (long long)atomic64_read(&doorbell->rings),
			   (long long)atomic64_read(&doorbell->last));
	spin_unlock(&engine->doorbell_lock);
	return 0;
}
