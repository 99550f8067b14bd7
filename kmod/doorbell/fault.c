// SPDX-License-Identifier: GPL-2.0-only
/* Mappings of doors: how they are made, come back by faults, and are looked into. */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "client.h"
#include "compat.h"
#include "denials.h"
#include "doorbell.h"
#include "gate_impl.h"
#include "lookup.h"

bool ds_door_wants_file(struct ftrace_regs *fregs)
{
	return iminor(file_inode((const struct file *)ds_regs_argument(fregs, 0))) != DS_CTL_MINOR;
}

bool ds_door_wants_vma(struct ftrace_regs *fregs)
{
	return ds_door_is(((struct vm_area_struct *)ds_regs_argument(fregs, 0))->vm_file);
}

/* Writes down what the pages of a whole mapping show. Page tables may be as the driver left them, or empty. */
static void learn(struct ds_door *door, struct vm_area_struct *vma)
{
	unsigned long pages = min_t(unsigned long, READ_ONCE(door->pages), DS_DOOR_PAGES), pfn, i;

	if (vma->vm_pgoff || vma_pages(vma) != READ_ONCE(door->pages) || READ_ONCE(door->pages_known))
		return;
	for (i = 0; i < pages; i++) {
		if (ds_follow_pfn(vma, vma->vm_start + (i << PAGE_SHIFT), &pfn))
			return;
		WRITE_ONCE(door->pfns[i], pfn);
	}
	smp_store_release(&door->pages_known, true);
}

/*
 * A door may come or go between the making of a mapping and its end only where the file is armed with something else: whatever shows a
 * doorbell is counted by, and taken off, the one door that its file ever has. Of the others a count may be off until the door is freed.
 */
static void count_mapping(struct ds_door *door, struct vm_area_struct *vma)
{
	if (vma_pages(vma) < READ_ONCE(door->pages))
		WRITE_ONCE(door->split, true);
	atomic_inc(&door->mappings);
	atomic_inc(&door->gate->mappings);
	ds_space_add(door, vma->vm_mm);
	if (vma->vm_mm == door->mm)
		return;
	atomic_inc(&door->abroad);
	atomic_inc(&door->gate->abroad);
}

/*
 * All mappings of a gate's doors are gone through when it shuts, so their number is bounded. A fork cannot be refused: from the bound on
 * children do not get the mappings of who forks. Both address spaces are locked for writing.
 */
static void end_inheritance(const struct ds_door *door, struct vm_area_struct *inherited)
{
	struct vm_area_struct *vma;

	if (!current->mm || current->mm == inherited->vm_mm || ds_gate_has_room(door->gate))
		return;
	vma = find_vma(current->mm, inherited->vm_start);
	if (vma && vma->vm_file == inherited->vm_file)
		ds_vm_flags_set(vma, VM_DONTCOPY);
	ds_vm_flags_set(inherited, VM_DONTCOPY);
}

void ds_door_open(const struct ds_hook *hook, struct vm_area_struct *vma)
{
	struct ds_door *door = ds_door_of(vma->vm_file);

	ds_hook_call(hook, (unsigned long)vma, 0, 0);
	if (!door)
		return;
	count_mapping(door, vma);
	end_inheritance(door, vma);
	ds_door_put(door);
}

void ds_door_close(const struct ds_hook *hook, struct vm_area_struct *vma)
{
	struct ds_door *door = ds_door_of(vma->vm_file);

	if (door) {
		/* mappings that are older than the door were not counted */
		if (atomic_dec_if_positive(&door->mappings) >= 0)
			atomic_dec(&door->gate->mappings);
		ds_space_remove(door, vma->vm_mm);
		if (vma->vm_mm != door->mm && atomic_dec_if_positive(&door->abroad) >= 0)
			atomic_dec(&door->gate->abroad);
		ds_door_put(door);
	}
	ds_hook_call(hook, (unsigned long)vma, 0, 0);
}

