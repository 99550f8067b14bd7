// SPDX-License-Identifier: GPL-2.0-only
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "gate_impl.h"
#include "rm/tree.h"

#define PROCESS_BITS 8

static LIST_HEAD(gates);
static struct hlist_head by_process[1 << PROCESS_BITS];
static DEFINE_SPINLOCK(gates_lock);	/* guards both */
static atomic_t waiting_count;
static bool open_for_good;

static struct hlist_head *bucket_of(const struct pid *process)
{
	return &by_process[hash_ptr(process, PROCESS_BITS)];
}

static bool is_sibling(const struct ds_gate *gate, const struct ds_gate *other)
{
	return other != gate && other->gpu == gate->gpu && other->process == gate->process;
}

/* More siblings would make each look at one of them a look at all. What they hide is left to unseen.h. */
#define SIBLINGS_MOST 8

static bool has_siblings(const struct ds_gate *gate)
{
	unsigned int count = READ_ONCE(gate->siblings);

	return count && count <= SIBLINGS_MOST;
}

/* A gate comes or goes; it is in the list. Under gates_lock. */
static void count_siblings(struct ds_gate *gate, int change)
{
	struct ds_gate *other;

	hlist_for_each_entry(other, bucket_of(gate->process), by_process) {
		if (!is_sibling(gate, other))
			continue;
		WRITE_ONCE(other->siblings, other->siblings + change);
		WRITE_ONCE(gate->siblings, gate->siblings + change);
	}
}

struct ds_gate *ds_gate_new(u32 gpu, struct pid *process, const void *who, ds_kicked_fn kicked, void *owner)
{
	struct ds_gate *gate = kzalloc(sizeof(*gate), GFP_KERNEL_ACCOUNT);

	if (!gate)
		return NULL;
	refcount_set(&gate->refs, 1);
	/* nothing may run that is in no gate: who may have no more is refused before */
	ds_bound_take(&gate->bound, DS_BOUND_RUNS, gpu, who, true);
	gate->gpu = gpu;
	gate->process = get_pid(process);
	init_rwsem(&gate->inserting);
	mutex_init(&gate->shutting);
	INIT_LIST_HEAD(&gate->doors);
	init_waitqueue_head(&gate->wait);
	spin_lock_init(&gate->calling);
	gate->kicked = kicked;
	gate->owner = owner;
	spin_lock(&gates_lock);
	list_add_tail(&gate->link, &gates);
	hlist_add_head(&gate->by_process, bucket_of(process));
	count_siblings(gate, 1);
	spin_unlock(&gates_lock);
	return gate;
}

struct ds_gate *ds_gate_get(struct ds_gate *gate)
{
	refcount_inc(&gate->refs);
	return gate;
}

void ds_gate_put(struct ds_gate *gate)
{
	if (!gate || !refcount_dec_and_test(&gate->refs))
		return;
	spin_lock(&gates_lock);
	count_siblings(gate, -1);
	list_del(&gate->link);
	hlist_del(&gate->by_process);
	spin_unlock(&gates_lock);
	ds_bound_drop(&gate->bound);
	put_pid(gate->process);
	kfree(gate);
}

bool ds_gate_shut(const struct ds_gate *gate)
{
	return (atomic_read(&gate->reasons) && !READ_ONCE(open_for_good)) || atomic_read(&gate->arming);
}

u32 ds_gate_reasons(const struct ds_gate *gate)
{
	return atomic_read(&gate->reasons);
}

/*
 * The next gate of this GPU behind `at` (NULL: the first), held; `at` is put. Goes on where it was, whatever came and went.
 */
static struct ds_gate *next_gate(struct ds_gate *at, u32 gpu)
{
	struct ds_gate *next;

	spin_lock(&gates_lock);
	next = at ? at : list_entry(&gates, struct ds_gate, link);
	list_for_each_entry_continue(next, &gates, link)
		if (next->gpu == gpu && refcount_inc_not_zero(&next->refs))
			break;
	if (list_entry_is_head(next, &gates, link))
		next = NULL;
	spin_unlock(&gates_lock);
	ds_gate_put(at);
	return next;
}

