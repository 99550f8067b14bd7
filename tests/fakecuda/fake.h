/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the stand-in offer each other. One lock guards everything; API bodies run with it held. A piece of
 * device work is an op: it starts when all ops it depends on are done, on virtual time.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdlib.h>
#include <string.h>

#include "objects.h"

extern pthread_mutex_t fake_lock;
extern struct device devices[MAX_DEVICES];
extern int device_count;
extern bool initialised;
extern __thread struct thread self;
extern struct context *contexts;
extern struct clock *context_over; /* of what contexts that ended had */

/* device.c */
CUresult device_of(CUdevice ordinal, struct device **device);
void devices_start(void);
unsigned int sms_count(const struct sm_set *set);
unsigned int sms_list(const struct sm_set *set, uint16_t *ids);
struct sm_set sms_first(const struct sm_set *from, unsigned int n);
struct sm_set sms_without(const struct sm_set *from, const struct sm_set *less);
struct sm_set sms_all(unsigned int n);

/* handle.c */
void handle_add(void *object, enum object_type type);
void handle_kill(void *object);
void *handle_get(const void *handle, enum object_type type);
enum object_type handle_type(const void *handle);
void *xalloc(size_t size);
void *xrealloc(void *old, size_t size);
char *xdup(const char *text);

/* api.c */
CUresult api_enter(unsigned int how);
CUresult api_leave(unsigned int how, CUresult result);
/* so many microseconds as the environment says, while other threads go on */
void take_time(const char *variable);
extern unsigned int helpers_inside;	/* helper threads in take_time() */

/* report.c */
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void trace_op(const struct op *op);
const char *op_label(const struct op *op);
void report_start(void);

/* clock.c */
struct clock *clock_get(struct clock *clock);
void clock_put(struct clock *clock);
struct clock *clock_join(struct clock *a, const struct clock *b);	/* consumes a */
struct clock *clock_tick(struct clock *a, unsigned int actor);		/* consumes a */
bool clock_covers(const struct clock *clock, unsigned int actor, uint64_t time);
unsigned int actor_new(void);
void actor_free(unsigned int actor);
void host_join(const struct clock *clock);
struct clock *host_clock(void);
bool helper_thread(void);	/* the caller is one of the library's own */

/* shadow.c */
void shadow_access(struct memory *memory, size_t offset, size_t size, bool write, const struct op *op);
void shadow_access_as(struct memory *memory, size_t offset, size_t size, bool write, const struct clock *clock,
		      unsigned int actor, unsigned long long op, const char *what);
void shadow_clear(struct memory *memory);
void sync_release(CUdeviceptr address, struct clock *clock);
const struct clock *sync_acquire(CUdeviceptr address);

/* engine.c */
void engine_start(void);
void engine_kick(void);
uint64_t now_ns(void);
struct op *op_new(struct context *context, enum work_type type);
struct op *op_get(struct op *op);
void op_put(struct op *op);
void op_follow(struct op *op, struct op *before);
void op_submit(struct op *op);
void op_complete(struct op *op);
CUresult op_wait(struct op *op);
CUresult wait_all(struct context *group);
bool idle_all(struct context *group);
bool clock_is_virtual(void);

/* run.c */
CUresult op_begin(struct op *op);
bool op_poll(struct op *op);
void op_effect(struct op *op);
uint64_t op_duration(const struct op *op);
CUresult work_copy(struct work *to, const struct work *from);
void work_drop(struct work *work);

/* context.c */
CUresult context_current(struct context **context);
CUresult context_of(CUcontext handle, struct context **context);
CUresult primary_of(struct device *device, struct context **context);
CUresult primary_release(struct device *device);
struct context *context_new(struct device *device, struct context *group, const struct sm_set *sms);
void context_close(struct context *context);
CUresult check_capture_safe(void);

/* stream.c */
CUresult stream_of(CUstream handle, bool per_thread, struct stream **stream);
struct stream *stream_new(struct context *context, unsigned int flags, int priority);
void stream_close(struct stream *stream);
void streams_prune(struct context *context);
CUresult stream_issue(struct stream *stream, struct work *work, struct op **issued);	/* consumes work */
void stream_depend(struct stream *stream, struct op *op);
CUresult stream_sync(struct stream *stream);

/* capture.c */
CUresult capture_add(struct stream *stream, struct work *work);
CUresult capture_record(struct stream *stream, struct event *event, bool external);
CUresult capture_wait(struct stream *stream, struct event *event);
CUresult capture_spoil(struct capture *capture, CUresult reason);
CUresult capture_forbid(struct context *context);
CUresult capture_forbid_in(struct context *context); /* the same, but of a green context alone, if it is one */
CUresult capture_implicit(struct context *context);

