/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated GPU, as the RM side of the driver sees it: TSGs with channels on runlists,
 * doorbells, time.
 *
 * Locking: one mutex per engine, taken by each function below. All may sleep; none may be called in
 * atomic context. The mem_ops are called with that mutex held, from a kernel thread: they may take
 * a VA space's own lock, under which nothing of this header may be called. An RM lock may be held
 * around any call.
 *
 * Life: a channel's vas must stay valid until sim_chan_destroy() has returned; the channel holds a
 * reference to its USERD page. Channels go before their TSG; if a TSG goes first, its channels are
 * dead but must still be destroyed.
 */
#ifndef NVSIM_ENGINE_H
#define NVSIM_ENGINE_H

#include <linux/types.h>
#include <linux/uidgid.h>

struct page;
struct seq_file;
struct sim_engine;
struct sim_tsg;
struct sim_chan;
struct sim_doorbell;

/* GPU virtual memory. 0, or -EFAULT where [gpuva, gpuva + n) is not mapped in full. */
struct sim_mem_ops {
	int (*read)(void *vas, u64 gpuva, void *buf, size_t n);
	int (*write)(void *vas, u64 gpuva, const void *buf, size_t n);
};

enum sim_level { SIM_LEVEL_LOW, SIM_LEVEL_MEDIUM, SIM_LEVEL_HIGH };

enum sim_tpc_mode { SIM_TPC_NONE, SIM_TPC_STATIC, SIM_TPC_DYNAMIC };

#define SIM_SUBCONTEXTS	     64
#define SIM_SMS_PER_TPC	     2
#define SIM_SLICE_COMPUTE_US 2048
#define SIM_SLICE_COPY_US    1024

/* Functions that return a pointer return an ERR_PTR on failure. */
struct sim_engine *sim_engine_create(u32 gpu, u32 sms, const struct sim_mem_ops *ops);
void sim_engine_destroy(struct sim_engine *engine);
u32 sim_engine_sms(const struct sim_engine *engine);

/*
 * engine_type: NV2080_ENGINE_TYPE_*; 0 is taken as GR0. As on an H100, GR0 and the first two copy
 * engines share runlist 0, any other engine has its own. owner: for the listing and the log only.
 */
struct sim_tsg_owner {
	u32 client, handle;
	u32 pid; /* of the process whose it is, 0: the kernel */
	kuid_t uid;
};

struct sim_tsg *sim_tsg_create(struct sim_engine *engine, u32 engine_type, const struct sim_tsg_owner *owner);
void sim_tsg_destroy(struct sim_tsg *tsg);
u32 sim_tsg_id(const struct sim_tsg *tsg); /* NVA06C GET_INFO: the lowest free on its runlist */
u32 sim_tsg_runlist(const struct sim_tsg *tsg);

/* The controls take as long as on an H100 (module parameter engine_latency=0: no time). */
int sim_tsg_set_timeslice(struct sim_tsg *tsg, u64 us); /* any value; even 0 makes progress */
u64 sim_tsg_timeslice(const struct sim_tsg *tsg);
/* no slice at all until the next one is set: the TSG gives way only when it has nothing to do */
void sim_tsg_disable_timeslice(struct sim_tsg *tsg);
/* -EINVAL above HIGH, -EPERM while interleaving is off */
int sim_tsg_set_interleave(struct sim_tsg *tsg, u32 level);
u32 sim_tsg_interleave(const struct sim_tsg *tsg);
/* off its engine now; comes back at its turn */
int sim_tsg_preempt(struct sim_tsg *tsg, bool wait);
/* its kernels are never taken off (as a graphics context whose preemption mode is WFI) */
void sim_tsg_set_wfi(struct sim_tsg *tsg, bool wfi);
/* HIGH and the first of that level; off: MEDIUM */
int sim_tsg_make_realtime(struct sim_tsg *tsg, bool realtime);
/*
 * Which SMs kernels of a context share may use: the mode is the TSG's, the number the share's. A
 * number without a mode has no effect. -EINVAL: a mode that is none, or more SMs than there are.
 */
int sim_tsg_set_tpc_mode(struct sim_tsg *tsg, u32 mode);
u32 sim_tsg_tpc_mode(const struct sim_tsg *tsg);
int sim_tsg_set_sms(struct sim_tsg *tsg, u32 veid, u32 sms);
bool sim_tsg_scheduled(const struct sim_tsg *tsg);
u32 sim_tsg_unique(const struct sim_tsg *tsg);
/* disable: no new kernel; a running one goes on */
int sim_tsg_schedule(struct sim_tsg *tsg, bool enable);
u64 sim_tsg_gpu_time_us(struct sim_tsg *tsg);

struct sim_chan_where {
	struct page *userd_page;
	u32 userd_offset;
	u32 client, handle;
	u32 veid; /* of its context share */
};