#define for_each_gate_of(gate, on) for (gate = next_gate(NULL, on); gate; gate = next_gate(gate, on))

/* The same among those of one process. */
static struct ds_gate *next_gate_by(struct ds_gate *at, struct pid *process, u32 gpu)
{
	struct ds_gate *next;

	spin_lock(&gates_lock);
	next = hlist_entry_safe(at ? at->by_process.next : bucket_of(process)->first, struct ds_gate, by_process);
	hlist_for_each_entry_from(next, by_process)
		if (next->process == process && next->gpu == gpu && refcount_inc_not_zero(&next->refs))
			break;
	spin_unlock(&gates_lock);
	ds_gate_put(at);
	return next;
}

#define for_each_gate_by(gate, who, on) for (gate = next_gate_by(NULL, who, on); gate; gate = next_gate_by(gate, who, on))

/* A gate of the process's own client. What holds for a process holds for all of these: each is shut for itself, and none by another. */
static bool is_own(const struct ds_gate *gate, const struct pid *process)
{
	return gate->process == process && !READ_ONCE(gate->left);
}

struct ds_gate *ds_gate_against(struct ds_gate *gate)
{
	struct ds_gate *other;
	bool own = false;

	if (ds_gate_shut(gate))
		return ds_gate_get(gate);
	if (!ds_gate_roams(gate) || is_own(gate, task_tgid(current)))
		return NULL;
	for_each_gate_by(other, task_tgid(current), gate->gpu) {
		if (READ_ONCE(other->left))
			continue;
		own = true;
		if (ds_gate_shut(other))
			return other;
	}
	/* the client of the door is gone, and nothing that could be shut stands for who uses it */
	return own || !READ_ONCE(gate->left) ? NULL : ERR_PTR(-EPERM);
}

static void zap(struct ds_gate *gate)
{
	struct ds_door *door;

	list_for_each_entry(door, &gate->doors, in_gate)
		ds_door_zap(door);
}

/* How often, and how far apart, who shuts looks for a moment without faults in progress. */
#define TRIES 100
#define TRY_US 50

/*
 * Takes the pages back. What faults are to find differently now has been set; those that did not see it yet hold `inserting`, and what they
 * put in is taken once they are through. One whose task gets no CPU time is not waited for long: it looks again when it has put the pages
 * in, and takes them back by itself. Under shutting.
 */
static void withdraw(struct ds_gate *gate)
{
	unsigned int tries = 0;

	while (!down_write_trylock(&gate->inserting)) {
		zap(gate);
		if (++tries == TRIES)
			return;
		usleep_range(TRY_US, 2 * TRY_US);
	}
	up_write(&gate->inserting);
	zap(gate);
}

/* The same for roaming doors of others that the gate's process has mapped. Not under a gate's shutting. */
static void withdraw_roaming(struct ds_gate *gate)
{
	const struct mm_struct *mm = ds_space_of(gate->process);
	struct ds_gate *other;

	for_each_gate_of(other, gate->gpu) {
		if (is_own(other, gate->process) || !ds_gate_roams(other) || !ds_space_reaches(other, mm))
			continue;
		mutex_lock(&other->shutting);
		withdraw(other);
		mutex_unlock(&other->shutting);
	}
}

void ds_gates_withdraw(const struct mm_struct *mm)
{
	struct ds_gate *gate;
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++) {
		for_each_gate_of(gate, gpu) {
			if (!ds_space_reaches(gate, mm))
				continue;
			mutex_lock(&gate->shutting);
			withdraw(gate);
			mutex_unlock(&gate->shutting);
		}
	}
}

void ds_gate_hold(struct ds_gate *gate, u32 reasons)
{
	bool shuts;

	mutex_lock(&gate->shutting);
	shuts = reasons && !gate->left && !atomic_fetch_or(reasons, &gate->reasons);
	if (shuts) {
		WRITE_ONCE(gate->shut_ns, ktime_get_ns());
		withdraw(gate);
	}
	mutex_unlock(&gate->shutting);
	if (shuts)
		withdraw_roaming(gate);
}

