/* SPDX-License-Identifier: GPL-2.0-only */
/* Differences between kernel versions. Version checks live here and nowhere else. */
#ifndef DETSHARE_COMPAT_H
#define DETSHARE_COMPAT_H

#include <linux/fs.h>
#include <linux/ftrace.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
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

/* What genl_family.pre_doit gets. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
typedef const struct genl_split_ops ds_genl_op;
#else
typedef const struct genl_ops ds_genl_op;
#endif

/* The n-th argument of the traced function, n below 6. */
static __always_inline unsigned long ds_regs_argument(struct ftrace_regs *fregs, unsigned int n)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return ftrace_regs_get_argument(fregs, n);
#else
	return regs_get_kernel_argument(&fregs->regs, n);
#endif
}

/* What a page of a PFN mapping shows; mmap_lock is held. -EINVAL: nothing yet. */
static inline int ds_follow_pfn(struct vm_area_struct *vma, unsigned long address, unsigned long *pfn)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	struct follow_pfnmap_args args = { .vma = vma, .address = address };
	int err = follow_pfnmap_start(&args);

	if (!err) {
		*pfn = args.pfn;
		follow_pfnmap_end(&args);
	}
	return err;
#else
	return follow_pfn(vma, address, pfn);
#endif
}

/* The page there, if it is there now: no fault is taken. 1, or not. mmap_lock is held. */
static inline long ds_get_page(struct mm_struct *mm, unsigned long address, struct page **page)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	return get_user_pages_remote(mm, address, 1, FOLL_NOFAULT, page, NULL);
#else
	return get_user_pages_remote(mm, address, 1, FOLL_NOFAULT, page, NULL, NULL);
#endif
}

/* Before the fault handler waits and answers VM_FAULT_RETRY. */
static inline void ds_release_fault_lock(struct vm_fault *vmf)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	release_fault_lock(vmf);
#else
	mmap_read_unlock(vmf->vma->vm_mm);
#endif
}

/* A reference to a file that may be closing: false when it is. What it is found by keeps it from being freed. */
static inline bool ds_get_open_file(struct file *file)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	return file_ref_get(&file->f_ref);
#else
	return atomic_long_inc_not_zero(&file->f_count);
#endif
}

/* Takes all pages out of a PFN mapping; mmap_lock is held. */
static inline void ds_zap_pfns(struct vm_area_struct *vma)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
	zap_special_vma_range(vma, vma->vm_start, vma->vm_end - vma->vm_start);
#else
	zap_vma_ptes(vma, vma->vm_start, vma->vm_end - vma->vm_start);
#endif
}

/* mmap_lock is held for writing. */
static inline void ds_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

/* It expires at a time of ktime_get(). */
static inline void ds_timer_init(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	timer->function = function;
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
