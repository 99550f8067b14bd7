/* SPDX-License-Identifier: GPL-2.0-only */
/* nvidia.ko that forwards: files, calls, memory of programs. */
#ifndef NVFWD_FWD_H
#define NVFWD_FWD_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/wait.h>

#include "queue.h"
#include "shape.h"

typedef u32 NV_STATUS;
typedef u32 NvU32;
typedef struct nvidia_stack nvidia_stack_t;
typedef struct nv_state nv_state_t;

#define NVF_STATUS_OK			0x00
#define NVF_STATUS_INVALID_ADDRESS	0x1e
#define NVF_STATUS_INVALID_ARGUMENT	0x1f
#define NVF_STATUS_NO_MEMORY		0x51
#define NVF_STATUS_NOT_SUPPORTED	0x56
#define NVF_STATUS_OPERATING_SYSTEM	0x59
#define NVF_STATUS_GENERIC		0xffff

/* Events of a file. Outlives the file while a question is under way. */
struct nvf_events {
	struct kref refs;
	wait_queue_head_t wait;
	atomic_t ready, asking;
};

/* nv_file_private_t */
struct nvf_file {
	enum nvf_dev dev;
	s32 handle;
	struct nvf_events *events;
	struct mutex lock;	/* below mmap_lock: the mapping, clients */
	struct address_space mapping;
	bool mapped;
	u64 shared, pages;	/* of what is mapped: offset in the region, length */
	unsigned long pgoff;
	struct list_head clients;
};

extern const struct nvf_hello *nvf_host;

/* files.c */
extern struct file_operations nvidia_fops;
int nvf_open(enum nvf_dev dev, u32 gpu, unsigned int flags, s32 *handle);
struct nvf_events *nvf_events_new(void);
void nvf_events_put(struct nvf_events *events);
__poll_t nvf_poll(struct file *file, struct poll_table_struct *table, struct nvf_events *events, s32 handle);
/* The file behind a descriptor of the caller: of the control device or of a GPU. *held is to be given back with fput(). */
void *nv_get_file_private(int fd, bool control, void **held);
/* Of any of the three devices. */
struct nvf_file *nvf_file_get(int fd, void **held);
/* nvidia-uvm's own, while it is loaded; its files begin with a struct nvf_file. */
extern const struct file_operations *nvf_uvm_fops;

/* mmap.c */
int nvidia_mmap(struct file *filp, struct vm_area_struct *vma);

/* forward.c: `kernel`: pointers in the block are the kernel's own, and the client in it says whose call it is. */
struct nvf_extra {
	bool kernel;
	u64 c;			/* of the request */
};
long nvf_forward(enum nvf_dev dev, s32 handle, u32 cmd, void *block, u32 size, const struct nvf_extra *extra, NV_STATUS *status);

/* rm_ioctl.c */
NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *nv, struct nvf_file *nvfp, NvU32 cmd, void *data, NvU32 size);
NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n);
NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n);

/* escape.c: what rm_ioctl() does */
NV_STATUS nvf_escape(struct nvf_file *file, u32 nr, void *block, u32 size);
void nvf_file_ends(struct nvf_file *file);

/* pins.c */
struct nvf_pin;
struct nvf_pin *nvf_pin_user(u64 address, u64 length, NV_STATUS *status);
struct nvf_pin *nvf_pin_pages(struct page **pages, unsigned long count);
u32 nvf_pin_id(const struct nvf_pin *pin);
void nvf_unpin(struct nvf_pin *pin);
void nvf_pin_of(struct nvf_pin *pin, u32 client, u32 object);
void nvf_pins_freed(u32 client, u32 object);

/* proc.c */
int nvf_proc_init(void);
void nvf_proc_exit(void);

#endif
