// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>

#include "bound.h"
#include "process.h"
#include "tenant.h"

#define COUNTER_BITS 6

static unsigned int most[DS_BOUNDED] = { 4096, 512, 1024 };
module_param_named(clients_max, most[DS_BOUND_CLIENTS], uint, 0644);
MODULE_PARM_DESC(clients_max, "most clients of the driver of one tenant, else cgroup, else user, 0: as many as it likes (default: 4096)");
module_param_named(runs_max, most[DS_BOUND_RUNS], uint, 0644);
MODULE_PARM_DESC(runs_max, "most clients with channels or doorbells on one GPU of one tenant, else cgroup, else user, 0: as many as it likes (default: 512)");
module_param_named(files_max, most[DS_BOUND_FILES], uint, 0644);
MODULE_PARM_DESC(files_max, "most files with managed memory of one tenant, else cgroup, else user, 0: as many as it likes (default: 1024)");

static const struct {
	const char *what, *parameter;
} words[DS_BOUNDED] = {
	[DS_BOUND_CLIENTS] = { "client of the driver", "clients_max" },
	[DS_BOUND_RUNS] = { "client with channels or doorbells on that GPU", "runs_max" },
	[DS_BOUND_FILES] = { "file with managed memory", "files_max" },
};

/* Of one kind and GPU, for one. */
struct ds_counter {
	struct hlist_node link;
	const void *who;
	enum ds_bounded what;
	u32 gpu;
	unsigned int count;
};

static struct hlist_head counters[1 << COUNTER_BITS];
static DEFINE_SPINLOCK(counters_lock);	/* a leaf */
static unsigned int known;

const void *ds_bound_who(const struct ds_process *process)
{
	const struct ds_tenant *tenant = ds_tenant_of(process);
	struct cgroup *cgroup;
	const void *who = tenant;

	if (who)
		return who;
	cgroup = ds_process_cgroup(process);
	if (cgroup && cgroup_parent(cgroup))
		who = cgroup;
	if (cgroup)
		cgroup_put(cgroup);
	/* no address is odd */
	return who ?: (const void *)((unsigned long)__kuid_val(current_uid()) << 1 | 1);
}

static struct hlist_head *bucket_of(const void *who)
{
	return &counters[hash_ptr(who, COUNTER_BITS)];
}

/* Under counters_lock. */
static struct ds_counter *find(enum ds_bounded what, u32 gpu, const void *who)
{
	struct ds_counter *counter;

	hlist_for_each_entry(counter, bucket_of(who), link)
		if (counter->who == who && counter->what == what && counter->gpu == gpu)
			return counter;
	return NULL;
}

static bool is_full(const struct ds_counter *counter, enum ds_bounded what)
{
	unsigned int bound = READ_ONCE(most[what]);

	return bound && counter && counter->count >= bound;
}

static void tell(enum ds_bounded what)
{
	static struct ratelimit_state lines[DS_BOUNDED] = {
		[DS_BOUND_CLIENTS] = RATELIMIT_STATE_INIT(lines[DS_BOUND_CLIENTS], 60 * HZ, 3),
		[DS_BOUND_RUNS] = RATELIMIT_STATE_INIT(lines[DS_BOUND_RUNS], 60 * HZ, 3),
		[DS_BOUND_FILES] = RATELIMIT_STATE_INIT(lines[DS_BOUND_FILES], 60 * HZ, 3),
	};

	if (__ratelimit(&lines[what]))
		pr_warn("process %d is refused one more %s: its tenant (else cgroup, else user) has %u of them (parameter %s)\n",
			task_tgid_nr(current), words[what].what, READ_ONCE(most[what]), words[what].parameter);
}

bool ds_bound_room(enum ds_bounded what, u32 gpu, const void *who)
{
	bool full;

	spin_lock(&counters_lock);
	full = is_full(find(what, gpu, who), what);
	spin_unlock(&counters_lock);
	if (full)
		tell(what);
	return !full;
}

bool ds_bound_take(struct ds_bound *bound, enum ds_bounded what, u32 gpu, const void *who, bool force)
{
	struct ds_counter *made = NULL, *counter;
	bool full = false;

	spin_lock(&counters_lock);
	counter = find(what, gpu, who);
	if (!counter) {
		spin_unlock(&counters_lock);
		made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);
		spin_lock(&counters_lock);
		counter = find(what, gpu, who);
	}
	if (!counter && made) {
		counter = made;
		made = NULL;
		*counter = (struct ds_counter){ .who = who, .what = what, .gpu = gpu };
		hlist_add_head(&counter->link, bucket_of(who));
		known++;
	}
	full = !force && is_full(counter, what);
	if (counter && !full)
		counter->count++;
	spin_unlock(&counters_lock);
	kfree(made);
	bound->counter = full ? NULL : counter;
	if (full)
		tell(what);
	return bound->counter || force;
}

void ds_bound_drop(struct ds_bound *bound)
{
	struct ds_counter *counter = bound->counter;

	if (!counter)
		return;
	bound->counter = NULL;
	spin_lock(&counters_lock);
	if (--counter->count)
		counter = NULL;
	else {
		hlist_del(&counter->link);
		known--;
	}
	spin_unlock(&counters_lock);
	kfree(counter);
}

unsigned int ds_bound_count(void)
{
	return READ_ONCE(known);
}
