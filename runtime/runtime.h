/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside libdetshare.so: what its parts know of each other.
 *
 * Words. Home: tier 0, the program's own stream, all SMs. Twin: a stream of ours in the green context of a tier, in which
 * the work of one of the program's streams runs. A stream *moves* when its next work goes to another of these handles.
 *
 * Rules. No function here is called while a program's call is under way in the same thread and holds ds_device.lock
 * (ds_thread.locked): a profiler may call the driver from inside the driver; such calls go on natively.
 * Calls into the driver that make or destroy objects run between ds_own_begin() and ds_own_end().
 */
#ifndef DS_RUNTIME_H
#define DS_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "cuda.h"

#define DS_EXPORT __attribute__((visibility("default")))
#define ds_likely(x) __builtin_expect(!!(x), 1)
#define ds_unlikely(x) __builtin_expect(!!(x), 0)

#include "gen/real.h"

/* ---- entry.c: the driver's own functions ---- */

/* What every call of the program reads, in one line of the cache. */
struct ds_process {
	_Atomic(bool) ready; /* ds_real_table is filled */
	_Atomic(bool) exiting; /* the program is in exit(): no move, no new object */
	_Atomic(bool) unseen; /* the current context may change in ways that we do not see */
	bool fences; /* gate.c: no membarrier here, launches fence by themselves */
	_Atomic(uint32_t) managed; /* devices in state MANAGED */
	_Atomic(uint32_t) aside; /* devices in state ASIDE */
	_Atomic(uint32_t) contexts; /* counts contexts that came or went; never 0 */
	_Atomic(uint32_t) streams_changed; /* counts handles that became ours or ceased to be */
} __attribute__((aligned(64)));

extern struct ds_process ds_process; /* entry.c */
extern struct ds_real ds_real_table;
void ds_load(void);
CUresult ds_absent(void);

static inline const struct ds_real *ds_real_get(void)
{
	if (ds_unlikely(!atomic_load_explicit(&ds_process.ready, memory_order_acquire)))
		ds_load();
	return &ds_real_table;
}
#define real ds_real_get()

/* whether the loaded driver exports it */
#define ds_has(function) ((void (*)(void))real->function != (void (*)(void))ds_absent)

/* ---- log.c: lines for people, on stderr or in $DETSHARE_LOG_FILE; level by $DETSHARE_LOG=off|info|debug ---- */

void ds_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ds_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *ds_error_name(CUresult error);

/* ---- thread.c ---- */

uint64_t ds_now_ns(void); /* CLOCK_MONOTONIC */
struct timespec ds_timespec(uint64_t ns);
void ds_nap(uint64_t ns);
/* Runs detached, with all signals blocked: no handler of the program ever runs on a thread of ours. 0, or an errno. */
int ds_thread_start(void *(*run)(void *), void *data);

/* ---- device.c ---- */

#define DS_MAX_DEVICES 64

enum ds_device_state {
	DS_DEVICE_UNKNOWN, /* no context seen yet, or its context is gone */
	DS_DEVICE_MANAGED, /* attached to a board: streams are known and move */
	DS_DEVICE_ASIDE, /* something is missing: everything is native until the process ends */
};

struct ds_stream;
struct ds_board; /* board.c */
struct ds_pool; /* pool.c */

/* One GPU of this process. Everything is about its primary context. */
struct ds_device {
	/* read by each launch */
	CUcontext primary; /* NULL unless MANAGED */
	CUdevice ordinal;
	_Atomic(uint32_t) ready; /* bit t: the green context of tier t exists; bit 0 is always set */
	_Atomic(uint32_t) twinned; /* default and blocking streams that are not at home */
	_Atomic(uint32_t) captures; /* streams that are being captured */
	_Atomic(uint32_t) ordered_captures; /* of them, blocking ones: the legacy stream cannot be touched */
	_Atomic(uint32_t) legacy_seq; /* counts work of the legacy stream while twinned */
	_Atomic(uint32_t) blocking_seq; /* counts work of blocking streams while twinned */
	struct ds_board *board; /* NULL until attached */

	/* below: under lock, if nothing else is said */
	pthread_mutex_t lock;
	_Atomic(int) state; /* enum ds_device_state */
	_Atomic(uint32_t) generation; /* counts contexts of this device; cached pointers of an older one are void */
	_Atomic(uint32_t) retains; /* what the program retained and has not released */
	struct ds_stream *legacy;
	struct ds_stream *streams; /* all of them, the default ones included */
	struct ds_pool *pool;
	unsigned int sms; /* of the whole device */
	unsigned int sm_step; /* green contexts have multiples of this many */
	CUuuid uuid;
} __attribute__((aligned(64)));

