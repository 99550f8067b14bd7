/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/nvidia-uvm: managed memory, and memory that address ranges keep. */
#ifndef DETSHARE_UVM_H
#define DETSHARE_UVM_H

#include "hook.h"
#include "process.h"

struct ds_hook_set *ds_uvm_hooks(void);
/*
 * Who is asked before a call moves memory: false, it is not. owner: who pays for the file's memory, NULL if nobody does. Before the hooks are
 * in place.
 */
void ds_uvm_ask_mover(bool (*may_move)(struct ds_process *owner));
/* Bytes of managed address space of the process. */
u64 ds_uvm_managed(const struct ds_process *process);
void ds_uvm_exit(void);

#endif
