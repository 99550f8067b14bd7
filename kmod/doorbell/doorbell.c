// SPDX-License-Identifier: GPL-2.0-only
#include <linux/bitmap.h>
#include <linux/file.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "client.h"
#include "compat.h"
#include "doorbell.h"
#include "driver.h"
#include "gate_impl.h"

#define DOOR_BITS 12
#define PASSING_BITS 8

/*
 * Doors by file. One that may show a doorbell is there before its file is armed and until that is released; one whose claim fails goes
 * before, whoever has the file mapped.
 */
static struct hlist_head doors[1 << DOOR_BITS];
static DEFINE_SPINLOCK(doors_lock);
static atomic_t door_count;

/* ds_door_passing(). */
static struct rw_semaphore passings[1 << PASSING_BITS];

static unsigned int doors_max = 4096;
module_param(doors_max, uint, 0644);
MODULE_PARM_DESC(doors_max, "most doorbells and mappings of them of one client on one GPU, those that children inherited too, 0: as many as it likes (default: 4096)");

bool ds_gate_has_room(const struct ds_gate *gate)
{
	static DEFINE_RATELIMIT_STATE(lines, 60 * HZ, 3);
	unsigned int most = READ_ONCE(doors_max);

	if (!most || atomic_read(&gate->n_doors) + atomic_read(&gate->mappings) < most)
		return true;
	if (__ratelimit(&lines))
		pr_warn("process %d gets no more mappings of doorbells on GPU %u: its client has %u (parameter doors_max)\n",
			pid_nr(gate->process), gate->gpu, most);
	return false;
}

static struct hlist_head *bucket_of(const struct file *file)
{
	return &doors[hash_ptr(file, DOOR_BITS)];
}

struct rw_semaphore *ds_door_passing(const struct file *file)
{
	return &passings[hash_ptr(file, PASSING_BITS)];
}

/* Under RCU or doors_lock. */
static struct ds_door *find(const struct file *file)
{
	struct ds_door *door;

	hlist_for_each_entry_rcu(door, bucket_of(file), link, lockdep_is_held(&doors_lock))
		if (door->file == file)
			return door;
	return NULL;
}

bool ds_door_is(const struct file *file)
{
	bool is;

	rcu_read_lock();
	is = find(file);
	rcu_read_unlock();
	return is;
}

struct ds_door *ds_door_of(const struct file *file)
{
	struct ds_door *door;

	rcu_read_lock();
	door = find(file);
	if (door && !refcount_inc_not_zero(&door->refs))
		door = NULL;
	rcu_read_unlock();
	return door;
}

void ds_door_put(struct ds_door *door)
{
	if (!refcount_dec_and_test(&door->refs))
		return;
	atomic_sub(atomic_read(&door->abroad), &door->gate->abroad);
	atomic_sub(atomic_read(&door->mappings), &door->gate->mappings);
	ds_spaces_forget(door);
	ds_gate_put(door->gate);
	mmdrop(door->mm);
	kfree_rcu(door, rcu);
}

static struct ds_door *new_door(struct ds_gate *gate, const struct file *file)
{
	struct ds_door *door = kzalloc(sizeof(*door), GFP_KERNEL_ACCOUNT);

	if (!door)
		return NULL;
	refcount_set(&door->refs, 1);
	door->file = file;
	door->gate = ds_gate_get(gate);
	door->mm = current->mm;
	mmgrab(door->mm);
	INIT_LIST_HEAD(&door->in_gate);
	INIT_LIST_HEAD(&door->spaces);
	return door;
}

/* false: the file is a door already. */
static bool publish(struct ds_door *door)
{
	struct ds_door *other;

	spin_lock(&doors_lock);
	other = find(door->file);
	if (!other) {
		refcount_inc(&door->refs);
		hlist_add_head_rcu(&door->link, bucket_of(door->file));
	}
	spin_unlock(&doors_lock);
	if (!other)
		atomic_inc(&door_count);
	return !other;
}

void ds_door_enter(struct ds_door *door)
{
	struct ds_gate *gate = door->gate;

	mutex_lock(&gate->shutting);
	list_add_tail(&door->in_gate, &gate->doors);
	atomic_inc(&gate->n_doors);
	atomic_add(door->assumed, &gate->n_assumed);
	mutex_unlock(&gate->shutting);
}

void ds_door_forget(struct ds_door *door)
{
	struct ds_gate *gate = door->gate;

	spin_lock(&doors_lock);
	hlist_del_rcu(&door->link);
	spin_unlock(&doors_lock);
	mutex_lock(&gate->shutting);
	if (!list_empty(&door->in_gate)) {
		list_del(&door->in_gate);
		atomic_dec(&gate->n_doors);
		atomic_sub(door->assumed, &gate->n_assumed);
	}
	mutex_unlock(&gate->shutting);
	atomic_dec(&door_count);
	ds_door_put(door);
}

/* A shared address space is not to be touched: it is that of all control files, or of a driver that cannot revoke. */
static struct address_space *own_mapping(const struct ds_door *door)
{
	struct address_space *mapping = door->file->f_mapping;

	return mapping && mapping != file_inode(door->file)->i_mapping ? mapping : NULL;
}

