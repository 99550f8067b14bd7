// SPDX-License-Identifier: GPL-2.0-only
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "gate_impl.h"
#include "lookup.h"

static LIST_HEAD(lookups);
static DEFINE_SPINLOCK(lookups_lock);	/* a leaf */

void ds_lookup_begin(struct ds_lookup *lookup)
{
	lookup->mm = current->mm;
	spin_lock(&lookups_lock);
	list_add(&lookup->link, &lookups);
	spin_unlock(&lookups_lock);
	ds_gates_withdraw(lookup->mm);
}

void ds_lookup_end(struct ds_lookup *lookup)
{
	spin_lock(&lookups_lock);
	list_del(&lookup->link);
	spin_unlock(&lookups_lock);
}

bool ds_lookup_in(const struct mm_struct *mm)
{
	struct ds_lookup *lookup;
	bool in = false;

	if (list_empty_careful(&lookups))
		return false;
	spin_lock(&lookups_lock);
	list_for_each_entry(lookup, &lookups, link)
		in = in || lookup->mm == mm;
	spin_unlock(&lookups_lock);
	return in;
}
