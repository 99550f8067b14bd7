// SPDX-License-Identifier: GPL-2.0-only
/* Address spaces that have doors mapped, so that who shuts his own looks at those of others alone that he has mapped. */
#include <linux/hash.h>
#include <linux/sched/signal.h>

#include "gate_impl.h"
#include "rm/port.h"

#define SPACE_BITS 10

struct space {
	struct hlist_node link;		/* by gate and address space */
	struct list_head in_door;
	struct ds_door *door;
	const struct mm_struct *mm;	/* a name: it has the mappings, so it is no other's */
	unsigned int mappings;
};

static struct hlist_head spaces[1 << SPACE_BITS];
static DEFINE_SPINLOCK(spaces_lock);	/* a leaf */

static struct hlist_head *bucket_of(const struct ds_gate *gate, const struct mm_struct *mm)
{
	return &spaces[hash_64(hash_ptr(gate, 32) ^ (u64)(unsigned long)mm, SPACE_BITS)];
}

/* Under spaces_lock. */
static struct space *find(const struct ds_door *door, const struct mm_struct *mm)
{
	struct space *space;

	hlist_for_each_entry(space, bucket_of(door->gate, mm), link)
		if (space->door == door && space->mm == mm)
			return space;
	return NULL;
}

void ds_space_add(struct ds_door *door, struct mm_struct *mm)
{
	struct space *made = rm_zalloc(sizeof(*made)), *space;

	spin_lock(&spaces_lock);
	space = find(door, mm);
	if (!space && made) {
		space = made;
		made = NULL;
		space->door = door;
		space->mm = mm;
		hlist_add_head(&space->link, bucket_of(door->gate, mm));
		list_add(&space->in_door, &door->spaces);
	}
	if (space)
		space->mappings++;
	else
		WRITE_ONCE(door->gate->anywhere, true);
	spin_unlock(&spaces_lock);
	rm_mfree(made);
}

/* Under spaces_lock. */
static void forget(struct space *space)
{
	hlist_del(&space->link);
	list_del(&space->in_door);
	rm_mfree(space);
}

void ds_space_remove(struct ds_door *door, struct mm_struct *mm)
{
	struct space *space;

	spin_lock(&spaces_lock);
	space = find(door, mm);
	if (space && !--space->mappings)
		forget(space);
	spin_unlock(&spaces_lock);
}

void ds_spaces_forget(struct ds_door *door)
{
	struct space *space, *next;

	spin_lock(&spaces_lock);
	list_for_each_entry_safe(space, next, &door->spaces, in_door)
		forget(space);
	spin_unlock(&spaces_lock);
}

const struct mm_struct *ds_space_of(struct pid *process)
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

bool ds_space_reaches(const struct ds_gate *gate, const struct mm_struct *mm)
{
	bool is = READ_ONCE(gate->anywhere);
	struct space *space;

	spin_lock(&spaces_lock);
	hlist_for_each_entry(space, bucket_of(gate, mm), link)
		is = is || (space->door->gate == gate && space->mm == mm);
	spin_unlock(&spaces_lock);
	return is;
}
