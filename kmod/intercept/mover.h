/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nvidia-uvm moves managed memory for a program by copy engines, through channels of its own that no gate shuts and no pause takes off. So who
 * is held, or whose bucket is empty, or whose turn it is not, waits with UVM_MIGRATE, and so does who moves that one's memory by an inherited
 * file.
 *
 * What has begun is carried out, and what a fault of the GPU or the CPU moves is not held back: the first belongs to work that runs, the second
 * would let a program's own memory wait.
 */
#ifndef DETSHARE_MOVER_H
#define DETSHARE_MOVER_H

#include <linux/types.h>

struct ds_process;

/*
 * Until the current process may move the owner's memory (NULL: nobody's), or nobody is held any more. Sleeps. false: the current process is
 * being killed.
 */
bool ds_mover_wait(struct ds_process *owner);

#endif
