/* SPDX-License-Identifier: GPL-2.0-only */
/* Open files of /dev/nvidiactl and /dev/nvidiaN, and the one mapping that each may carry. */
#ifndef NVSIM_FILES_H
#define NVSIM_FILES_H

#include <linux/fs.h>
#include <linux/mutex.h>

#include "sim.h"

/* The names that the driver's own functions have for these; opaque to everyone else. */
struct sim_state {
	struct sim_gpu *gpu;		/* NULL: the control device */
};

typedef struct sim_state nv_state_t;
typedef struct sim_file nv_file_private_t;
typedef struct sim_stack nvidia_stack_t;

/* What RM_MAP_MEMORY left for the next mmap of a file. Once valid it stays so. */
struct sim_map_context {
	bool valid, writable, doorbell;
	struct sim_memory *memory;
	unsigned long first, pages;
	u32 client, object;	/* whom RM_MAP_MEMORY named */
};

struct sim_file {
	struct sim_state nv;
	struct file *self;
	struct sim_file *ctl;		/* by NV_ESC_REGISTER_FD; set once */
	struct file *ctl_file;
	struct list_head clients;	/* made on this file; sim_api_lock */
	struct address_space mapping;	/* nvidiaN only, as is of_gpu */
	struct list_head of_gpu;
	struct mutex map_lock;
	struct sim_map_context map;
	struct sim_doorbell *ring;
	u32 export_room;	/* places for exported objects; 0: none was exported to it */
	struct list_head exports;	/* memory exported onto this control file; sim_api_lock */
};

struct sim_export {
	struct list_head link;
	u32 index;
	struct sim_object object;	/* what a duplicate is made of: in no client, not to be found */
};

extern struct file_operations nvidia_fops;

void sim_exports_drop(struct sim_file *file);
struct file *sim_file_fget(int fd, bool control, struct sim_file **file);	/* NULL: no file of ours */
/* The file behind a descriptor, held, and what is the driver's of it: by the genuine names and signatures. */
void *nv_get_file_private(int fd, unsigned char ctl, void **os_private);
void nv_put_file_private(void *os_private);
bool sim_gpu_is_open_here(struct sim_gpu *gpu);
void sim_file_mapping_init(struct sim_file *file, struct file *filp, struct inode *inode);
void sim_file_mapping_exit(struct sim_file *file);
NV_STATUS sim_file_arm(int fd, struct sim_gpu *gpu, const struct sim_map_context *context);
int nvidia_mmap(struct file *filp, struct vm_area_struct *vma);
void nv_revoke_gpu_mappings(nv_state_t *nv);
void sim_gpu_allow_maps(struct sim_gpu *gpu, bool allow);
extern struct rw_semaphore nv_system_pm_lock;	/* held for reading by every ioctl and fault */

NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *nv, nv_file_private_t *nvfp, NvU32 cmd, void *data, NvU32 size);
void rm_cleanup_file_private(nvidia_stack_t *sp, nv_state_t *nv, nv_file_private_t *nvfp);

#endif
