/* SPDX-License-Identifier: GPL-2.0-only */
/* What gates and doors know of each other: for gate.c, doorbell.c and fault.c only. Locks: client.h. */
#ifndef DETSHARE_GATE_IMPL_H
#define DETSHARE_GATE_IMPL_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "bound.h"
#include "gate.h"

/* A doorbell has 64 KiB. Of a larger window only the first so many pages are sampled and can be put back piece by piece. */
#define DS_DOOR_PAGES 16

struct ds_gate {
	refcount_t refs;
	u32 gpu;
	struct pid *process;
	struct list_head link;		/* all gates; gates_lock */
	struct hlist_node by_process;	/* gates of processes with this hash; gates_lock */
	struct ds_bound bound;		/* how many there may be */
	unsigned int siblings;		/* other gates of this process and GPU; gates_lock to change it */
	bool heard;			/* a door of a sibling's was touched */
	atomic_t reasons;
	atomic_t arming;		/* calls that are about to make a door: shut to faults until they are decided */
	bool armed;
	bool left;
	struct rw_semaphore inserting;
	struct mutex shutting;
	struct list_head doors;		/* ds_door.in_gate; shutting */
	wait_queue_head_t wait;
	spinlock_t calling;		/* guards kicked and owner, held while that is called */
	ds_kicked_fn kicked;
	void *owner;
	atomic_t n_doors, n_assumed;
	atomic_t abroad;		/* its doors' mappings in other address spaces than their own */
	atomic_t mappings;		/* of its doors */
	bool anywhere;			/* which address spaces have them mapped is not known: there was no memory to write one down */
	atomic_t waiting;
	atomic64_t kicks, faults, waits, wait_ns, accesses, denied;
	u64 last_ns, shut_ns;
};

struct ds_door {
	refcount_t refs;		/* one of them as long as it is in doors */
	struct hlist_node link;		/* doors, by file */
	const struct file *file;	/* a name; to be used under gate->shutting while in_gate, or by who has it mapped */
	struct ds_gate *gate;		/* held; constant */
	struct mm_struct *mm;		/* whose program armed it; kept from being another's, constant */
	struct list_head in_gate;
	bool assumed;
	bool split;			/* there is, or was, a mapping of a part of it */
	unsigned int pages;		/* of a whole mapping; 0: there was none yet */
	atomic_t abroad;		/* mappings in other address spaces; in gate->abroad until the door is freed */
	struct list_head spaces;	/* address spaces that have it mapped; space.c's */
	atomic_t mappings;		/* in gate->mappings until the door is freed */
	/* What page i shows; of use once pages_known. Several may write it at once: the same. */
	unsigned long pfns[DS_DOOR_PAGES];
	bool pages_known;
	struct rcu_head rcu;
};

/* Is it shut to who faults? The answer holds as long as gate->inserting is held for reading. */
bool ds_gate_shut(const struct ds_gate *gate);
/*
 * Can its doors be used by others than the entity's program, or outlive it? Then they are shut by every gate of such a one who uses them, too.
 */
static inline bool ds_gate_roams(const struct ds_gate *gate)
{
	return READ_ONCE(gate->left) || atomic_read(&gate->abroad);
}

/*
 * The gate that shuts a door of `gate` to the current process, held; NULL: none does. As ds_gate_shut(). ERR_PTR(-EPERM): the client of the
 * door is gone, and the process has no gate of its own on that GPU that could be shut.
 */
struct ds_gate *ds_gate_against(struct ds_gate *gate);
/* The current process is let touch a door of this gate: armed gates tell their owners. */
void ds_gate_touch(struct ds_gate *gate);
/* Was it shut or armed since the touch was let through? Then the page may not stay. */
bool ds_gate_changed(struct ds_gate *gate);
/* Until it is open, or a signal that counts in this state is pending. The caller has the gate, and no lock. */
void ds_gate_wait(struct ds_gate *gate, unsigned int state);
/* Held; NULL: it is no door. The caller keeps the file open. */
struct ds_door *ds_door_of(const struct file *file);
/* For the moment. Any context. */
bool ds_door_is(const struct file *file);
/*
 * By file. Read: a mapping or a fault of a file that is no door is under way in the driver. Write, for a moment: none of those began before
 * the file became one. Below mmap_lock.
 */
struct rw_semaphore *ds_door_passing(const struct file *file);

/* Takes the door's pages from everybody, for good only if they cannot come back meanwhile. */
void ds_door_zap(const struct ds_door *door);
/* NO or YES, and forgets it. Under gate->shutting. */
enum ds_touch ds_door_touched(const struct ds_door *door);

/* Takes all doorbells back that this address space has mapped. */
void ds_gates_withdraw(const struct mm_struct *mm);

/* space.c: a mapping of the door comes, or goes. */
void ds_space_add(struct ds_door *door, struct mm_struct *mm);
void ds_space_remove(struct ds_door *door, struct mm_struct *mm);
void ds_spaces_forget(struct ds_door *door);
/* The process's address space, as a name; NULL: it has none any more. */
const struct mm_struct *ds_space_of(struct pid *process);
/* Has this address space one of the gate's doors mapped, or may it have? */
bool ds_space_reaches(const struct ds_gate *gate, const struct mm_struct *mm);

#endif
