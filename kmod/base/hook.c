// SPDX-License-Identifier: GPL-2.0-only
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>

#include "compat.h"
#include "hook.h"

#define DRAIN_TELL_S 10
/* An ENDBR may stand before the fentry call, and the address of a symbol may be that of either. */
#define ENDBR_SIZE 4

DEFINE_PER_CPU(long, ds_hook_inside);

/*
 * Counts the call here and not in the replacement: a task that was diverted and preempted before the replacement's first instruction
 * would be seen by nobody else.
 */
static void notrace hook_enter(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct ds_hook_set *set = container_of(ops, struct ds_hook_set, ops);
	struct ds_hook *hook;

	for (hook = set->hooks; hook < set->hooks + set->count; hook++)
		if (ip - hook->address <= ENDBR_SIZE)
			break;
	if (hook == set->hooks + set->count || (hook->wanted && !hook->wanted(fregs)))
		return;
	/* always the same: not worth the cache line of all other CPUs */
	if (unlikely(READ_ONCE(hook->past) != ip + MCOUNT_INSN_SIZE))
		WRITE_ONCE(hook->past, ip + MCOUNT_INSN_SIZE);
	this_cpu_inc(ds_hook_inside);
	ds_regs_set_ip(fregs, (unsigned long)hook->replacement);
}

/*
 * The kernel's own lookup knows every symbol, exported or not, and is itself found by a probe that is never armed. One probe
 * for all lookups: taking one away waits for RCU.
 */
static unsigned long find_lookup(void)
{
	struct kprobe probe = {
		.symbol_name = "kallsyms_lookup_name",
		.flags = KPROBE_FLAG_DISABLED,
	};

	unsigned long address;

	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	return address;
}

unsigned long ds_symbol(const char *module, const char *symbol)
{
	static unsigned long lookup;
	char name[KSYM_NAME_LEN];

	if (!lookup)
		lookup = find_lookup();
	if (!lookup || snprintf(name, sizeof(name), "%s%s%s", module ?: "", module ? ":" : "", symbol) >= sizeof(name))
		return 0;
	return ds_call_past((unsigned long)name, 0, 0, 0, 0, lookup);
}

int ds_hooks_install(struct ds_hook_set *set, const char **missing)
{
	struct ds_hook *hook;
	bool found = false;
	int err;

	memset(&set->ops, 0, sizeof(set->ops));
	set->ops.func = hook_enter;
	/* permanent: kernel.ftrace_enabled=0 is refused while hooks are in place, as nothing would be held any more */
	set->ops.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT;
	set->lacks = false;
	*missing = NULL;
	for (hook = set->hooks; hook < set->hooks + set->count; hook++) {
		hook->address = ds_symbol(set->module, hook->symbol);
		err = hook->address ? ftrace_set_filter_ip(&set->ops, hook->address, 0, 0) : -ENOENT;
		if (err && (hook->optional || hook->loss)) {
			if (hook->loss) {
				pr_warn("%s's %s cannot be hooked (%d): %s\n", set->module, hook->symbol,
					err, hook->loss);
				set->lacks = true;
			}
			hook->address = 0;
		} else if (err) {
			*missing = hook->symbol;
			goto free;
		} else {
			found = true;
		}
	}
	err = found ? register_ftrace_function(&set->ops) : -ENOENT;
	if (err)
		goto free;
	set->installed = true;
	return 0;
free:
	ftrace_free_filter(&set->ops);
	return err;
}

void ds_hooks_remove(struct ds_hook_set *set)
{
	if (!set->installed)
		return;
	/* waits until every task has left the trampoline, hook_enter() included */
	unregister_ftrace_function(&set->ops);
	ftrace_free_filter(&set->ops);
	set->installed = false;
}

bool ds_hook_is(const struct ds_hook *hook, const void *function)
{
	return hook->address && hook->address - (unsigned long)function <= ENDBR_SIZE;
}

long ds_hook_count_inside(void)
{
	long inside = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		inside += READ_ONCE(per_cpu(ds_hook_inside, cpu));
	return inside;
}

void ds_hook_drain(void (*tell)(long inside, unsigned int seconds))
{
	unsigned long start = jiffies;
	unsigned int pause_ms = 1, next = DRAIN_TELL_S;
	long inside;

	/*
	 * Nobody enters any more, so every increment is there and only decrements can be missed by the sum: a sum of zero is true.
	 */
	while ((inside = ds_hook_count_inside()) > 0) {
		unsigned int seconds = jiffies_to_msecs(jiffies - start) / MSEC_PER_SEC;

		if (seconds >= next) {
			tell(inside, seconds);
			next += DRAIN_TELL_S;
		}
		msleep(pause_ms);
		pause_ms = min(pause_ms * 2, 50u);
	}
	/* who has counted itself out may not yet have run the last instructions of the replacement; it has not slept since */
	synchronize_rcu_tasks();
}
