/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls of the driver at kernel privilege, on anybody's handles (nvidia_get_rm_ops).
 *
 * They take the driver's locks and may last as long as the firmware does: process context, no
 * lock that a hook takes below the driver, never under mmap_lock. Each returns an NV_STATUS, or
 * DS_RM_GONE if there is no driver to ask.
 */
#ifndef DETSHARE_RMCALL_H
#define DETSHARE_RMCALL_H

#include <linux/jiffies.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "rm/act.h"

/*
 * So long somebody who asked by netlink waits for the driver at most, in jiffies: meanwhile the kernel lets no family come or go. What was
 * asked for goes on without him.
 */
#define DS_RM_PATIENCE (10 * HZ)

/* What is left of it until then, 1 at least. */
static inline unsigned long ds_rm_patience(unsigned long until)
{
	return time_before(jiffies, until) ? until - jiffies : 1;
}

#define DS_RM_GONE 0xfffffffeu

/* The driver's version, asked by its nvidia_get_rm_ops(). -EINVAL: it said nothing of use. */
int ds_rm_version(unsigned long get_rm_ops, char *version, size_t size);

struct ds_rm_ops;
int ds_rm_get_ops(unsigned long get_rm_ops, const char *version, struct ds_rm_ops *ops);

/* An object of a class that needs no parameters; the driver chooses a handle that the client does not use. *object is 0 if the status is not. */
u32 ds_rm_alloc(u32 client, u32 parent, u32 class, u32 *object);
u32 ds_rm_free(u32 client, u32 object);

/* ---- acts, as in rm/act.h ------------------------------------------------- */

u32 ds_rm_get_slice(u32 client, u32 tsg, u64 *us);
u32 ds_rm_set_slice(u32 client, u32 tsg, u64 us);
u32 ds_rm_set_level(u32 client, u32 tsg, u32 level);
u32 ds_rm_preempt(u32 client, u32 tsg);
u32 ds_rm_no_realtime(u32 client, u32 tsg);
u32 ds_rm_preemptible(u32 client, u32 subdevice, u32 tsg);
u32 ds_rm_disable(u32 client, u32 subdevice, const struct rm_channel *channels, unsigned int count, bool off);
u32 ds_rm_tpc_mode(u32 client, u32 tsg, enum rm_tpc_mode mode, bool all);
u32 ds_rm_tpc_table(u32 client, u32 ctxshare, unsigned int used);

/* ---- questions ----------------------------------------------------------- */

/* Bytes of physical memory behind a memory object; 0 if they are not on the GPU. */
u32 ds_rm_memory_bytes(u32 client, u32 memory, u64 *bytes);
u32 ds_rm_class(u32 client, u32 object, u32 *class);
u32 ds_rm_parent(u32 client, u32 object, u32 *parent);
/* First child of an internal class of the driver (__nvoc_class_id_*). */
u32 ds_rm_child(u32 client, u32 parent, u32 internal_class, u32 *child);
/* "GPU-..." to a text of that size. */
u32 ds_rm_gpu_uuid(u32 client, u32 subdevice, char *uuid, size_t size);
/* Have these channels of the client nothing left to do? NV_OK: nothing; NV_ERR_TIMEOUT, NV_ERR_BUSY_RETRY: they have. */
u32 ds_rm_ask_idle(u32 client, u32 device, const u32 *channels, unsigned int count);
/* TPCs that work can use. */
u32 ds_rm_gpu_tpcs(u32 client, u32 subdevice, unsigned int *tpcs);
/* Bytes of the GPU's memory. */
u32 ds_rm_gpu_total(u32 client, u32 subdevice, u64 *bytes);

/* For work that asks the driver: side by side, or one after the other. Emptied before the module goes. */
extern struct workqueue_struct *ds_rm_queue, *ds_rm_ordered;

int ds_rmcall_init(void);
void ds_rmcall_exit(void);

#endif