void ds_gate_release(struct ds_gate *gate, u32 reasons)
{
	u32 were = atomic_fetch_andnot(reasons, &gate->reasons);

	if (were && !(were & ~reasons))
		wake_up_all(&gate->wait);
}

void ds_gate_leave(struct ds_gate *gate)
{
	mutex_lock(&gate->shutting);
	gate->left = true;
	mutex_unlock(&gate->shutting);
	spin_lock(&gate->calling);
	gate->kicked = NULL;
	gate->owner = NULL;
	spin_unlock(&gate->calling);
	ds_gate_disarm(gate);
	ds_gate_release(gate, ~0u);
}

void ds_gate_arming_begin(struct ds_gate *gate)
{
	atomic_inc(&gate->arming);
}

void ds_gate_arming_end(struct ds_gate *gate)
{
	if (atomic_dec_and_test(&gate->arming))
		wake_up_all(&gate->wait);
}

/* Under shutting. */
static enum ds_touch sample(struct ds_gate *gate)
{
	enum ds_touch touch = DS_TOUCH_NO;
	struct ds_door *door;

	list_for_each_entry(door, &gate->doors, in_gate)
		touch = max(touch, ds_door_touched(door));
	if (touch == DS_TOUCH_YES)
		WRITE_ONCE(gate->last_ns, ktime_get_ns());
	return touch;
}

/* What was seen of one is news for its siblings: nobody sees it again. */
static void let_hear(struct ds_gate *gate)
{
	struct ds_gate *other;

	if (!has_siblings(gate))
		return;
	spin_lock(&gates_lock);
	hlist_for_each_entry(other, bucket_of(gate->process), by_process)
		if (is_sibling(gate, other))
			WRITE_ONCE(other->heard, true);
	spin_unlock(&gates_lock);
}

/* Looks at the doors of siblings, and takes them back if the gate is being armed; what it finds, the gate hears. Not under shutting. */
static void look_at_siblings(struct ds_gate *gate, bool arms)
{
	struct ds_gate *other;

	if (!has_siblings(gate))
		return;
	for_each_gate_by(other, gate->process, gate->gpu) {
		if (other == gate)
			continue;
		mutex_lock(&other->shutting);
		if (sample(other) == DS_TOUCH_YES) {
			WRITE_ONCE(other->heard, true);
			let_hear(other);
		}
		if (arms)
			withdraw(other);
		mutex_unlock(&other->shutting);
	}
}

static bool has_heard(struct ds_gate *gate)
{
	return READ_ONCE(gate->heard) && xchg(&gate->heard, false);
}

enum ds_touch ds_gate_touched(struct ds_gate *gate)
{
	enum ds_touch touch;

	mutex_lock(&gate->shutting);
	touch = sample(gate);
	mutex_unlock(&gate->shutting);
	if (touch == DS_TOUCH_YES)
		let_hear(gate);
	look_at_siblings(gate, false);
	return has_heard(gate) ? DS_TOUCH_YES : touch;
}

enum ds_touch ds_gate_arm(struct ds_gate *gate)
{
	enum ds_touch touch = DS_TOUCH_NO;
	bool arms;

	mutex_lock(&gate->shutting);
	arms = !READ_ONCE(gate->armed) && !gate->left;
	if (arms) {
		touch = sample(gate);
		arms = touch != DS_TOUCH_YES;
	}
	if (arms) {
		WRITE_ONCE(gate->armed, true);
		withdraw(gate);
	}
	mutex_unlock(&gate->shutting);
	if (touch == DS_TOUCH_YES)
		let_hear(gate);
	if (!arms)
		return touch;
	withdraw_roaming(gate);
	look_at_siblings(gate, true);
	if (!has_heard(gate))
		return touch;
	WRITE_ONCE(gate->armed, false);
	return DS_TOUCH_YES;
}

void ds_gate_disarm(struct ds_gate *gate)
{
	WRITE_ONCE(gate->armed, false);
}