/* ipc.c */
void ipc_forget(const struct context *group); /* what it opened is gone with it */

/* peer.c */
bool peer_reaches(const struct context *from, const struct context *to);
void peer_forget(const struct context *context); /* it ends */

/* memory.c */
CUresult memory_new(struct context *context, size_t size, enum memory_kind kind, struct memory **memory);
struct memory *memory_add(struct context *context, CUdeviceptr base, size_t size, enum memory_kind kind);
void memory_remove(struct memory *memory);
void memory_end(struct context *group);
void memory_unregister(struct context *group);
bool memory_shared(void); /* another process has some, or could */
struct memory *memory_find(CUdeviceptr address);
void *memory_reach(struct context *context, CUdeviceptr address, size_t size, struct memory **memory);
void arena_start(struct device *device);
CUdeviceptr arena_take(struct device *device, size_t size);
void arena_give(struct device *device, CUdeviceptr base, size_t size);

/* checkpoint.c */
void checkpoint_start(void);
void checkpoint_enter(void); /* a call comes in; it waits while the process is locked */
void checkpoint_leave(void);
void checkpoint_child(void);

/* vmm.c */
bool vmm_imported(void); /* there is device memory of another process */
bool vmm_on_host(void); /* there is host memory with a handle */
void vmm_forget_empty(void);

/* share.c */
size_t memory_left(const struct device *device);
bool refuses(void); /* FAKECUDA_REFUSE */
bool memory_take(struct device *device, size_t size); /* false: it has no room */
void memory_give(struct device *device, size_t size);

/* image.c */
CUresult image_parse(const void *data, struct image *image);
CUresult image_load(const char *path, struct image *image);
struct kernel *image_kernel(struct image *image, const char *name);
void image_close(struct image *image);
CUresult function_of(const void *handle, struct kernel **kernel, struct context **context, bool *is_kernel);

/* module.c */
void modules_end(struct context *context);
void globals_end(struct global **globals);
struct module *library_module(struct library *library, struct context *context);
struct function *library_function(struct kernel *kernel, struct context *context);

/* kernel.c */
fakecuda_kernel kernel_code(const char *name);
int run_digest(struct fakecuda_call *call);

/* occupancy.c */
unsigned int blocks_per_sm(const struct kernel *kernel, unsigned int threads, size_t shared);
bool fits_resident(const struct kernel_work *work);
CUresult launch_check(const struct kernel_work *work);

/* launch.c */
CUresult kernel_args(struct kernel_work *work, void **params, void **extra);
CUresult kernel_launch(bool per_thread, CUfunction handle, const CUlaunchConfig *config, void **params, void **extra,
		       bool cooperative);
CUresult kernel_attributes(struct kernel_work *work, const CUlaunchAttribute *attributes, unsigned int count);

/* pool.c */
void pool_start(struct device *device);
CUresult pool_take(struct pool *pool, struct context *context, size_t size, struct memory **memory);
void pool_give(struct memory *memory);

/* memops.c */
bool mem_ops_step(struct op *op);

/* graph.c */
struct graph *graph_new(void);
struct node *graph_add(struct graph *graph, struct work *work);
CUresult graph_edge(struct graph *graph, struct node *from, struct node *to, const CUgraphEdgeData *data);
struct graph *graph_clone(struct graph *from);
void graph_drop(struct graph *graph);
void node_drop(struct node *node);
CUresult graph_of(CUgraph handle, struct graph **graph);
CUresult node_of(CUgraphNode handle, struct node **node);
struct node *graph_find(struct graph *graph, struct node *original);
CUresult graph_order(struct graph *graph, struct node ***order);
CUresult node_set(struct node *node, const CUgraphNodeParams *params);
CUresult node_work(CUgraphNodeParams *params, struct work *work);
CUresult kernel_node_work(const CUDA_KERNEL_NODE_PARAMS *params, bool with_context, struct work *work);
CUresult copy_node_check(const CUDA_MEMCPY3D *how);

/* exec.c */
void conditional_expand(struct op *op);
CUresult exec_of(CUgraphExec handle, struct exec **exec);
CUresult exec_launch(struct exec *exec, struct stream *stream);

/* array.c */
CUresult array_resolve(CUDA_MEMCPY3D *how);

/* user.c */
void users_copy(struct graph *to, const struct graph *from);
void users_drop(struct graph *graph);

/* condition.c */
CUgraphConditionalHandle condition_new(unsigned int value, unsigned int flags);
unsigned int condition_value(CUgraphConditionalHandle handle);
bool condition_set(CUgraphConditionalHandle handle, unsigned int value);
void condition_reset(CUgraphConditionalHandle handle);

/* event.c */
CUresult event_of(CUevent handle, struct event **event);

#endif
