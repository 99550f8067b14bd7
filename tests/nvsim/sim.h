/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated resource manager: clients, objects, memory, address spaces.
 *
 * Locks, outermost first: mmap_lock; a UVM VA space's lock; sim_api_lock (writers make, free and share objects; readers
 * ask and steer); a file's map lock; a GPU's mmap_lock; an engine's own lock; a VA space's lock; a memory's page lock.
 * User memory is touched with none of them held.
 */
#ifndef NVSIM_SIM_H
#define NVSIM_SIM_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>

#include "abi.h"
#include "engine.h"

#define SIM_GPUS_MAX		4
#define SIM_HANDLE_BASE		0xcaf00000u	/* where RM's own handles begin */
#define SIM_MAX_DEPTH		6		/* RS_MAX_RESOURCE_DEPTH */
#define SIM_PARAMS_MAX		(1024 * 1024)	/* RMAPI_PARAM_COPY_MAX_PARAMS_SIZE */
#define SIM_VEIDS		SIM_SUBCONTEXTS
#define SIM_RIGHT_DUP		0x1u		/* RS_ACCESS_DUP_OBJECT */

struct sim_object;
struct sim_client;
struct sim_file;
struct sim_events;

/* ---- GPUs and their heaps ---- */

struct sim_heap {
	spinlock_t lock;
	u64 size, used, peak, next;
};

struct sim_gpu {
	u32 index, id, bus;
	u8 uuid[16];
	struct sim_heap heap;
	struct sim_engine *engine;
	atomic_t opens;
	bool attached;		/* by GPU_ATTACH_IDS or an open of its file, for good */
	struct mutex open_files_lock, mmap_lock;	/* the latter is outside */
	struct list_head open_files;
	bool safe_to_mmap;	/* mmap_lock */
};

extern struct sim_gpu sim_gpus[SIM_GPUS_MAX];
extern unsigned int sim_gpu_count;

bool sim_heap_take(struct sim_heap *heap, u64 bytes, u64 *offset);	/* offset may be NULL */
void sim_heap_give(struct sim_heap *heap, u64 bytes);
u64 sim_heap_free(struct sim_heap *heap);
struct sim_gpu *sim_gpu_by_id(u32 id);
struct sim_gpu *sim_gpu_by_uuid(const u8 *uuid);
struct sim_gpu *sim_gpu_by_instance(u64 instance);

/* ---- who calls ---- */

enum sim_level_of_caller { SIM_CALLER_USER, SIM_CALLER_ROOT, SIM_CALLER_KERNEL };

struct sim_caller {
	enum sim_level_of_caller level;
	bool user_params;	/* nested parameters are in user memory */
	struct sim_file *file;	/* the ctl file that owns the clients; NULL for the kernel */
};

/* Nested parameters, copied in before any lock and out after all are gone. */
struct sim_params {
	void *data;
	u64 from;
	u32 size;
	bool user;
};

NV_STATUS sim_params_in(struct sim_params *params, const struct sim_caller *by, u64 from, u32 size);
NV_STATUS sim_params_out(struct sim_params *params, NV_STATUS status);	/* copies only if status is NV_OK; frees */

NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n);
NV_STATUS os_lookup_user_io_memory(void *address, u64 page_count, u64 **pte_array, void **page_array);
NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n);

/* ---- memory ---- */

enum sim_memory_type { SIM_VIDMEM, SIM_SYSMEM, SIM_PINNED, SIM_VIRTUAL, SIM_REGISTERS };

struct sim_memory {
	struct kref ref;
	atomic_t users;		/* handles and UVM's own references: the heap is charged while there are any */
	struct sim_gpu *gpu;	/* NULL: no GPU's */
	enum sim_memory_type type;
	u64 size, page_size, offset;
	u64 charged;
	u32 attr, attr2, kind, flags, class;
	struct mutex lock;
	struct xarray pages;	/* by page number; made on first use */
	struct page **pinned;
	unsigned long pinned_count;
	bool found;		/* these pages were looked up, not pinned */
	/* NULL, or called when a GPU reads or writes through an address of its own; a VA space's lock is held */
	void (*touched)(void *toucher, struct sim_gpu *gpu, u64 va);
	void *toucher;
	struct sim_doorbell *bell;	/* of registers: rung by writes through GPU addresses; NULL: they have none there */
};

#define SIM_BAR0_SIZE		(16u << 20)
#define SIM_BAR0_USERMODE	0xbb0000u	/* where the usermode region lies in BAR0 */

