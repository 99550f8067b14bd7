/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/nvidia-uvm: managed memory, and memory that address ranges keep. */
#ifndef DETSHARE_UVM_H
#define DETSHARE_UVM_H

#include "hook.h"
#include "process.h"

struct ds_hook_set *ds_uvm_hooks(void);
/* Bytes of managed address space of the process. */
u64 ds_uvm_managed(const struct ds_process *process);
void ds_uvm_exit(void);

#endif
