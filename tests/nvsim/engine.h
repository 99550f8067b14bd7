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

#define SIM_SLICE_COMPUTE_US 2048
#define SIM_SLICE_COPY_US    1024

/* Functions that return a pointer return an ERR_PTR on failure. */
struct sim_engine *sim_engine_create(u32 gpu, u32 sms, const struct sim_mem_ops *ops);
void sim_engine_destroy(struct sim_engine *engine);

/*
 * engine_type: NV2080_ENGINE_TYPE_*; 0 is taken as GR0. As on an H100, GR0 and the first two copy
 * engines share runlist 0, any other engine has its own. client, handle: for the listing only.
 */
struct sim_tsg *sim_tsg_create(struct sim_engine *engine, u32 engine_type, u32 client, u32 handle);
void sim_tsg_destroy(struct sim_tsg *tsg);
u32 sim_tsg_id(const struct sim_tsg *tsg); /* NVA06C GET_INFO: the lowest free on its runlist */
u32 sim_tsg_runlist(const struct sim_tsg *tsg);

/* The controls take as long as on an H100 (module parameter engine_latency=0: no time). */
int sim_tsg_set_timeslice(struct sim_tsg *tsg, u64 us); /* any value; even 0 makes progress */
u64 sim_tsg_timeslice(const struct sim_tsg *tsg);
int sim_tsg_set_interleave(struct sim_tsg *tsg, u32 level); /* -EINVAL above HIGH */
u32 sim_tsg_interleave(const struct sim_tsg *tsg);
/* off its engine now; comes back at its turn */
int sim_tsg_preempt(struct sim_tsg *tsg, bool wait);
/* disable: no new kernel; a running one goes on */
int sim_tsg_schedule(struct sim_tsg *tsg, bool enable);
u64 sim_tsg_gpu_time_us(struct sim_tsg *tsg);

/*
 * entries: a power of two. userd_offset: within the page, SIM_USERD_SIZE bytes must fit. The
 * channel runs once its TSG was scheduled or sim_chan_schedule() was called. -ENOSPC: 4095 channels
 * on the runlist.
 */
struct sim_chan *sim_chan_create(struct sim_tsg *tsg, void *vas, u64 gpfifo_va, u32 entries,
				 struct page *userd_page, u32 userd_offset, u32 handle);
void sim_chan_destroy(struct sim_chan *chan);
int sim_chan_schedule(struct sim_chan *chan, bool enable);
/*
 * Nests; enabling once too often does no harm. only_scheduling: what runs goes on. rewind: entries
 * not begun are dropped. Takes no time itself: FIFO_DISABLE_CHANNELS calls it for each channel of
 * its list, then sim_engine_settle() once, which takes the time that the whole call takes.
 */
int sim_chan_disable(struct sim_chan *chan, bool disable, bool only_scheduling, bool rewind);
void sim_engine_settle(struct sim_engine *engine, bool disable);
u32 sim_chan_token(const struct sim_chan *chan); /* runlist << 16 | chid; never 0 */
u32 sim_chan_chid(const struct sim_chan *chan);

/*
 * Doorbell pages: one set per CPU mapping of a usermode object (per open file). The set must stay
 * until no mapping of its pages is left. sim_doorbell_page(): page i of 16; those behind the first
 * are shared and never read.
 */
struct sim_doorbell *sim_doorbell_create(struct sim_engine *engine);
void sim_doorbell_destroy(struct sim_doorbell *doorbell);
struct page *sim_doorbell_page(const struct sim_doorbell *doorbell, unsigned int i);
/* ring from the kernel; unknown tokens are ignored */
void sim_engine_doorbell(struct sim_engine *engine, u32 token);

/*
 * One line per TSG after a heading: client handle engine slice_us level enabled gpu_time_us state,
 * then channels, kernels finished, faulted channels, channels that are disabled, preemptions asked
 * for. state: running ready idle off.
 */
int sim_engine_tsg_show(struct seq_file *m, struct sim_engine *engine);

#endif