struct sim_memory *sim_memory_create(struct sim_gpu *gpu, enum sim_memory_type type, u64 size);
struct sim_memory *sim_memory_get(struct sim_memory *memory);
void sim_memory_put(struct sim_memory *memory);
void sim_memory_use(struct sim_memory *memory);		/* one more handle or UVM reference; also a get */
void sim_memory_unuse(struct sim_memory *memory);
NV_STATUS sim_memory_charge(struct sim_memory *memory);
NV_STATUS sim_memory_look_up(struct sim_memory *memory, u64 address, u64 count);
NV_STATUS sim_memory_give_bell(struct sim_memory *memory, const char *way, const struct sim_object *object);
NV_STATUS sim_memory_pin(u64 address, u64 size, bool write, struct sim_memory **memory);
struct page *sim_memory_page(struct sim_memory *memory, unsigned long index, bool make);
int sim_memory_populate(struct sim_memory *memory, unsigned long first, unsigned long count);
int sim_memory_copy(struct sim_memory *memory, u64 offset, void *buffer, size_t n, bool write);
u64 sim_page_size(u64 size, u32 attr, u32 attr2);
u64 sim_memory_linear(const struct sim_memory *memory, u64 offset);
extern atomic_long_t sim_host_pages;	/* host pages that stand for memory now */

/* ---- GPU virtual memory ---- */

struct sim_vas {
	struct kref ref;
	struct mutex lock;
	struct rb_root maps;
	u64 next;		/* where RM puts the next mapping that names no address */
	u32 unique;
	struct sim_gpu *gpu;
	bool external;		/* page tables are UVM's: channels need UVM_REGISTER_CHANNEL */
};

struct sim_vas *sim_vas_create(struct sim_gpu *gpu, bool external);
struct sim_vas *sim_vas_get(struct sim_vas *vas);
void sim_vas_put(struct sim_vas *vas);
int sim_vas_map(struct sim_vas *vas, u64 va, u64 length, struct sim_memory *memory, u64 offset, bool writable);
void sim_vas_unmap(struct sim_vas *vas, u64 va, u64 length);
u64 sim_vas_reserve(struct sim_vas *vas, u64 length, u64 align);
extern const struct sim_mem_ops sim_vas_ops;

/* ---- objects ---- */

struct sim_group {		/* a TSG; duplicated handles share it */
	struct kref ref;
	struct sim_gpu *gpu;
	struct sim_tsg *tsg;
	u32 engine;
	bool graphics;	/* a channel of it got a graphics or compute object: the context exists */
	u8 veid_users[SIM_VEIDS];	/* context shares by subcontext; sim_api_lock */
};

struct sim_channel {
	struct sim_chan *chan;
	struct sim_group *group;
	struct sim_vas *vas;
	struct sim_memory *userd;
	u32 userd_page, veid;
	bool registered;	/* with UVM */
};

struct sim_share {
	struct list_head link;
	u32 target, mask;
	u16 type;
	u8 action;
};

struct sim_dependency {
	struct list_head of, by;	/* on the object depended on; on the dependant */
	struct sim_object *needs, *dependant;
};

struct sim_dma {		/* RM_MAP_MEMORY_DMA of a memory object */
	struct list_head link;
	struct sim_vas *vas;
	u32 handle;
	u64 va, length;
};

struct sim_object {
	u32 handle, class;
	enum sim_kind kind;
	const struct sim_ops *ops;
	struct sim_client *client;
	struct sim_object *parent;
	struct sim_object *back;	/* while a tree is freed: where the walk came from */
	bool dying;		/* such a walk has come by */
	struct sim_object *wrapper;	/* of a channel: the group that RM made for it, or NULL */
	struct list_head children, sibling;
	struct list_head dependants, needs;
	struct list_head shares, dmas;
	bool own_shares;
	unsigned int depth;
	struct sim_gpu *gpu;
	u32 engine;		/* NV2080_ENGINE_TYPE of a TSG or an engine object */
	u32 veid;		/* subcontext of a context share */
	union {
		struct sim_memory *memory;
		struct sim_vas *vas;
		struct sim_group *group;
		struct sim_channel *channel;
		struct sim_events *events;
	};
	struct sim_vas *space;		/* of a context share, TSG or virtual range: the VA space it names */
};

struct sim_alloc {
	const struct sim_caller *by;
	void *params;
	u32 size;
	struct sim_memory *pinned;	/* of an OS descriptor: user pages, pinned before any lock */
};

struct sim_ops {
	NV_STATUS (*construct)(struct sim_object *object, struct sim_alloc *alloc);
	void (*destroy)(struct sim_object *object);
	NV_STATUS (*copy)(struct sim_object *object, struct sim_object *from);	/* NULL: cannot be duplicated */
};

struct sim_cpu_map {		/* RM_MAP_MEMORY */
	struct list_head link;
	u32 device, memory;
	pid_t pid;
	u64 linear, length;
};

struct sim_client {
	u32 handle;
	struct sim_file *file;		/* NULL: a kernel client */
	pid_t pid;
	kuid_t euid;
	enum sim_level_of_caller level;
	struct xarray objects;
	u32 next_handle;
	u32 count;
	struct sim_object *root;
	struct list_head of_file, cpu_maps;
};

