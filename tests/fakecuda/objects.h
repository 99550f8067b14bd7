/* SPDX-License-Identifier: Apache-2.0 */
/* What handles name, and the work that is done. */
#ifndef FAKE_OBJECTS_H
#define FAKE_OBJECTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "fakecuda.h"

#define MAX_SMS 192
#define MAX_DEVICES 8
#define SM_ALIGN 8
#define ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))

enum object_type {
	OBJECT_CONTEXT = 1, OBJECT_GREEN, OBJECT_STREAM, OBJECT_EVENT, OBJECT_MODULE, OBJECT_LIBRARY, OBJECT_FUNCTION,
	OBJECT_KERNEL, OBJECT_GRAPH, OBJECT_NODE, OBJECT_EXEC, OBJECT_POOL, OBJECT_DESCRIPTION, OBJECT_VMM, OBJECT_USER,
	OBJECT_LINK, OBJECT_ARRAY,
};

/* First member of everything that a handle names. Dead objects stay allocated: a handle is never reused, so the use
 * of a destroyed one is always seen. */
struct object {
	enum object_type type;
	bool dead;
	unsigned int id;
	struct object *next_hash;
};

struct sm_set {
	uint64_t bits[MAX_SMS / 64];
};

/* Immutable vector clock, shared by reference; t[i] counts the ops of actor i. */
struct clock {
	int refs;
	unsigned int n;
	uint64_t t[];
};

struct device {
	int ordinal;
	int place;			/* the GPU that it is: another one after a restore onto it */
	unsigned int sms;
	size_t memory;
	size_t used, peak;
	CUuuid uuid;
	struct context *primary;	/* NULL while it is not active */
	struct context *reset;		/* the one that a reset ended: its references count on, a retain brings it back */
	struct pool *default_pool;
	struct pool *pool;
	char *arena;
	int arena_fd;
	struct hole *holes;
	size_t graph_memory;
	unsigned int next_clock;
};

struct context {
	struct object object;
	struct device *device;
	struct context *group;		/* the context whose memory and modules these streams use: primary for green ones */
	struct green *green;
	struct sm_set sms;
	bool primary;
	struct module *modules;		/* of a group's first context, all that were ever loaded */
	unsigned int flags;
	unsigned int api_version;
	int refs;
	CUresult sticky;
	struct stream *legacy;
	struct stream *streams;		/* closed ones too while they have work */
	struct clock *ended;		/* of closed streams that are gone */
	size_t limits[16];
	CUfunc_cache cache;
	struct context *next;
};

struct green {
	struct object object;
	struct device *device;
	struct sm_set sms;
	struct context *context;	/* made by the first cuCtxFromGreenCtx or with the green context */
	struct op *record;
};

struct stream {
	struct object object;
	struct context *context;
	struct stream *next;
	enum { STREAM_NORMAL, STREAM_LEGACY, STREAM_PER_THREAD } kind;
	unsigned int flags;
	int priority;
	bool closed;
	struct op *last;
	unsigned int actor;
	pthread_t thread;
	CUlaunchAttributeValue window, policy, domain, domain_map;
	struct capture *capture;
	struct node **frontier;		/* nodes that the next captured node follows */
	size_t frontier_count;
};

struct event {
	struct object object;
	struct context *context;
	unsigned int flags;
	struct op *record;
	bool ipc;
	struct capture *capture;	/* recorded in this capture, at these nodes */
	unsigned long long capture_id;
	struct node **captured;
	size_t captured_count;
};

struct code;

struct kernel {
	struct object object;
	struct library *library;
	struct module *module;		/* of a module's own function; library is NULL then */
	char *name;
	unsigned int params;
	size_t param_size[64];
	size_t param_offset[64];
	size_t param_bytes;
	double duration_us;
	unsigned int registers;
	unsigned int shared;
	unsigned int local;
	unsigned int max_threads;
	unsigned int cluster;
	size_t code;			/* GPU memory that the driver takes for it at its first launch, and keeps */
	bool any_params;		/* image without a parameter list: nothing is known about its parameters */
	int dynamic_shared;
	int non_portable_cluster;
	int carveout;
	char *old_params;		/* set one by one for the oldest launch calls */
	unsigned int old_block[3], old_shared, old_size;
	struct kernel *next;
};

struct variable {
	char *name;
	size_t size;
	struct variable *next;
};

struct image {
	struct kernel *kernels;
	struct variable *variables;
	bool any_name;
};

struct global {
	struct variable *variable;
	CUdeviceptr address;
	struct context *context;
	struct global *next;
};

struct function {
	struct object object;
	struct context *context;
	struct kernel *kernel;
	struct module *module;
	struct function *next;
};

struct module {
	struct object object;
	struct context *context;
	struct library *library;
	struct image image;
	struct function *functions;
	struct global *globals;
	struct module *next;
	struct module *next_loaded;
};

struct library {
	struct object object;
	struct image image;
	struct module *modules;
	struct global *globals;
};

struct pool {
	struct object object;
	struct device *device;
	cuuint64_t threshold;
	size_t used, used_high, reserved, reserved_high;
	int reuse[3];
	struct pool *next;
	bool implicit;
	struct memory *free_list;
};

struct access_epoch {
	unsigned int actor;
	uint64_t time;
	unsigned long long op;
	const char *what;
};

struct segment {
	size_t low, high;
	struct access_epoch write;
	unsigned int reads;
	struct access_epoch *read;
};

