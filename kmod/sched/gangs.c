// SPDX-License-Identifier: GPL-2.0-only
#include <linux/bitops.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "entity.h"
#include "gangs.h"

static DEFINE_MUTEX(gangs_lock);
static struct rm_gangs gangs;
static u32 used;	/* GPUs with tenants that have turns, a bit each; gangs_lock */

/* Under gangs_lock. */
static void make_room(unsigned int count)
{
	struct rm_rota_tenant *scratch;
	struct rm_gang *tenants;

	if (count <= gangs.room)
		return;
	count = roundup(count, 16);
	tenants = kvcalloc(count, sizeof(*tenants), GFP_KERNEL);
	scratch = kvcalloc(count + 1, sizeof(*scratch), GFP_KERNEL);
	if (!tenants || !scratch) {
		kvfree(tenants);
		kvfree(scratch);
		return;
	}
	memcpy(tenants, gangs.tenants, gangs.count * sizeof(*tenants));
	kvfree(gangs.tenants);
	kvfree(gangs.scratch);
	gangs.tenants = tenants;
	gangs.scratch = scratch;
	gangs.room = count;
}

void ds_gangs_step(u32 gpu, struct rm_rota_tenant *tenants, unsigned int *count, bool closed, u64 now, struct rm_gang_word *word)
{
	unsigned long again;
	unsigned int other;

	*word = (struct rm_gang_word){ .next = RM_ROTA_NEVER };
	mutex_lock(&gangs_lock);
	used = *count ? used | BIT(gpu) : used & ~BIT(gpu);
	if (gangs.covered || used & ~BIT(gpu)) {
		make_room(gangs.count + *count);
		if (gangs.room)
			rm_gang_step(&gangs, gpu, tenants, count, closed, now, word);
	}
	mutex_unlock(&gangs_lock);
	again = word->again;
	for_each_set_bit(other, &again, RM_GPUS)
		ds_runq_scan(ds_runq_at(other));
}

void ds_gangs_exit(void)
{
	kvfree(gangs.tenants);
	kvfree(gangs.scratch);
}
