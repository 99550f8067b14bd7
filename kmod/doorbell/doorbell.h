/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Doors: open files of /dev/nvidiaN that RM_MAP_MEMORY has armed with a usermode object, so that mmap of them shows the doorbell. A file is
 * armed once for its life, so it is a door until it is closed, whoever maps it and how often. A door belongs to the gate of the vCtx
 * whose client was named.
 */
#ifndef DETSHARE_DOORBELL_H
#define DETSHARE_DOORBELL_H

#include <linux/mm_types.h>

#include "hook.h"

/* Mappings that are looked at when a client is found. */
#define DS_DOORS_FOUND_MAX 64

struct ds_door;
struct ds_gate;

/*
 * The file becomes a door of the gate's, or is one; held. NULL: no memory, or another call is about to arm it and one of the two must fail.
 * *made: it is to be entered or forgotten.
 */
struct ds_door *ds_door_claim(struct ds_gate *gate, const struct file *file, bool *made);
/* From here on the gate can shut it. */
void ds_door_enter(struct ds_door *door);
/* What has been claimed is no door any more. The caller's own reference, if it has one, stays. */
void ds_door_forget(struct ds_door *door);
/* Not in atomic context. */
void ds_door_put(struct ds_door *door);

/* Files that the current process has mapped, look like doors and are none, held; DS_DOORS_FOUND_MAX at most. */
unsigned int ds_doors_find(struct file **files);
/* Such a file becomes a door of the gate's by its looks. */
void ds_door_assume(struct ds_gate *gate, const struct file *file);

/* The file is being released: nobody has it mapped. Before the driver's own release. */
void ds_door_release(const struct file *file);

/* ---- replacements for the hooks of entries.c, which passes the hook on ------------------------ */

/* Atomic context: may it be a call on a door? */
bool ds_door_wants_file(struct ftrace_regs *fregs);	/* nvidia_mmap(file, vma) */
bool ds_door_wants_vma(struct ftrace_regs *fregs);	/* nvidia_vma_access(vma, ...), _open(vma), _release(vma) */

int ds_door_mmap(const struct ds_hook *hook, struct file *file, struct vm_area_struct *vma);
vm_fault_t ds_door_fault(const struct ds_hook *hook, struct vm_fault *vmf);
int ds_door_access(const struct ds_hook *hook, struct vm_area_struct *vma, unsigned long address, void *buffer, int length,
		   int write);

void ds_door_open(const struct ds_hook *hook, struct vm_area_struct *vma);
void ds_door_close(const struct ds_hook *hook, struct vm_area_struct *vma);

/* The hooks are about to go, gates are open: what the driver cannot bring back by itself is there when this returns. */
void ds_doors_restore(void);

/* Files that are known as doors; 0 when nothing is open. */
unsigned int ds_doors_count(void);

int ds_doorbell_init(void);
void ds_doorbell_exit(void);

#endif
