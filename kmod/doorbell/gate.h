/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gates: whether what a vCtx has mapped of the doorbell may be used. A gate is shut while there is any reason to; who touches a
 * doorbell then waits, killably and without a lock, and goes on when it opens. An open gate costs nothing: the page is mapped, no
 * touch is seen. An armed one sees the first touch, then costs nothing again.
 *
 * Any doorbell rings any channel, so the gates of one process on a GPU hear of each other's touches: who has a channel by one client and
 * the doorbell by another launches all the same; up to nine of them, for each look at one is a look at all. They are shut each for itself.
 *
 * A shut gate keeps new work of idle channels away. It does not stop what runs or is queued (pause.h does).
 *
 * Locks: client.h.
 */
#ifndef DETSHARE_GATE_H
#define DETSHARE_GATE_H

#include <linux/pid.h>
#include <linux/types.h>

struct ds_gate;

/* The gate is shut while any is set. The same as enum detshare_hold. */
enum ds_hold {
	DS_HOLD_ORDER = 1,
	DS_HOLD_BUCKET = 2,
};

/*
 * A touch was caught: the gate was armed. `who`: the thread's number in the initial pid namespace. Called in a page fault, below
 * mmap_lock: may not sleep, may not call back into the gate.
 */
typedef void (*ds_kicked_fn)(void *owner, u64 idle_ns, pid_t who);

/*
 * An open gate without doors, with one reference. `process`: whose doorbells it is for; held. `who`: for whom it counts (bound.h). `kicked` may be
 * NULL. NULL: no memory.
 */
struct ds_gate *ds_gate_new(u32 gpu, struct pid *process, const void *who, ds_kicked_fn kicked, void *owner);
/* May it have one more door, or mapping of one? */
bool ds_gate_has_room(const struct ds_gate *gate);
struct ds_gate *ds_gate_get(struct ds_gate *gate);
void ds_gate_put(struct ds_gate *gate);
/*
 * The owner goes: on return `kicked` does not run and will not be called again, all reasons are gone and none can be added; who waits
 * goes on. Doors that outlive it stay usable as long as no other gate of the process that uses them is shut. Sleeps.
 */
void ds_gate_leave(struct ds_gate *gate);

/*
 * Both may be called by several at once, each with reasons of his own. Idempotent. ds_gate_hold() sleeps, and on return no touch is
 * accepted any more. It waits for faults of the gate's doors that are being served, but for 10 ms at most: a task that gets no CPU time in
 * the midst of one takes its page back when it goes on. ds_gate_release(): any context but NMI.
 */
void ds_gate_hold(struct ds_gate *gate, u32 reasons);
void ds_gate_release(struct ds_gate *gate, u32 reasons);
u32 ds_gate_reasons(const struct ds_gate *gate);

/*
 * The next touch faults once for each mapping, the first of them calls kicked(). Sleeps. Idempotent. DS_TOUCH_YES: it was touched since
 * the last ds_gate_touched(), which is forgotten, and is not armed. A touch in the last microseconds before may escape, but not a
 * submission whose GP_PUT is looked at after this (userd.h).
 */
enum ds_touch {
	DS_TOUCH_NO,
	DS_TOUCH_YES,
	DS_TOUCH_UNKNOWN,	/* cannot be told */
};
enum ds_touch ds_gate_arm(struct ds_gate *gate);
/* No touch is awaited any more; the page comes back with the next one, uncounted. Any context but NMI. */
void ds_gate_disarm(struct ds_gate *gate);

/* Was a doorbell of the gate's or a sibling's written to since the last call, or ds_gate_arm()? From the page tables, without a fault. Sleeps. */
enum ds_touch ds_gate_touched(struct ds_gate *gate);

/* A call is about to make a door, and is through with it: faults wait meanwhile. */
void ds_gate_arming_begin(struct ds_gate *gate);
void ds_gate_arming_end(struct ds_gate *gate);

struct ds_gate_stats {
	u32 doors, mappings;
	u32 assumed;		/* of them, taken for doors by their looks: they are older than the module */
	u32 reasons;		/* enum ds_hold */
	bool armed;
	u32 waiting;		/* threads, now */
	u64 kicks;		/* touches that were caught */
	u64 faults;		/* faults on doors */
	u64 waits;		/* faults that had to wait */
	u64 wait_ns;		/* in all; of who waits now, nothing yet */
	u64 accesses;		/* by ptrace or /proc/PID/mem, let through */
	u64 denied;		/* the same, refused */
	u64 last_ns;		/* of the last touch that is known, ktime; 0: none */
	u64 shut_ns;		/* since when it is shut, ktime; 0: it is open */
};

/* Any context but NMI. */
void ds_gate_stats(struct ds_gate *gate, struct ds_gate_stats *stats);

/* The module goes: all gates open for good, who waits goes on. */
void ds_gates_open_all(void);
/* Threads that wait: 0 when nothing is open. */
unsigned int ds_gates_waiting(void);

#endif