/*
 * The driver puts the pages in at once, and the kernel finds the mapping only after this returns: who shuts the gate in between would
 * miss it, and a thread that knows the address could ring while the gate is shut. So the pages come in without any right for user space,
 * nor to be written by the kernel on its behalf, and are taken out again: the first touch faults. (Not PROT_NONE: with that, kernels
 * refuse high addresses on some CPUs.)
 */
static int map_door(const struct ds_hook *hook, struct file *file, struct vm_area_struct *vma)
{
	pgprotval_t rights = pgprot_val(vma->vm_page_prot) & (_PAGE_USER | _PAGE_RW);
	struct ds_door *door;
	int ret;

	vma->vm_page_prot = __pgprot(pgprot_val(vma->vm_page_prot) & ~rights);
	ret = ds_hook_call(hook, (unsigned long)file, (unsigned long)vma, 0);
	/* only now: the door of before may have been a claim that failed, and the file armed for another since */
	door = ret ? NULL : ds_door_of(file);
	if (door) {
		WRITE_ONCE(door->pages, vma_pages(vma));
		learn(door, vma);
		count_mapping(door, vma);
		ds_door_put(door);
	}
	if (!ret)
		ds_zap_pfns(vma);
	/* what the driver says about caching stays */
	if (!(vma->vm_flags & VM_WRITE))
		rights &= ~_PAGE_RW;
	vma->vm_page_prot = __pgprot(pgprot_val(vma->vm_page_prot) | rights);
	return ret;
}

int ds_door_mmap(const struct ds_hook *hook, struct file *file, struct vm_area_struct *vma)
{
	struct ds_door *door;
	bool has_room;
	int ret;

	down_read(ds_door_passing(file));
	door = ds_door_of(file);
	if (!door)
		ret = ds_hook_call(hook, (unsigned long)file, (unsigned long)vma, 0);
	up_read(ds_door_passing(file));
	if (!door)
		return ret;
	has_room = ds_gate_has_room(door->gate);
	ds_door_put(door);
	return has_room ? map_door(hook, file, vma) : -ENOMEM;
}

/* Puts a piece of a mapping back that has been split: the driver cannot. */
static vm_fault_t insert_piece(struct ds_door *door, struct vm_area_struct *vma)
{
	vm_fault_t result = VM_FAULT_NOPAGE;
	unsigned long i;

	for (i = 0; i < vma_pages(vma) && result == VM_FAULT_NOPAGE; i++) {
		if (vma->vm_pgoff + i >= min_t(unsigned long, READ_ONCE(door->pages), DS_DOOR_PAGES))
			return VM_FAULT_SIGBUS;
		result = vmf_insert_pfn_prot(vma, vma->vm_start + (i << PAGE_SHIFT), door->pfns[vma->vm_pgoff + i],
					     vma->vm_page_prot);
	}
	return result;
}

static vm_fault_t let_through(const struct ds_hook *hook, struct ds_door *door, struct vm_fault *vmf)
{
	vm_fault_t result;

	ds_gate_touch(door->gate);
	if (vmf->vma->vm_pgoff && smp_load_acquire(&door->pages_known))
		result = insert_piece(door, vmf->vma);
	else
		result = (__force vm_fault_t)ds_hook_call(hook, (unsigned long)vmf, 0, 0);
	if (result & VM_FAULT_ERROR)
		return result;
	learn(door, vmf->vma);
	if (ds_gate_changed(door->gate) || ds_lookup_in(vmf->vma->vm_mm))
		ds_door_zap(door);
	return result;
}

/* Who faults without a way to let go of mmap_lock, which is rare, holds it for this long at a time. */
#define STALL_TICKS 1