extern struct rw_semaphore sim_api_lock;
extern struct xarray sim_clients;
extern u32 sim_client_count;
extern u64 sim_object_count;
extern unsigned int sim_next_client;

const struct sim_ops *sim_ops_of(enum sim_kind kind);
extern const struct sim_ops sim_vidmem_ops, sim_sysmem_ops, sim_virtual_ops, sim_virtual_range_ops, sim_osdesc_ops;
extern const struct sim_ops sim_fabric_ops, sim_multicast_ops, sim_usermode_ops, sim_shared_data_ops;
extern const struct sim_ops sim_physical_ops, sim_register_ops, sim_deviceless_ops, sim_event_buffer_ops;
extern const struct sim_ops sim_device_ops, sim_subdevice_ops, sim_vas_object_ops, sim_group_ops, sim_ctxshare_ops;
extern const struct sim_ops sim_channel_ops, sim_engine_object_ops, sim_event_ops, sim_plain_ops, sim_dup_ops;

/* All below: sim_api_lock held, for writing where anything changes. */
struct sim_client *sim_client_find(u32 handle, const struct sim_caller *by);	/* NULL: not the caller's */
struct sim_client *sim_client_any(u32 handle);
NV_STATUS sim_client_refused(u32 handle);
NV_STATUS sim_client_create(const struct sim_caller *by, u32 *handle);
void sim_client_destroy(struct sim_client *client);
struct sim_object *sim_object_find(struct sim_client *client, u32 handle);
NV_STATUS sim_object_insert(struct sim_client *client, struct sim_object *parent, struct sim_object *object);
void sim_object_free(struct sim_object *object);
NV_STATUS sim_depend(struct sim_object *dependant, struct sim_object *needs);
bool sim_may_dup(struct sim_object *object, struct sim_client *to, const struct sim_caller *by);
NV_STATUS sim_share(struct sim_object *object, u32 target, u32 mask, u16 type, u8 action);
struct sim_object *sim_object_device(struct sim_object *object);
NV_STATUS sim_find_vas(struct sim_client *client, struct sim_object *device, u32 handle, struct sim_vas **vas,
		       struct sim_object **object);
struct sim_group *sim_group_create(struct sim_object *object, u32 engine, NV_STATUS *status);
void sim_group_put(struct sim_group *group);
NV_STATUS sim_group_wrap(struct sim_object *channel, struct sim_group *group, struct sim_vas *space, struct sim_object *vas_object);
NV_STATUS sim_assign_handle(struct sim_client *client, u32 *handle);

/* ---- the API; these lock ---- */

/* No class has a serialised form of its parameters. */
NV_STATUS sim_rm_alloc(const struct sim_caller *by, u32 root, u32 parent, u32 *handle, u32 class, u64 params, u64 rights,
		       bool serialised);
NV_STATUS sim_rm_alloc_kernel(const struct sim_caller *by, u32 root, u32 parent, u32 *handle, u32 class, void *params);
NV_STATUS sim_rm_free(const struct sim_caller *by, u32 root, u32 handle);
NV_STATUS sim_rm_control(const struct sim_caller *by, u32 client, u32 object, u32 cmd, u32 flags, u64 params, u32 size);
NV_STATUS sim_rm_dup(const struct sim_caller *by, u32 client, u32 parent, u32 *handle, u32 from, u32 object, u32 flags);
NV_STATUS sim_rm_share(const struct sim_caller *by, u32 client, u32 object, u32 target, u32 mask, u16 type, u8 action);
void sim_vid_heap(const struct sim_caller *by, void *block);
void sim_alloc_memory(const struct sim_caller *by, void *block);
void sim_map_memory(const struct sim_caller *by, void *block);
void sim_unmap_memory(const struct sim_caller *by, void *block);
void sim_update_mapping(const struct sim_caller *by, void *block);
void sim_map_dma(const struct sim_caller *by, void *block);
void sim_unmap_dma(const struct sim_caller *by, void *block);
void sim_context_dma(const struct sim_caller *by, void *block);
void sim_idle_channels(const struct sim_caller *by, void *block);
#define SIM_IDLE_MAX	4096
/* flags: NVOS30_FLAGS_*; sim_api_lock held */
u64 sim_idle_end(u32 us);
NV_STATUS sim_idle_one(u32 client, u32 handle, u32 flags, u32 us, u64 end);

/* ---- the rest of the module ---- */

extern const char *sim_version;
extern unsigned int sim_race_us;
int sim_debugfs_init(void);
void sim_debugfs_exit(void);
int sim_proc_init(void);
void sim_proc_exit(void);
void sim_rmops_exit(void);

#endif