extern struct ds_device ds_devices[DS_MAX_DEVICES];

/* nothing is left to do for the library in this process */
static inline bool ds_native(void)
{
	return !atomic_load_explicit(&ds_process.managed, memory_order_relaxed) && atomic_load_explicit(&ds_process.aside, memory_order_relaxed);
}

/* the device whose primary context is `context`; NULL: not ours. May attach at the first sight of a context. */
struct ds_device *ds_device_of(CUcontext context);
/* the same for the context that is current in this thread */
struct ds_device *ds_device_current(void);
/* the driver's answer; remembered until a call that may change it. NULL: none */
CUcontext ds_context_current(void);
/* from now on it may change in ways that we do not see: the driver is asked each time */
void ds_context_unseen(void);
/* everything goes home, and further work stays there (end of a context, step aside for good) */
void ds_device_home(struct ds_device *device);

#define DS_CACHED_STREAMS 16

/* What belongs to one thread. The first line of the cache has what each launch reads. */
struct ds_thread {
	uint32_t known; /* ds_process.contexts when the next three were found; else, and when 0, they are void */
	bool locked; /* inside a call of ours that holds a lock, or a helper thread of ours: wrapped calls go on natively */
	CUcontext current; /* the driver's answer */
	struct ds_stream *legacy, *per_thread; /* its default streams; NULL: not looked for */
	struct ds_tally *tally; /* gate.c: of the device used last */
	uint32_t streams; /* ds_process.streams_changed at which the NULLs in cache were right */
	uint32_t generation;
	CUcontext context; /* device: whose it is, while generation is ds_process.contexts */
	struct ds_device *device;
	struct {
		CUstream app;
		struct ds_stream *stream; /* NULL: not managed */
	} cache[DS_CACHED_STREAMS];
	struct ds_own_stream *own; /* stream.c: default streams of this thread */
} __attribute__((aligned(64)));
extern __thread struct ds_thread ds_thread __attribute__((tls_model("initial-exec")));

/* after each call by which another context may be current in this thread */
static inline void ds_context_changed(void)
{
	ds_thread.known = 0;
}

/* Around calls of our own that make or destroy objects or ask for states: the device's context is current, and no capture of the
 * program is broken by them. Nests. */
struct ds_own {
	CUstreamCaptureMode mode;
	bool pushed;
};
void ds_own_begin(struct ds_own *own, struct ds_device *device);
void ds_own_end(struct ds_own *own);

/* ---- stream.c, move.c ---- */

enum {
	DS_STREAM_LEGACY = 1, /* the default stream of the context */
	DS_STREAM_PER_THREAD = 2, /* the default stream of one thread; BLOCKING too */
	DS_STREAM_BLOCKING = 4, /* ordered against the legacy stream */
	DS_STREAM_ORDERED = DS_STREAM_LEGACY | DS_STREAM_BLOCKING,
};

enum { DS_CAPTURE_NONE, DS_CAPTURE_JOINED, DS_CAPTURE_ORIGIN };

/* ds_stream.word: calls under way on the stream, whether it is moving, and how many calls it has seen */
#define DS_WORD_USERS 0xffffULL
#define DS_WORD_MOVING 0x10000ULL
#define DS_WORD_CALL (1ULL << 32)

/* One stream of the program. Memory of this type is used again for other streams and never given back, so a pointer to a destroyed
 * one is stale but not wild. */
struct ds_stream {
	_Atomic(uint64_t) word; /* first; goes on counting when the memory serves another stream */
	CUstream cur; /* where its last work went; changed while MOVING with no user */
	struct ds_device *device;
	void *gate; /* gate.c */
	uint8_t tier; /* of cur */
	uint8_t flags; /* DS_STREAM_* */
	_Atomic(uint8_t) capturing; /* DS_CAPTURE_*: natively at home until the capture ends */
	_Atomic(uint32_t) seen; /* legacy_seq (legacy stream: blocking_seq) that this stream's work is ordered behind */
	_Atomic(uint32_t) idle_at; /* the count of calls at which the program knew that it has no work left: a move needs no event */
	_Atomic(uint32_t) done_at; /* the same, but only the ticker knew */
	_Atomic(CUstream) app; /* the program's handle, NULL once destroyed; CU_STREAM_LEGACY and CU_STREAM_PER_THREAD for default streams */
	int priority;