/*
 * Waits for the gate without mmap_lock, so that nobody else of the process stands still; then the fault is taken anew. Any signal ends
 * the wait: its handler runs, and the fault is taken again after it.
 *
 * Only an instruction of the program waits. The kernel, which copies for a system call, may hold anybody's locks: NVIDIA's driver copies a
 * registry key with its API lock held (RmAccessRegistry, osapi.c), so one shut program would stop all others. That call gets EFAULT.
 *
 * gate: NULL, the address space is being looked up (lookup.h), which is over soon.
 */
static vm_fault_t wait_at(struct ds_gate *gate, struct vm_fault *vmf)
{
	if (!(vmf->flags & FAULT_FLAG_USER))
		return VM_FAULT_SIGBUS;
	if (!(vmf->flags & FAULT_FLAG_ALLOW_RETRY)) {
		if (fatal_signal_pending(current))
			return VM_FAULT_SIGBUS;
		schedule_timeout_killable(STALL_TICKS);
		return VM_FAULT_NOPAGE;
	}
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	/* the mapping and its file may go from here on */
	ds_release_fault_lock(vmf);
	if (gate)
		ds_gate_wait(gate, TASK_INTERRUPTIBLE);
	else
		schedule_timeout_interruptible(STALL_TICKS);
	return VM_FAULT_RETRY;
}

/* The door is put: nobody keeps one while he waits. */
static vm_fault_t fault_on_door(const struct ds_hook *hook, struct ds_door *door, struct vm_fault *vmf)
{
	struct ds_gate *gate = door->gate, *against;
	vm_fault_t result = 0;
	bool looked_up;

	atomic64_inc(&gate->faults);
	down_read(&gate->inserting);
	against = ds_gate_against(gate);
	looked_up = ds_lookup_in(vmf->vma->vm_mm);
	if (!against && !looked_up)
		result = let_through(hook, door, vmf);
	up_read(&gate->inserting);
	ds_door_put(door);
	if (IS_ERR(against))
		return VM_FAULT_SIGBUS;
	if (against || looked_up) {
		result = wait_at(against, vmf);
		ds_gate_put(against);
	}
	return result;
}

vm_fault_t ds_door_fault(const struct ds_hook *hook, struct vm_fault *vmf)
{
	const struct file *file = vmf->vma->vm_file;
	vm_fault_t result = 0;
	struct ds_door *door;

	down_read(ds_door_passing(file));
	door = ds_door_of(file);
	if (!door)
		result = (__force vm_fault_t)ds_hook_call(hook, (unsigned long)vmf, 0, 0);
	up_read(ds_door_passing(file));
	return door ? fault_on_door(hook, door, vmf) : result;
}

/*
 * ptrace and /proc/PID/mem. Somebody else's mmap_lock is held, so nobody waits here: a write to a shut door fails. Reads tell the time
 * and ring nothing.
 */
int ds_door_access(const struct ds_hook *hook, struct vm_area_struct *vma, unsigned long address, void *buffer, int length,
		   int write)
{
	struct ds_door *door = write ? ds_door_of(vma->vm_file) : NULL;
	struct ds_gate *gate, *against;
	int ret = -EAGAIN;

	if (!door)
		return ds_call_past((unsigned long)vma, address, (unsigned long)buffer, length, write,
				    READ_ONCE(hook->past));
	gate = door->gate;
	down_read(&gate->inserting);
	against = ds_gate_against(gate);
	if (against) {
		atomic64_inc(&gate->denied);
		if (!IS_ERR(against))
			ds_gate_put(against);
		ds_denied_atomic(0, NV_ESC_RM_MAP_MEMORY, DETSHARE_DENIAL_DOORBELL, NV_ERR_INVALID_STATE,
				 "writes past page tables to a doorbell that is shut");
	} else {
		atomic64_inc(&gate->accesses);
		ds_gate_touch(gate);
		ret = ds_call_past((unsigned long)vma, address, (unsigned long)buffer, length, write,
				   READ_ONCE(hook->past));
	}
	up_read(&gate->inserting);
	ds_door_put(door);
	return ret;
}