void ds_door_zap(const struct ds_door *door)
{
	struct address_space *mapping = own_mapping(door);

	if (mapping)
		unmap_mapping_range(mapping, 0, 0, 1);
}

enum ds_touch ds_door_touched(const struct ds_door *door)
{
#ifdef CONFIG_MAPPING_DIRTY_HELPERS
	struct address_space *mapping = own_mapping(door);
	DECLARE_BITMAP(dirty, DS_DOOR_PAGES) = { };
	pgoff_t start = DS_DOOR_PAGES, end = 0;

	if (mapping)
		return clean_record_shared_mapping_range(mapping, 0, DS_DOOR_PAGES, 0, dirty, &start, &end) ?
			       DS_TOUCH_YES : DS_TOUCH_NO;
#endif
	return DS_TOUCH_UNKNOWN;
}

/*
 * Until whoever began without a door is through. Nobody is kept out meanwhile: one of those may be a task that a cgroup gives no CPU time, and
 * files of others share its place. false: the caller is being killed.
 */
static bool let_pass(struct rw_semaphore *passing)
{
	bool through = false;

	while (!through && !fatal_signal_pending(current)) {
		preempt_disable();
		through = down_write_trylock(passing);
		if (through)
			up_write(passing);
		preempt_enable();
		if (!through)
			schedule_timeout_killable(1);
	}
	return through;
}

struct ds_door *ds_door_claim(struct ds_gate *gate, const struct file *file, bool *made)
{
	struct ds_door *door = ds_door_of(file);

	*made = !door;
	if (door && !list_empty_careful(&door->in_gate))
		return door;
	if (!door)
		door = new_door(gate, file);
	if (!door)
		return NULL;
	if (!*made || !publish(door)) {
		ds_door_put(door);
		return NULL;
	}
	if (let_pass(ds_door_passing(file)))
		return door;
	ds_door_forget(door);
	ds_door_put(door);
	return NULL;
}

void ds_door_release(const struct file *file)
{
	struct ds_door *door = ds_door_of(file);

	if (!door)
		return;
	ds_door_forget(door);
	ds_door_put(door);
}

/* ---- adoption and unloading ------------------------------------------------ */

/* Does it look like a doorbell? */
static bool looks_like_door(struct vm_area_struct *vma)
{
	return vma->vm_file && ds_driver_backs(vma) && iminor(file_inode(vma->vm_file)) != DS_CTL_MINOR &&
	       vma_pages(vma) == DS_DOOR_PAGES;
}

unsigned int ds_doors_find(struct file **files)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	unsigned int count = 0;
	unsigned long at = 0;

	if (!mm || mmap_read_lock_killable(mm))
		return 0;
	while (count < DS_DOORS_FOUND_MAX && (vma = find_vma(mm, at))) {
		if (looks_like_door(vma) && !ds_door_is(vma->vm_file))
			files[count++] = get_file(vma->vm_file);
		at = vma->vm_end;
	}
	mmap_read_unlock(mm);
	return count;
}

void ds_door_assume(struct ds_gate *gate, const struct file *file)
{
	bool made = false;
	struct ds_door *door = ds_door_claim(gate, file, &made);

	if (made && door) {
		door->assumed = true;
		door->pages = DS_DOOR_PAGES;
		atomic_inc(&door->mappings);
		atomic_inc(&gate->mappings);
		ds_space_add(door, door->mm);
		ds_door_enter(door);
	}
	if (door)
		ds_door_put(door);
}

/* Without us the driver answers a fault on a piece of a mapping with SIGBUS: so that there is none, the pages come back now. */
static void restore_pieces(const struct ds_door *door)
{
	struct vm_area_struct *vma;
	unsigned long at = 0;
	bool unlocked = false;

	if (!mmget_not_zero(door->mm))
		return;
	mmap_read_lock(door->mm);
	while ((vma = find_vma(door->mm, at))) {
		at = vma->vm_end;
		/* should the lock have been let go, what follows is looked up anew */
		if (vma->vm_file == door->file && vma->vm_pgoff && vma->vm_flags & (VM_READ | VM_WRITE))
			fixup_user_fault(door->mm, vma->vm_start, 0, &unlocked);
	}
	mmap_read_unlock(door->mm);
	mmput(door->mm);
}

void ds_doors_restore(void)
{
	struct ds_door *door;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(doors); i++) {
		bool again = true;

		/* a door of each round is marked whole, so this ends */
		while (again) {
			struct file *file = NULL;

			again = false;
			spin_lock(&doors_lock);
			hlist_for_each_entry(door, &doors[i], link) {
				if (door->split) {
					file = (struct file *)door->file;
					if (ds_get_open_file(file))
						refcount_inc(&door->refs);
					else
						file = NULL;
					door->split = false;
					again = true;
					break;
				}
			}
			spin_unlock(&doors_lock);
			if (file) {
				restore_pieces(door);
				ds_door_put(door);
				fput(file);
			}
		}
	}
}

unsigned int ds_doors_count(void)
{
	return atomic_read(&door_count);
}

int ds_doorbell_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(passings); i++)
		init_rwsem(&passings[i]);
	return 0;
}

void ds_doorbell_exit(void)
{
	struct hlist_node *next;
	struct ds_door *door;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(doors); i++)
		hlist_for_each_entry_safe(door, next, &doors[i], link)
			ds_door_forget(door);
}
