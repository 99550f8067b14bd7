/* SPDX-License-Identifier: GPL-2.0-only */
/* Differences between kernel versions. Version checks live here and nowhere else. */
#ifndef DETSHARE_COMPAT_H
#define DETSHARE_COMPAT_H

#include <linux/ftrace.h>
#include <linux/version.h>
#include <net/genetlink.h>

static __always_inline void ds_regs_set_ip(struct ftrace_regs *fregs, unsigned long ip)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	ftrace_regs_set_instruction_pointer(fregs, ip);
#else
	ftrace_instruction_pointer_set(fregs, ip);
#endif
}

/* The n-th argument of the traced function, n below 6. */
static __always_inline unsigned long ds_regs_argument(struct ftrace_regs *fregs, unsigned int n)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return ftrace_regs_get_argument(fregs, n);
#else
	return regs_get_kernel_argument(&fregs->regs, n);
#endif
}

static inline struct nlattr **ds_dump_attrs(struct netlink_callback *cb)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	return genl_info_dump(cb)->attrs;
#else
	return genl_dumpit_info(cb)->attrs;
#endif
}

#endif