	/* below: under device->lock */
	bool attributes; /* the program set some: twins get them too */
	bool orphan; /* a per-thread stream whose thread ended */
	pthread_t owner; /* of a per-thread stream */
	CUevent event; /* orders moves; made at the first one */
	CUstream twins[DS_TIERS];
	uint64_t retry_ns; /* no move is tried before: another thread is inside a long call */
	struct ds_stream *next; /* device->streams */
};

/* The stream behind a handle that the program passed; NULL: not managed, call natively with the handle as it is. per_thread: what a null
 * handle means. */
struct ds_stream *ds_stream_of(CUstream app, bool per_thread);

/*
 * The handle for work of `tier`, after a move if one is needed: order with all earlier work of the stream is kept. It may be of another tier
 * (see stream->tier) where a move cannot be made now. Between this call and ds_stream_done() the stream does not move. Nothing waits for the GPU.
 */
static inline CUstream ds_stream_use(struct ds_stream *stream, unsigned int tier);
/* the handle for calls that follow: no move */
static inline CUstream ds_stream_cur(struct ds_stream *stream);
static inline void ds_stream_done(struct ds_stream *stream);
/* as done, after a call that put no work into the stream */
static inline void ds_stream_done_quiet(struct ds_stream *stream);
/* moves home, however long other threads are inside calls; then as ds_stream_use(stream, 0) */
void ds_stream_home(struct ds_stream *stream);
/* the stream's next work waits for all work that `other` has now. Neither is in use by this thread. */
CUresult ds_stream_after(struct ds_stream *stream, struct ds_stream *other);
/* For a call that finds out that the stream has no work left: mark while in use by this thread, before the wait; idle after it succeeded. */
uint64_t ds_stream_mark(struct ds_stream *stream);
void ds_stream_idle(struct ds_stream *stream, uint64_t mark);

#define DS_TIER_ANY 0xffU
CUstream ds_stream_slow(struct ds_stream *stream, unsigned int tier);
void ds_stream_work_done(struct ds_stream *stream);

static inline bool ds_stream_unordered(struct ds_stream *stream)
{
	struct ds_device *device = stream->device;
	uint32_t seq;

	if (ds_likely(!(stream->flags & DS_STREAM_ORDERED) || !atomic_load_explicit(&device->twinned, memory_order_seq_cst)))
		return false;
	seq = stream->flags & DS_STREAM_LEGACY ? atomic_load_explicit(&device->blocking_seq, memory_order_acquire)
					       : atomic_load_explicit(&device->legacy_seq, memory_order_acquire);
	return seq != atomic_load_explicit(&stream->seen, memory_order_relaxed);
}

static inline CUstream ds_stream_use(struct ds_stream *stream, unsigned int tier)
{
	uint64_t word = atomic_fetch_add_explicit(&stream->word, DS_WORD_CALL + 1, memory_order_acquire);

	if (ds_unlikely((word & DS_WORD_MOVING) || stream->tier != tier || ds_stream_unordered(stream)))
		return ds_stream_slow(stream, tier);
	return stream->cur;
}

static inline CUstream ds_stream_cur(struct ds_stream *stream)
{
	uint64_t word = atomic_fetch_add_explicit(&stream->word, DS_WORD_CALL + 1, memory_order_acquire);

	if (ds_unlikely((word & DS_WORD_MOVING) || ds_stream_unordered(stream)))
		return ds_stream_slow(stream, DS_TIER_ANY);
	return stream->cur;
}

static inline void ds_stream_done_quiet(struct ds_stream *stream)
{
	atomic_fetch_sub_explicit(&stream->word, 1, memory_order_release);
}

static inline void ds_stream_done(struct ds_stream *stream)
{
	if (ds_unlikely((stream->flags & DS_STREAM_ORDERED) &&
			atomic_load_explicit(&stream->device->twinned, memory_order_seq_cst)))
		ds_stream_work_done(stream);
	ds_stream_done_quiet(stream);
}

/* ---- pool.c: green contexts, one per tier; made by a helper thread ---- */

/* all three: of a tier that is ready; tier 0 gives the primary context and all SMs */
CUcontext ds_pool_ctx(struct ds_device *device, unsigned int tier);
unsigned int ds_pool_sms(struct ds_device *device, unsigned int tier);
/* a new non-blocking stream there; NULL: refused, and said so in the log. Destroyed by cuStreamDestroy_v2. */
CUstream ds_pool_stream(struct ds_device *device, unsigned int tier, int priority);
/* the policy has (perhaps) tiers that do not exist yet: make them in the background. Does not wait. */
void ds_pool_wish(struct ds_device *device);
/* work of the tier goes where it shall: it is ready, is the whole GPU, or cannot be made and never will be */
bool ds_pool_settled(struct ds_device *device, unsigned int tier);

