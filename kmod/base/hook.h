/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks on functions of another module, or of the kernel.
 *
 * A call of a hooked function runs `replacement` instead, which has the same signature, calls the original by ds_hook_call() and ends with
 * ds_hook_leave(). The function's own code is not changed but for its fentry, which ftrace owns.
 */
#ifndef DETSHARE_HOOK_H
#define DETSHARE_HOOK_H

#include <linux/ftrace.h>
#include <linux/module.h>

struct ds_hook {
	const char *symbol;
	void *replacement;
	/*
	 * If set, asked in atomic context on each call: false lets the original run untouched, at the cost of the question only, and
	 * without keeping this module busy.
	 */
	bool (*wanted)(struct ftrace_regs *fregs);
	bool optional;	/* not in every driver */
	/* If set, the driver can be without it too, but that is told: what does not work then. */
	const char *loss;
	/* Set by hook.c; 0: not hooked. */
	unsigned long address;
	unsigned long past;
};

/* The hooks on one module: they come and go together. */
struct ds_hook_set {
	const char *module;	/* NULL: of the kernel itself */
	struct ds_hook *hooks;
	unsigned int count;
	/* Set by hook.c. */
	struct ftrace_ops ops;
	bool installed;
	bool lacks;	/* a hook with a loss is missing */
};

/*
 * The module must be held by the caller. -ENOENT: it lacks a function that is not optional, *missing names it; another error is ftrace's
 * (-EBUSY: somebody else, a live patch perhaps, diverts the same function).
 */
int ds_hooks_install(struct ds_hook_set *set, const char **missing);
/* On return no further call is diverted; calls that are inside go on. Harmless on a set that is not installed. */
void ds_hooks_remove(struct ds_hook_set *set);

/* The address of a function of that module (NULL: of the kernel), 0 if it has none. Sleeps; callers exclude each other. */
unsigned long ds_symbol(const char *module, const char *symbol);

/* Calls target(a, b, c, d, e), where target is no legal target of an indirect call. */
long ds_call_past(unsigned long a, unsigned long b, unsigned long c, unsigned long d,
		  unsigned long e, unsigned long target);

/* Calls the original of the hook from its replacement. */
static inline long ds_hook_call(const struct ds_hook *hook, unsigned long a, unsigned long b, unsigned long c)
{
	return ds_call_past(a, b, c, 0, 0, READ_ONCE(hook->past));
}

/* Is it the address of the hooked function? */
bool ds_hook_is(const struct ds_hook *hook, const void *function);

/* Calls inside replacements, counted from before their first instruction. */
DECLARE_PER_CPU(long, ds_hook_inside);

static __always_inline void ds_hook_leave(void)
{
	this_cpu_dec(ds_hook_inside);
}

/* A sum over CPUs: exact only when no hook is installed, or nothing moves. */
long ds_hook_count_inside(void);

/*
 * Waits until no task is in a replacement or on its way out of one. All hooks must have been removed. `tell` is called now and then while
 * calls are still inside.
 */
void ds_hook_drain(void (*tell)(long inside, unsigned int seconds));

#endif