static void tell_touch(struct ds_gate *gate)
{
	u64 now, last;

	/* whoever finds it no longer armed finds its owner told: a touch may not overtake the word of the one before */
	spin_lock(&gate->calling);
	if (READ_ONCE(gate->armed) && xchg(&gate->armed, false)) {
		now = ktime_get_ns();
		/* another processor may have sampled a touch that is later than this one */
		last = min(READ_ONCE(gate->last_ns), now);
		WRITE_ONCE(gate->last_ns, now);
		atomic64_inc(&gate->kicks);
		if (gate->kicked)
			gate->kicked(gate->owner, last ? now - last : 0, task_pid_nr(current));
	}
	spin_unlock(&gate->calling);
}

static bool sibling_is_armed(struct ds_gate *gate)
{
	struct ds_gate *other;
	bool armed = false;

	if (!has_siblings(gate))
		return false;
	spin_lock(&gates_lock);
	hlist_for_each_entry(other, bucket_of(gate->process), by_process)
		armed = armed || (is_sibling(gate, other) && READ_ONCE(other->armed));
	spin_unlock(&gates_lock);
	return armed;
}

bool ds_gate_changed(struct ds_gate *gate)
{
	struct ds_gate *against = ds_gate_against(gate);

	if (!IS_ERR(against))
		ds_gate_put(against);
	return against || READ_ONCE(gate->armed) || sibling_is_armed(gate);
}

void ds_gate_touch(struct ds_gate *gate)
{
	bool roams = ds_gate_roams(gate), hears = has_siblings(gate);
	struct ds_gate *other;

	tell_touch(gate);
	if (!roams && !hears)
		return;
	if (hears)
		for_each_gate_by(other, gate->process, gate->gpu)
			if (other != gate)
				tell_touch(other);
	if (roams && !(hears && gate->process == task_tgid(current)))
		for_each_gate_by(other, task_tgid(current), gate->gpu)
			if (other != gate)
				tell_touch(other);
}

void ds_gate_wait(struct ds_gate *gate, unsigned int state)
{
	u64 start = ktime_get_ns();
	DEFINE_WAIT(entry);

	atomic_inc(&gate->waiting);
	atomic_inc(&waiting_count);
	for (;;) {
		prepare_to_wait(&gate->wait, &entry, state);
		if (!ds_gate_shut(gate) || signal_pending_state(state, current))
			break;
		schedule();
	}
	finish_wait(&gate->wait, &entry);
	atomic64_inc(&gate->waits);
	atomic64_add(ktime_get_ns() - start, &gate->wait_ns);
	atomic_dec(&waiting_count);
	atomic_dec(&gate->waiting);
}

void ds_gate_stats(struct ds_gate *gate, struct ds_gate_stats *stats)
{
	u32 reasons = atomic_read(&gate->reasons);

	*stats = (struct ds_gate_stats){
		.doors = atomic_read(&gate->n_doors),
		.mappings = atomic_read(&gate->mappings),
		.assumed = atomic_read(&gate->n_assumed),
		.reasons = reasons,
		.armed = READ_ONCE(gate->armed),
		.waiting = atomic_read(&gate->waiting),
		.kicks = atomic64_read(&gate->kicks),
		.faults = atomic64_read(&gate->faults),
		.waits = atomic64_read(&gate->waits),
		.wait_ns = atomic64_read(&gate->wait_ns),
		.accesses = atomic64_read(&gate->accesses),
		.denied = atomic64_read(&gate->denied),
		.last_ns = READ_ONCE(gate->last_ns),
		.shut_ns = reasons ? READ_ONCE(gate->shut_ns) : 0,
	};
}

void ds_gates_open_all(void)
{
	struct ds_gate *gate;

	WRITE_ONCE(open_for_good, true);
	spin_lock(&gates_lock);
	list_for_each_entry(gate, &gates, link)
		wake_up_all(&gate->wait);
	spin_unlock(&gates_lock);
}

unsigned int ds_gates_waiting(void)
{
	return atomic_read(&waiting_count);
}