static inline bool ds_pool_ready(struct ds_device *device, unsigned int tier)
{
	return atomic_load_explicit(&device->ready, memory_order_acquire) >> tier & 1;
}

/* ---- launch.c ---- */

enum ds_launch_kind { DS_LAUNCH_KERNEL, DS_LAUNCH_COOPERATIVE, DS_LAUNCH_GRAPH };

/* One launch, from before the gate to after the driver's call. */
struct ds_launch {
	struct ds_stream *stream;
	CUstream actual; /* where it goes */
	void *function; /* CUfunction, CUkernel or CUgraphExec as the program passed it */
	unsigned int grid[3], block[3];
	unsigned int shared; /* dynamic bytes per block */
	enum ds_launch_kind kind;
	const CUlaunchConfig *config; /* of the -Ex variants, else NULL */
	unsigned int tier; /* of actual */
	struct ds_board *board; /* whose gate it passed; NULL: none */
	bool captured; /* it becomes a node of a graph: no gate, no figures */
	uint64_t gate[4]; /* gate.c's */
};

/*
 * Before and after a launch by the driver, whoever wrote the wrapper: activity, tier of now (given up for one that holds the launch as a
 * whole), host wait, move, gate. launch->stream and what describes the launch are set; then launch->actual is where it goes.
 */
void ds_launch_begin(struct ds_launch *launch);
void ds_launch_end(struct ds_launch *launch, CUresult result);

/* ---- board.c, attach.c, gate.c ---- */

/*
 * Sends the request for the boards while there is no context yet, and waits for nothing; ordinal, SMs and UUID of the device are known. Either
 * ds_board_attach() or ds_board_ask_no_more() follows, which takes the request back. All three under device->lock.
 */
void ds_board_ask_ahead(struct ds_device *device);
void ds_board_ask_no_more(struct ds_device *device);
/* asks the daemon for the boards of this device; false: none, and one line in the log says why */
bool ds_board_attach(struct ds_device *device);
void ds_board_detach(struct ds_device *device);
/* after it, in the context that ends and under device->lock, when no gate is waited for any more */
void ds_board_unregister(struct ds_device *device);
/* the policy's tier; kind DS_TIER_FULL with sms 0 where it has none */
struct ds_tier ds_board_tier_at(struct ds_device *device, unsigned int tier);
/* the tier that the policy wants now; board.h's users include "gate.h" for the inline one */
unsigned int ds_board_tier(struct ds_device *device);
/* the policy wants that tier even while no higher class is active */
bool ds_board_stands(struct ds_device *device, unsigned int tier);
void ds_board_remap(struct ds_device *device); /* counts a move */
void ds_board_full_run(struct ds_device *device, unsigned int reason); /* counts DS_FULL_* */
void ds_board_pool(struct ds_device *device, uint64_t bytes, uint64_t create_ns); /* what the pool costs */
void ds_active_begin(struct ds_device *device);
/* A copy to the device is about to be queued: kernels follow, so lower classes begin to stop now. Before the stream is in use. */
void ds_active_soon(struct ds_stream *stream);
/* may hold the calling thread while a higher class is active; no stream is in use by it */
void ds_gate_host(struct ds_launch *launch);
/* may put a wait into launch->actual */
void ds_gate_before(struct ds_launch *launch);
void ds_gate_after(struct ds_launch *launch, CUresult result);
/* `stream` (NULL: every stream of the device) has no work left that was there when the waiting call began */
void ds_synced(struct ds_device *device, struct ds_stream *stream);
void ds_gate_stream_gone(struct ds_stream *stream);
void ds_board_child(void); /* in a forked child */

/* ---- graph*.c, resident.c, view.c, memory.c ---- */

/* whether every block that must be resident at once finds room on the tier; else the launch goes to tier 0, counted by it */
bool ds_resident_fits(struct ds_device *device, unsigned int tier, const struct ds_launch *launch);
void ds_resident_forget(void); /* before code is unloaded */
void ds_graph_stream_gone(struct ds_stream *stream);
void ds_graph_context_gone(struct ds_device *device);
void ds_graph_child(void);
void ds_memory_context_gone(struct ds_device *device);
void ds_memory_child(void);

#endif
