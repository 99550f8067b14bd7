// SPDX-License-Identifier: GPL-2.0-only
/* Address spaces that have doors mapped, so that who shuts his own looks at those of others alone that he has mapped. */
#include <linux/hash.h>
#include <linux/sched/signal.h>

#include "gate_impl.h"
#include "rm/port.h"

#define GUEST_BITS 10

struct guest {
	struct hlist_node link;		/* by gate and address space */
	struct list_head in_door;
	struct ds_door *door;
	const struct mm_struct *mm;	/* a name: it has the mappings, so it is no other's */
	unsigned int mappings;
};

static struct hlist_head guests[1 << GUEST_BITS];
static DEFINE_SPINLOCK(guests_lock);	/* a leaf */

static struct hlist_head *bucket_of(const struct ds_gate *gate, const struct mm_struct *mm)
{
	return &guests[hash_64(hash_ptr(gate, 32) ^ (u64)(unsigned long)mm, GUEST_BITS)];
}

/* Under guests_lock. */
static struct guest *find(const struct ds_door *door, const struct mm_struct *mm)
{
	struct guest *guest;

	hlist_for_each_entry(guest, bucket_of(door->gate, mm), link)
		if (guest->door == door && guest->mm == mm)
			return guest;
	return NULL;
}

void ds_guest_add(struct ds_door *door, struct mm_struct *mm)
{
	struct guest *made = rm_zalloc(sizeof(*made)), *guest;

	spin_lock(&guests_lock);
	guest = find(door, mm);
	if (!guest && made) {
		guest = made;
		made = NULL;
		guest->door = door;
		guest->mm = mm;
		hlist_add_head(&guest->link, bucket_of(door->gate, mm));
		list_add(&guest->in_door, &door->guests);
	}
	if (guest)
		guest->mappings++;
	else
		WRITE_ONCE(door->gate->anywhere, true);
	spin_unlock(&guests_lock);
	rm_mfree(made);
}

/* Under guests_lock. */
static void forget(struct guest *guest)
{
	hlist_del(&guest->link);
	list_del(&guest->in_door);
	rm_mfree(guest);
}

void ds_guest_remove(struct ds_door *door, struct mm_struct *mm)
{
	struct guest *guest;

	spin_lock(&guests_lock);
	guest = find(door, mm);
	if (guest && !--guest->mappings)
		forget(guest);
	spin_unlock(&guests_lock);
}

void ds_guests_forget(struct ds_door *door)
{
	struct guest *guest, *next;

	spin_lock(&guests_lock);
	list_for_each_entry_safe(guest, next, &door->guests, in_door)
		forget(guest);
	spin_unlock(&guests_lock);
}

const struct mm_struct *ds_guest_space(struct pid *process)
{
	struct task_struct *leader, *thread;
	const struct mm_struct *mm = NULL;

	rcu_read_lock();
	leader = pid_task(process, PIDTYPE_TGID);
	/* a thread that has ended, the first one too, has left it to the others */
	if (leader)
		for_each_thread(leader, thread)
			mm = mm ?: READ_ONCE(thread->mm);
	rcu_read_unlock();
	return mm;
}

bool ds_guest_is(const struct ds_gate *gate, const struct mm_struct *mm)
{
	bool is = READ_ONCE(gate->anywhere);
	struct guest *guest;

	spin_lock(&guests_lock);
	hlist_for_each_entry(guest, bucket_of(gate, mm), link)
		is = is || (guest->door->gate == gate && guest->mm == mm);
	spin_unlock(&guests_lock);
	return is;
}