/*
 * entries: a power of two. userd_offset: within the page, SIM_USERD_SIZE bytes must fit. The
 * channel runs once its TSG was scheduled or sim_chan_schedule() was called. -ENOSPC: 4095 channels
 * on the runlist.
 */
struct sim_chan *sim_chan_create(struct sim_tsg *tsg, void *vas, u64 gpfifo_va, u32 entries,
				 const struct sim_chan_where *where);
void sim_chan_destroy(struct sim_chan *chan);
/* It has a graphics or compute object: on a copy engine no kernel can be launched before. */
void sim_chan_compute(struct sim_chan *chan);
int sim_chan_schedule(struct sim_chan *chan, bool enable);
/*
 * Nests; enabling once too often does no harm. only_scheduling: what runs goes on. rewind: entries
 * not begun are dropped. Takes no time itself: FIFO_DISABLE_CHANNELS calls it for each channel of
 * its list, then sim_engine_settle() once, which takes the time that the whole call takes. Where a
 * TSG has channels of several clients, and only some were taken off while others had work, those
 * others hang, as clients of an MPS server did.
 */
int sim_chan_disable(struct sim_chan *chan, bool disable, bool only_scheduling, bool rewind);
void sim_engine_settle(struct sim_engine *engine, bool disable);
/* All channels off, or as they were; disable nests as sim_chan_disable() does. */
void sim_engine_suspend(struct sim_engine *engine, bool suspend);
/* Off its engine now, once; false: it still had something to do at `end` (ktime; at most 1 s from now). */
bool sim_chan_idle(struct sim_chan *chan, u64 end);
/* The same, and nothing is taken off. */
bool sim_chan_wait_idle(struct sim_chan *chan, u64 end);
/* Is it disabled, as often as it may be? */
bool sim_chan_is_off(struct sim_chan *chan);
/* Has it no entry left that was not fetched? What was fetched may run. */
bool sim_chan_is_fetched(struct sim_chan *chan);
/* Has it nothing left to do? A look, nothing more. One that waits for a semaphore has. */
bool sim_chan_is_idle(struct sim_chan *chan);
/* As long as half a control that changes nothing takes; sleeps. */
void sim_engine_take_time(void);
/* The present turn on its runlist ends and the round begins anew; not forced: unless it runs now. */
void sim_chan_restart_runlist(struct sim_chan *chan, bool force);
u32 sim_chan_unique(const struct sim_chan *chan);
/*
 * Interleave levels count for nothing while a client has switched them off. -EBUSY: another one has.
 * The client's end switches them on again.
 */
int sim_engine_interleave(struct sim_engine *engine, u32 client, bool on);
u32 sim_chan_token(const struct sim_chan *chan); /* runlist << 16 | chid; never 0 */
u32 sim_chan_chid(const struct sim_chan *chan);

/*
 * Doorbells. One with pages per CPU mapping of a usermode object (per open file): it must stay until
 * no mapping of its pages is left. sim_doorbell_page(): page i of 16; those behind the first are
 * shared and never read. One without pages for each other way to ring, which sim_doorbell_post()
 * does: it may be called from mem_ops, unknown tokens are ignored.
 */
struct sim_doorbell_owner {
	const char *way; /* static */
	u32 client, object;
	int pid;
};

#define SIM_DOORBELL_PAGES 16

struct sim_doorbell *sim_doorbell_create(struct sim_engine *engine,
					 const struct sim_doorbell_owner *owner, bool pages);
void sim_doorbell_destroy(struct sim_doorbell *doorbell);
struct page *sim_doorbell_page(const struct sim_doorbell *doorbell, unsigned int i);
bool sim_doorbell_has(struct sim_engine *engine, const struct page *page); /* a first page of one */
/* Its page came back by a fault: it is about to be rung, and an H100 knows of that within a microsecond. */
void sim_doorbell_expect(struct sim_doorbell *doorbell);
void sim_doorbell_post(struct sim_doorbell *doorbell, u32 token);
/*
 * One line per doorbell after a heading: way client object pid, kicks (as clients count them in
 * SIM_USERMODE_KICKS: exact), rings (tokens that the engine took: of several stores between two
 * looks it sees the last), last_ns (CLOCK_MONOTONIC of the look that took the last one; 0: none).
 */
int sim_engine_kick_show(struct seq_file *m, struct sim_engine *engine);

/*
 * One line per TSG after a heading: client handle engine slice_us level enabled gpu_time_us state,
 * then channels, kernels finished, faulted channels, channels that are disabled, preemptions asked
 * for, doorbells that named one of its channels, ns of the last of these, channels that hang. state:
 * running ready idle off.
 */
int sim_engine_tsg_show(struct seq_file *m, struct sim_engine *engine);

#endif