enum memory_kind { MEMORY_DEVICE, MEMORY_HOST, MEMORY_REGISTERED, MEMORY_MANAGED, MEMORY_IPC, MEMORY_MAPPED,
	MEMORY_POOL, MEMORY_GRAPH, MEMORY_ARRAY };

struct memory {
	CUdeviceptr base;
	size_t size;
	enum memory_kind kind;
	struct device *device;
	struct context *group;
	struct context *context;
	struct pool *pool;
	struct physical *physical;	/* of mapped memory: */
	unsigned int reached;		/* bit n: device n has access */
	bool on_host;
	bool shared;			/* cuIpcGetMemHandle */
	unsigned int flags;
	unsigned long long id;
	size_t charged;
	struct segment *segments;
	size_t segment_count, segment_room;
	bool freed;			/* by stream order; the range stays until the op of the free has run */
	bool sync_memops;
};

enum work_type { WORK_KERNEL, WORK_COPY, WORK_SET, WORK_HOST, WORK_CALLBACK, WORK_CHILD, WORK_EMPTY, WORK_EVENT_WAIT,
	WORK_EVENT_RECORD, WORK_ALLOC, WORK_FREE, WORK_MEM_OPS, WORK_CONDITIONAL, WORK_JOIN };

struct kernel_work {
	CUfunction func;		/* as the program gave it; NULL if by kernel */
	CUkernel kern;
	CUcontext given;		/* the context that parameter queries answer */
	struct kernel *kernel;
	struct context *context;	/* where it runs */
	unsigned int grid[3], block[3], shared;
	unsigned int params;
	char *bytes;
	void **args;
	bool cooperative;
	unsigned int cluster[3];
	int priority;
	bool has_priority, serialization;
	struct event *completion;
	CUlaunchAttributeValue attributes[20];
	unsigned int attribute_mask;
};

struct set_work {
	CUdeviceptr dst;
	size_t pitch, width, height;
	unsigned int value, element;
	struct context *context;
};

struct work {
	enum work_type type;
	union {
		struct kernel_work kernel;
		struct { CUDA_MEMCPY3D how; struct context *context; void *staged; } copy;
		struct set_work set;
		struct { CUhostFn fn; void *data; } host;
		struct { CUstreamCallback fn; void *data; CUstream stream; } callback;
		struct { struct graph *graph; } child;
		struct { struct event *event; } event;
		struct { CUDA_MEM_ALLOC_NODE_PARAMS params; unsigned long long id; } alloc;
		struct { CUdeviceptr address; struct memory *memory; } free;
		struct { struct context *context; unsigned int count, flags, next; CUstreamBatchMemOpParams *ops; } mem;
		struct { CUDA_CONDITIONAL_NODE_PARAMS params; struct graph *body[2]; } conditional;
	};
};

enum op_state { OP_BLOCKED, OP_READY, OP_POLLING, OP_RUNNING, OP_HOST, OP_DONE };

struct op {
	int refs;
	enum op_state state;
	unsigned long long seq;
	struct work work;
	struct context *context;
	struct stream *stream;
	unsigned int actor;
	const char *label;
	struct clock *submitted;	/* the submitting thread's clock */
	struct clock *clock;		/* once started */
	uint64_t submit_ns, start_ns, end_ns, duration_ns;
	unsigned int blockers;
	struct op **after;		/* ops that wait for this one */
	size_t after_count, after_room;
	struct op **before;		/* referenced until the start */
	size_t before_count, before_room;
	struct op *next_pending, *prev_pending;
	struct op *next_poll;
	void *state_of_kernel;
	struct exec *exec;
	struct op *join;		/* of a conditional node: behind its bodies */
};

struct user_ref {
	struct user *user;
	unsigned int count;
	struct user_ref *next;
};

struct edge {
	struct node *from, *to;
	CUgraphEdgeData data;
};

struct node {
	struct object object;
	struct graph *graph;
	struct work work;
	struct node *original;
	bool disabled;
	unsigned int actor;
	unsigned int index;
	struct op *op;
	struct node **before;		/* in executable graphs */
	size_t before_count;
	bool followed;
	struct node *next;
};

struct graph {
	struct object object;
	struct node *nodes, **tail;
	size_t count;
	struct edge *edges;
	size_t edge_count, edge_room;
	struct graph *original;
	struct node **order;		/* in executable graphs */
	struct graph *owner;		/* of a child node: destroyed with the parent only */
	bool capturing;
	unsigned int memory_nodes, conditions;
	unsigned int executables;
	struct user_ref *users;
};

struct exec {
	struct object object;
	struct graph *graph;		/* private copy; node->original names the source's node */
	struct graph *source;
	struct op *last;
	unsigned long long flags;
	struct context *context;
	unsigned int inflight;
	bool dying;
};

struct capture {
	struct graph *graph;
	struct stream *origin;
	CUstreamCaptureMode mode;
	CUstreamCaptureStatus status;
	CUresult reason;
	pthread_t thread;
	unsigned long long id;
	struct context *context;
	bool own_graph;
	struct capture *next;
};

/* One thread's view: the stack of contexts, its clock and its default streams. */
struct thread {
	struct context *stack[64];
	unsigned int depth;
	CUstreamCaptureMode mode;
	struct stream *defaults[MAX_DEVICES * 4];
	unsigned int default_count;
	bool in_callback;
	bool aside;			/* the thread's name begins with "ds-" or "detshare": what it sees orders nobody else */
	bool known;
	struct clock *clock;
};

#endif
