/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nvidia-uvm.ko: one VA space per open file, with ranges of managed, external and pool memory, and the GPUs whose address
 * spaces it fills.
 *
 * Locks: uvm_space.lock is inside mmap_lock. Calls that need the RM's API lock take it inside uvm_space.lock; those that
 * run below mmap_lock (mmap, faults, munmap) never do.
 */
#ifndef NVSIM_UVM_H
#define NVSIM_UVM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "sim.h"
#include "uvm_iface.h"

enum uvm_kind { UVM_EXTERNAL, UVM_MANAGED, UVM_POOL };

struct uvm_map {		/* memory in an external range */
	struct list_head link;
	u64 va, length;
	u32 dup, gpu;
};

struct uvm_range {
	struct list_head link;
	enum uvm_kind kind;
	u64 base, length;
	u64 group;			/* 0: in none; of all of it, SET_RANGE_GROUP splits nothing here */
	u64 offset;			/* of base in memory: a range may be the rest of a larger one */
	struct list_head maps;
	struct sim_memory *memory;	/* managed and pool: what stands behind it */
	struct xarray chunks;		/* of managed ranges: pages in device memory, by block and GPU (uvm_pmm.c) */
};

/* Parameters that the generated tables do not have. */
struct uvm_group { u64 id; u32 status; };
struct uvm_group_region { u64 id, base, length; u32 status; };
struct uvm_groups { u64 id[32], count; u32 status; };

struct uvm_gpu {
	bool registered;
	struct sim_vas *vas;		/* after REGISTER_GPU_VASPACE */
};

struct uvm_space {
	struct mutex lock;
	struct kref ref;		/* its file, and each mapping of it */
	bool initialized;
	u64 flags;
	struct mm_struct *mm;
	struct list_head ranges;
	struct list_head channels;
	struct uvm_gpu gpus[SIM_GPUS_MAX];
	u64 next_group;
	struct xarray touched;		/* blocks that a GPU touched and that nobody looked at yet */
	struct work_struct service;	/* has a reference while it is queued */
};

extern struct workqueue_struct *uvm_faults;
extern const struct file_operations uvm_fops;
extern const u8 sim_cpu_uuid[16];

struct uvm_space *uvm_space_create(void);
void uvm_space_put(struct uvm_space *space);
NV_STATUS uvm_call(struct file *filp, u32 nr, void *params);
int uvm_map_vma(struct uvm_space *space, struct vm_area_struct *vma);

/* space->lock held */
struct uvm_range *uvm_range_at(struct uvm_space *space, u64 va);
NV_STATUS uvm_range_add(struct uvm_space *space, enum uvm_kind kind, u64 base, u64 length, struct uvm_range **range);
void uvm_map_drop(struct uvm_map *map);
void uvm_range_remove(struct uvm_space *space, struct uvm_range *range);
struct uvm_range *uvm_range_split(struct uvm_space *space, struct uvm_range *range, u64 va);
void uvm_channels_drop(struct uvm_space *space, int gpu);
void uvm_ranges_map(struct uvm_space *space, unsigned int gpu);
void uvm_chunks_leave(struct uvm_range *range, u64 from, u64 to, struct sim_gpu *except);
NV_STATUS uvm_chunks_enter(struct uvm_range *range, u64 from, u64 to, struct sim_gpu *gpu);
void uvm_chunks_drop(struct uvm_range *range, int gpu);
void uvm_chunks_split(struct uvm_range *range, struct uvm_range *tail);
void uvm_watch(struct uvm_space *space, struct uvm_range *range);
void uvm_service_faults(struct work_struct *work);

/* space->lock held */
NV_STATUS uvm_managed_region(struct uvm_space *space, u64 base, u64 length);
NV_STATUS uvm_group_create(struct uvm_space *space, void *params);
NV_STATUS uvm_group_destroy(struct uvm_space *space, void *params);
NV_STATUS uvm_groups_check(struct uvm_space *space, void *params);

NV_STATUS uvm_va_space_create(struct address_space *mapping, struct uvm_space **made, u64 flags);
/* The driver's own functions of these names; without space->lock. */
NV_STATUS uvm_api_migrate(void *params, struct file *filp);
NV_STATUS uvm_api_migrate_range_group(void *params, struct file *filp);
NV_STATUS uvm_api_set_range_group(void *params, struct file *filp);
NV_STATUS uvm_api_prevent_migration_range_groups(void *params, struct file *filp);
NV_STATUS uvm_api_tools_read_process_memory(void *params, struct file *filp);
NV_STATUS uvm_api_tools_write_process_memory(void *params, struct file *filp);

#endif
