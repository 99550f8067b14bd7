/* SPDX-License-Identifier: Apache-2.0 */
/* Made from runtime/board.json by python -m detshare.tools.boardgen; do not edit. */
#ifndef DETSHARE_BOARD_H
#define DETSHARE_BOARD_H

#include <stddef.h>
#include <stdint.h>

/* of all pages and messages; another one is refused */
#define DS_VERSION 1
/* size of every board file */
#define DS_PAGE_BYTES 4096
/* 'DLvA' */
#define DS_MAGIC_ACTIVITY 0x41764c44
/* 'DLvP' */
#define DS_MAGIC_POLICY 0x50764c44
/* 'DLvC' */
#define DS_MAGIC_COUNTERS 0x43764c44
/* 'DLvR': a request to the daemon */
#define DS_MAGIC_ATTACH 0x52764c44
/* 'DLvY': its answer */
#define DS_MAGIC_ATTACHED 0x59764c44
/* 'DLvT': all of the library's second message, where its request went ahead */
#define DS_MAGIC_TAKEN 0x54764c44
/* tenants per GPU; bits 24..31 of a word are a byte of their own, which only the daemon stores */
#define DS_SLOTS 24
/* bit of slot.word: held by hand; the daemon stores byte 3 (HELD_BYTE) */
#define DS_HELD 0x80000000U
/* what the daemon stores in byte 3 of slot.word to hold; 0 releases */
#define DS_HELD_BYTE 0x80
/* slot.state: nobody's */
#define DS_SLOT_FREE 0
/* slot.state: a tenant's; higher classes may hold it */
#define DS_SLOT_LIVE 1
/* slot.state: its process is ending and its gates stay open; the daemon frees it */
#define DS_SLOT_LEAVING 2
/* an active slot whose beat is older counts as idle: its process is dead or stopped */
#define DS_BEAT_STALE_NS 200000000
/* a tenant holds those of a smaller class */
#define DS_CLASS_LOW 1
#define DS_CLASS_NORMAL 2
#define DS_CLASS_HIGH 3
/* policy.mode_busy: run on tier_busy while a higher class is active */
#define DS_MODE_TIER 0
/* policy.mode_busy: stop at the next gate; what runs in the floor uses tier_busy */
#define DS_MODE_HOLD 1
/* tier 0 is the whole GPU, the program's own stream */
#define DS_TIERS 16
/* tier.kind: the whole GPU; sms is 0 */
#define DS_TIER_FULL 0
/* tier.kind: the first `sms` SMs */
#define DS_TIER_FIRST 1
/* tier.kind: all but the first `sms` SMs */
#define DS_TIER_REST 2
/* counters.full_runs: cooperative grid larger than the tier */
#define DS_FULL_COOPERATIVE 0
/* cluster that the tier cannot hold */
#define DS_FULL_CLUSTER 1
/* resident by its name */
#define DS_FULL_NAME 2
/* graph that cannot be re-targeted, or whose variant is not ready */
#define DS_FULL_GRAPH 3
/* the tier's green context does not exist yet */
#define DS_FULL_POOL 4
/* launched into a capture */
#define DS_FULL_CAPTURE 5
/* context that green contexts cannot serve */
#define DS_FULL_UNMANAGED 6
/* its stream could not be moved: another thread stays inside a call on it */
#define DS_FULL_OTHER 7
#define DS_FULL_REASONS 8
/* 'DLvM': a request for host memory to park in */
#define DS_MAGIC_ARENA 0x4d764c44
/* bit of policy.park: the memory shall leave the GPU; without it, it shall come back. The rest counts requests */
#define DS_PARK_WANTED 1
/* counters.park_state: the memory is on the GPU */
#define DS_PARK_HOME 0
/* no work begins, and what runs ends; then the memory is copied */
#define DS_PARK_LEAVING 1
/* parked */
#define DS_PARK_AWAY 2
/* the memory is copied back */
#define DS_PARK_COMING 3
/* parked, and wanted back: the GPU has no room for it */
#define DS_PARK_WAITING 4
/* counters.park_reason: as it was asked for */
#define DS_PARK_OK 0
/* the program was not started with --park */
#define DS_PARK_OFF 1
/* it has no memory that can leave */
#define DS_PARK_NOTHING 2
/* the daemon gives no host memory, or the driver does not pin it; the library's log says why */
#define DS_PARK_ARENA 3
/* its work did not end in time */
#define DS_PARK_BUSY 4
/* one of its streams is being captured */
#define DS_PARK_CAPTURE 5
/* it has contexts beside the primary one, or green contexts of its own */
#define DS_PARK_CONTEXT 6
/* the driver refused a copy; the library's log says which */
#define DS_PARK_DRIVER 7
/* its context is ending */
#define DS_PARK_ENDING 8
/* the program runs over host memory, and pieces come home one after the other */
#define DS_PARK_LENT 5
/* 'DLvH': as MAGIC_ARENA, for host memory that the library gets by itself: no descriptor */
#define DS_MAGIC_HOST 0x48764c44
/* bit of policy.flags: what parks from now on can come back lazily, and does */
#define DS_FLAG_LAZY 2
/* bit of policy.flags: each park copies everything, and no copy is kept */
#define DS_FLAG_WHOLE 1
/* bit of policy.flags: it is a rank of a job; count its collectives, and stop them at policy.collectives_from */
#define DS_FLAG_JOB 4
/* bit of policy.flags: where host memory is lacking, what there is some for leaves, and the rest as there is more */
#define DS_FLAG_LEAVES 8
/* bit of policy.flags: its way back goes piece by piece, as the GPU has room, and each gives its host memory back */
#define DS_FLAG_COMES 16
/* 'DLvS': as MAGIC_ARENA, for as much as there is now, at most so much; the descriptor's size says how much */
#define DS_MAGIC_SOME 0x53764c44
/* counters.whole: the last park copied what had changed */
#define DS_WHOLE_NOT 0
/* FLAG_WHOLE */
#define DS_WHOLE_OFF 1
/* the kernel that finds what changed cannot be had; the library's log says why */
#define DS_WHOLE_KERNEL 2
/* it does not run; the library's log says why */
#define DS_WHOLE_LAUNCH 3
/* it computes another digest than the reference */
#define DS_WHOLE_WRONG 4
/* kernels are told apart by grid and block; those that take most time */
#define DS_SHAPES 16
/* bucket n counts times of 2^n to 2^(n+1)-1 ns */
#define DS_HIST_BUCKETS 32
/* device memory of the resident control kernel: word of slot n at n * RCK_STRIDE */
#define DS_RCK_WORDS_BYTES 4096
#define DS_RCK_STRIDE 64
/* a resident control kernel whose helper's beat is older is gone; the kernel itself ends after as long */
#define DS_RCK_STALE_NS 500000000

/* policy.plan: what a launch needs, in one load */
static inline uint8_t ds_plan_tier_idle(uint64_t word)
{
	return (uint8_t)(word >> 0);
}
static inline uint8_t ds_plan_tier_busy(uint64_t word)
{
	return (uint8_t)(word >> 8);
}
static inline uint8_t ds_plan_mode_busy(uint64_t word)
{
	return (uint8_t)(word >> 16);
}
static inline uint32_t ds_plan_epoch(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

/* One tenant on one GPU. `word` is what its streams wait on: 0 is open. */
struct ds_slot {
	uint32_t word; /* bit n: slot n, of a higher class, is active; HELD. Changed by atomic operations of tenants; the daemon stores byte 3 only */
	uint32_t state; /* SLOT_*; the daemon's, but for LEAVING */
	uint32_t class_; /* CLASS_*; the daemon's */
	uint32_t pid; /* the daemon's, as in its pid namespace */
	uint32_t active; /* 1 while the tenant has work; the tenant's */
	uint32_t rck_generation; /* activity.rck_generation whose words this tenant's gates use, 0 = the host's word; the tenant's */
	uint64_t starttime; /* field 22 of /proc/PID/stat; the daemon's */
	uint64_t beat; /* CLOCK_MONOTONIC ns, renewed by the tenant while active */
	uint64_t active_since; /* CLOCK_MONOTONIC ns; the tenant's */
	uint8_t _rest[16];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct ds_slot) == 64, "ds_slot");
_Static_assert(offsetof(struct ds_slot, word) == 0, "ds_slot.word");
_Static_assert(offsetof(struct ds_slot, state) == 4, "ds_slot.state");
_Static_assert(offsetof(struct ds_slot, class_) == 8, "ds_slot.class");
_Static_assert(offsetof(struct ds_slot, pid) == 12, "ds_slot.pid");
_Static_assert(offsetof(struct ds_slot, active) == 16, "ds_slot.active");
_Static_assert(offsetof(struct ds_slot, rck_generation) == 20, "ds_slot.rck_generation");
_Static_assert(offsetof(struct ds_slot, starttime) == 24, "ds_slot.starttime");
_Static_assert(offsetof(struct ds_slot, beat) == 32, "ds_slot.beat");
_Static_assert(offsetof(struct ds_slot, active_since) == 40, "ds_slot.active_since");

/* <gpu-uuid>.activity: shared by all tenants of a GPU, read-write. */
struct ds_activity {
	uint32_t magic; /* MAGIC_ACTIVITY */
	uint32_t version; /* VERSION */
	uint8_t gpu_uuid[16]; /* as cuDeviceGetUuid gives it */
	uint32_t rck_generation; /* 0: no resident control kernel; else counts its starts. Stored last at a start, first at an end */
	uint32_t rck_pid; /* of its helper process */
	uint64_t rck_beat; /* CLOCK_MONOTONIC ns, renewed by the helper */
	uint32_t rck_stop; /* 1 ends the kernel */
	uint32_t rck_pulse; /* counts up while the helper lives; the kernel reads it */
	uint32_t rck_loops; /* the kernel's rounds, written by it */
	uint32_t _reserved0;
	uint8_t rck_handle[64]; /* CUipcMemHandle of its RCK_WORDS_BYTES */
	uint8_t _reserved1[136];
	struct ds_slot slots[24];
	uint8_t _rest[2304];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct ds_activity) == 4096, "ds_activity");
_Static_assert(offsetof(struct ds_activity, magic) == 0, "ds_activity.magic");
_Static_assert(offsetof(struct ds_activity, version) == 4, "ds_activity.version");
_Static_assert(offsetof(struct ds_activity, gpu_uuid) == 8, "ds_activity.gpu_uuid");
_Static_assert(offsetof(struct ds_activity, rck_generation) == 24, "ds_activity.rck_generation");
_Static_assert(offsetof(struct ds_activity, rck_pid) == 28, "ds_activity.rck_pid");
_Static_assert(offsetof(struct ds_activity, rck_beat) == 32, "ds_activity.rck_beat");
_Static_assert(offsetof(struct ds_activity, rck_stop) == 40, "ds_activity.rck_stop");
_Static_assert(offsetof(struct ds_activity, rck_pulse) == 44, "ds_activity.rck_pulse");
_Static_assert(offsetof(struct ds_activity, rck_loops) == 48, "ds_activity.rck_loops");
_Static_assert(offsetof(struct ds_activity, _reserved0) == 52, "ds_activity._reserved0");
_Static_assert(offsetof(struct ds_activity, rck_handle) == 56, "ds_activity.rck_handle");
_Static_assert(offsetof(struct ds_activity, _reserved1) == 120, "ds_activity._reserved1");
_Static_assert(offsetof(struct ds_activity, slots) == 256, "ds_activity.slots");

/* One SM set. An entry that plan names now, or named before the last acknowledged epoch, is never rewritten: take another. */
struct ds_tier {
	uint32_t kind; /* TIER_* */
	uint32_t sms; /* of FIRST: the set's size; of REST: what is left out */
} __attribute__((aligned(4)));
_Static_assert(sizeof(struct ds_tier) == 8, "ds_tier");
_Static_assert(offsetof(struct ds_tier, kind) == 0, "ds_tier.kind");
_Static_assert(offsetof(struct ds_tier, sms) == 4, "ds_tier.sms");

/* <vctx-id>.policy: the daemon writes, the tenant's descriptor is read-only. A seqlock: epoch is odd while fields change. */
struct ds_policy {
	uint32_t magic; /* MAGIC_POLICY */
	uint32_t version; /* VERSION */
	uint64_t plan; /* packed `plan`; stored whole, after the tiers it names */
	uint64_t lease_ns; /* CLOCK_MONOTONIC ns, renewed by the daemon outside the seqlock: past it HELD is void and the tenant clears it */
	uint32_t epoch; /* even: stable; a change adds 2 */
	uint32_t class_; /* CLASS_* */
	uint32_t linger_us; /* how long the tenant counts as active after its work ended */
	uint32_t gate_us; /* estimated work between two gates of a stream; 0: no gates */
	uint32_t depth; /* launches let in while held; then the launching thread waits. 0: no bound */
	uint32_t floor_permille; /* of each floor_period_us that the tenant is not held, at least */
	uint32_t floor_period_us; /* 0: no floor */
	uint32_t flags; /* FLAG_* */
	uint64_t memory_limit; /* bytes on this GPU; 0: none */
	uint32_t ahead_us; /* estimated work that may be launched and not finished, beyond two kernels, on each stream; 0: no bound */
	uint32_t park; /* the latest request about its memory: PARK_WANTED and a number */
	uint64_t stay_until; /* CLOCK_MONOTONIC ns: until then its own calls do not bring parked memory back, for somebody else has the room */
	uint32_t room_ms; /* how long an allocation that finds no room waits for some; 0: not at all, 2^32-1: until there is */
	uint32_t returns; /* counts requests to give back host memory that no parked memory lies in: its copies are lost */
	uint32_t deep; /* not 0: the driver's own checkpoint is about to take what a park left, so nobody calls the driver; counts requests. Only while lease_ns lasts */
	uint32_t _reserved1;
	uint64_t collectives_from; /* the launches of this number and above wait before they begin, while lease_ns lasts; 0: none. Outside the seqlock */
	uint8_t _reserved0[16];
	struct ds_tier tiers[16];
	uint8_t _rest[3848];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct ds_policy) == 4096, "ds_policy");
_Static_assert(offsetof(struct ds_policy, magic) == 0, "ds_policy.magic");
_Static_assert(offsetof(struct ds_policy, version) == 4, "ds_policy.version");
_Static_assert(offsetof(struct ds_policy, plan) == 8, "ds_policy.plan");
_Static_assert(offsetof(struct ds_policy, lease_ns) == 16, "ds_policy.lease_ns");
_Static_assert(offsetof(struct ds_policy, epoch) == 24, "ds_policy.epoch");
_Static_assert(offsetof(struct ds_policy, class_) == 28, "ds_policy.class");
_Static_assert(offsetof(struct ds_policy, linger_us) == 32, "ds_policy.linger_us");
_Static_assert(offsetof(struct ds_policy, gate_us) == 36, "ds_policy.gate_us");
_Static_assert(offsetof(struct ds_policy, depth) == 40, "ds_policy.depth");
_Static_assert(offsetof(struct ds_policy, floor_permille) == 44, "ds_policy.floor_permille");
_Static_assert(offsetof(struct ds_policy, floor_period_us) == 48, "ds_policy.floor_period_us");
_Static_assert(offsetof(struct ds_policy, flags) == 52, "ds_policy.flags");
_Static_assert(offsetof(struct ds_policy, memory_limit) == 56, "ds_policy.memory_limit");
_Static_assert(offsetof(struct ds_policy, ahead_us) == 64, "ds_policy.ahead_us");
_Static_assert(offsetof(struct ds_policy, park) == 68, "ds_policy.park");
_Static_assert(offsetof(struct ds_policy, stay_until) == 72, "ds_policy.stay_until");
_Static_assert(offsetof(struct ds_policy, room_ms) == 80, "ds_policy.room_ms");
_Static_assert(offsetof(struct ds_policy, returns) == 84, "ds_policy.returns");
_Static_assert(offsetof(struct ds_policy, deep) == 88, "ds_policy.deep");
_Static_assert(offsetof(struct ds_policy, _reserved1) == 92, "ds_policy._reserved1");
_Static_assert(offsetof(struct ds_policy, collectives_from) == 96, "ds_policy.collectives_from");
_Static_assert(offsetof(struct ds_policy, _reserved0) == 104, "ds_policy._reserved0");
_Static_assert(offsetof(struct ds_policy, tiers) == 120, "ds_policy.tiers");

/* <vctx-id>.counters: the tenant writes; every field is one aligned store. */
struct ds_counters {
	uint32_t magic; /* MAGIC_COUNTERS */
	uint32_t version; /* VERSION */
	uint32_t epoch_ack; /* the policy epoch that no running or queued work contradicts any more */
	uint32_t in_flight; /* launches since the device was last seen idle; 0 when idle */
	uint64_t launches; /* kernels */
	uint64_t graph_launches;
	uint64_t remaps; /* streams moved to another tier */
	uint64_t gates; /* stream waits inserted */
	uint64_t held_ns; /* time that launching threads waited */
	uint64_t closed_ns; /* time that the word was not 0 while there was work */
	uint64_t floor_ns; /* of floor windows given */
	uint64_t last_launch; /* CLOCK_MONOTONIC ns, to within a tick (200 us) */
	uint64_t kernel_ns; /* estimated GPU time of all launches */
	uint64_t samples; /* launches timed by events */
	uint64_t pool_bytes; /* device memory of green contexts */
	uint64_t pool_create_ns;
	uint64_t memory_used; /* bytes that count for memory_limit */
	uint32_t unmanaged; /* contexts that green contexts cannot serve */
	uint32_t gate_source; /* 0: no gates yet; 1: the host's word; 2: the resident control kernel's */
	uint64_t full_runs[8]; /* launches that ran on tier 0 though the plan said another, by FULL_* */
	uint64_t hist_kernel[32]; /* launch to finish of sampled kernels */
	uint64_t hist_graph[32]; /* the same of graphs */
	uint64_t active_ns; /* time as slot.active until it was last 0; where it is 1 now, active_since begins the rest */
	uint64_t timed_ns; /* GPU time of sampled kernels, without graphs */
	uint64_t filled_ns; /* the same, each kernel's times the share of the GPU's SMs that its blocks can reach at most */
	uint64_t hist_delay[32]; /* launch to turn of sampled launches: until all that their stream had before was done, gates too. Waiting for SMs is not in it. It and all below is 0 where an older library writes */
	uint32_t last_blocks; /* grid of the kernel that was sampled last, 0: none yet; 2^32-1: that or more */
	uint32_t _reserved0;
	uint64_t shape_ns[16]; /* of each shape (grid and block): GPU time of its samples, and of those whose entry it took */
	uint32_t shape_blocks[16]; /* 0: a free entry, or one that is changing hands; else as last_blocks */
	uint32_t shape_threads[16]; /* of a block */
	uint32_t shape_hist[512]; /* SHAPES x HIST_BUCKETS: time on the GPU of its samples */
	uint32_t park_ack; /* policy.park that was done or refused last */
	uint32_t park_reason; /* PARK_*: how that ended */
	uint32_t park_state; /* PARK_*: where the memory is */
	uint32_t parks; /* times that memory left */
	uint32_t wakes; /* times that the program's own call fetched it back */
	uint32_t _reserved1;
	uint64_t parkable_bytes; /* device memory that can leave, parked or not */
	uint64_t leaves_bytes; /* of memory_used, what that is; the rest stays */
	uint64_t parked_bytes; /* of it, what is in host memory now */
	uint64_t arena_bytes; /* host memory that the daemon gave for it */
	uint64_t park_ns; /* the last park, from no new work to no memory */
	uint64_t resume_ns; /* the last way back */
	uint64_t room_bytes; /* of allocations that found no room and wait for some */
	uint64_t kept_bytes; /* of arena_bytes, copies that the next park need not make again where nothing changed */
	uint64_t copied_bytes; /* what the last park copied */
	uint64_t hash_ns; /* of park_ns, finding what changed */
	uint32_t whole; /* WHOLE_*: why the last park copied everything */
	uint32_t returned; /* policy.returns that was done last */
	uint32_t deep; /* policy.deep from which on no thread is in the driver, and calls of it wait; 0: they do not */
	uint32_t wants_back; /* 1: such a call waits */
	uint64_t collectives; /* with FLAG_JOB: launches of kernels that meet their peers on other GPUs, and of graphs, numbered from 1; those that wait too */
	uint64_t collectives_held; /* of them, what waits now at policy.collectives_from */
	uint64_t lent_bytes; /* of arena_bytes, HOST_NUMA memory, which the driver's checkpoint loses */
	uint32_t shares; /* 1: another process may have memory of it, or it has another's; the driver's checkpoint may make two of it */
	uint32_t _reserved2;
	uint8_t _rest[648];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct ds_counters) == 4096, "ds_counters");
_Static_assert(offsetof(struct ds_counters, magic) == 0, "ds_counters.magic");
_Static_assert(offsetof(struct ds_counters, version) == 4, "ds_counters.version");
_Static_assert(offsetof(struct ds_counters, epoch_ack) == 8, "ds_counters.epoch_ack");
_Static_assert(offsetof(struct ds_counters, in_flight) == 12, "ds_counters.in_flight");
_Static_assert(offsetof(struct ds_counters, launches) == 16, "ds_counters.launches");
_Static_assert(offsetof(struct ds_counters, graph_launches) == 24, "ds_counters.graph_launches");
_Static_assert(offsetof(struct ds_counters, remaps) == 32, "ds_counters.remaps");
_Static_assert(offsetof(struct ds_counters, gates) == 40, "ds_counters.gates");
_Static_assert(offsetof(struct ds_counters, held_ns) == 48, "ds_counters.held_ns");
_Static_assert(offsetof(struct ds_counters, closed_ns) == 56, "ds_counters.closed_ns");
_Static_assert(offsetof(struct ds_counters, floor_ns) == 64, "ds_counters.floor_ns");
_Static_assert(offsetof(struct ds_counters, last_launch) == 72, "ds_counters.last_launch");
_Static_assert(offsetof(struct ds_counters, kernel_ns) == 80, "ds_counters.kernel_ns");
_Static_assert(offsetof(struct ds_counters, samples) == 88, "ds_counters.samples");
_Static_assert(offsetof(struct ds_counters, pool_bytes) == 96, "ds_counters.pool_bytes");
_Static_assert(offsetof(struct ds_counters, pool_create_ns) == 104, "ds_counters.pool_create_ns");
_Static_assert(offsetof(struct ds_counters, memory_used) == 112, "ds_counters.memory_used");
_Static_assert(offsetof(struct ds_counters, unmanaged) == 120, "ds_counters.unmanaged");
_Static_assert(offsetof(struct ds_counters, gate_source) == 124, "ds_counters.gate_source");
_Static_assert(offsetof(struct ds_counters, full_runs) == 128, "ds_counters.full_runs");
_Static_assert(offsetof(struct ds_counters, hist_kernel) == 192, "ds_counters.hist_kernel");
_Static_assert(offsetof(struct ds_counters, hist_graph) == 448, "ds_counters.hist_graph");
_Static_assert(offsetof(struct ds_counters, active_ns) == 704, "ds_counters.active_ns");
_Static_assert(offsetof(struct ds_counters, timed_ns) == 712, "ds_counters.timed_ns");
_Static_assert(offsetof(struct ds_counters, filled_ns) == 720, "ds_counters.filled_ns");
_Static_assert(offsetof(struct ds_counters, hist_delay) == 728, "ds_counters.hist_delay");
_Static_assert(offsetof(struct ds_counters, last_blocks) == 984, "ds_counters.last_blocks");
_Static_assert(offsetof(struct ds_counters, _reserved0) == 988, "ds_counters._reserved0");
_Static_assert(offsetof(struct ds_counters, shape_ns) == 992, "ds_counters.shape_ns");
_Static_assert(offsetof(struct ds_counters, shape_blocks) == 1120, "ds_counters.shape_blocks");
_Static_assert(offsetof(struct ds_counters, shape_threads) == 1184, "ds_counters.shape_threads");
_Static_assert(offsetof(struct ds_counters, shape_hist) == 1248, "ds_counters.shape_hist");
_Static_assert(offsetof(struct ds_counters, park_ack) == 3296, "ds_counters.park_ack");
_Static_assert(offsetof(struct ds_counters, park_reason) == 3300, "ds_counters.park_reason");
_Static_assert(offsetof(struct ds_counters, park_state) == 3304, "ds_counters.park_state");
_Static_assert(offsetof(struct ds_counters, parks) == 3308, "ds_counters.parks");
_Static_assert(offsetof(struct ds_counters, wakes) == 3312, "ds_counters.wakes");
_Static_assert(offsetof(struct ds_counters, _reserved1) == 3316, "ds_counters._reserved1");
_Static_assert(offsetof(struct ds_counters, parkable_bytes) == 3320, "ds_counters.parkable_bytes");
_Static_assert(offsetof(struct ds_counters, leaves_bytes) == 3328, "ds_counters.leaves_bytes");
_Static_assert(offsetof(struct ds_counters, parked_bytes) == 3336, "ds_counters.parked_bytes");
_Static_assert(offsetof(struct ds_counters, arena_bytes) == 3344, "ds_counters.arena_bytes");
_Static_assert(offsetof(struct ds_counters, park_ns) == 3352, "ds_counters.park_ns");
_Static_assert(offsetof(struct ds_counters, resume_ns) == 3360, "ds_counters.resume_ns");
_Static_assert(offsetof(struct ds_counters, room_bytes) == 3368, "ds_counters.room_bytes");
_Static_assert(offsetof(struct ds_counters, kept_bytes) == 3376, "ds_counters.kept_bytes");
_Static_assert(offsetof(struct ds_counters, copied_bytes) == 3384, "ds_counters.copied_bytes");
_Static_assert(offsetof(struct ds_counters, hash_ns) == 3392, "ds_counters.hash_ns");
_Static_assert(offsetof(struct ds_counters, whole) == 3400, "ds_counters.whole");
_Static_assert(offsetof(struct ds_counters, returned) == 3404, "ds_counters.returned");
_Static_assert(offsetof(struct ds_counters, deep) == 3408, "ds_counters.deep");
_Static_assert(offsetof(struct ds_counters, wants_back) == 3412, "ds_counters.wants_back");
_Static_assert(offsetof(struct ds_counters, collectives) == 3416, "ds_counters.collectives");
_Static_assert(offsetof(struct ds_counters, collectives_held) == 3424, "ds_counters.collectives_held");
_Static_assert(offsetof(struct ds_counters, lent_bytes) == 3432, "ds_counters.lent_bytes");
_Static_assert(offsetof(struct ds_counters, shares) == 3440, "ds_counters.shares");
_Static_assert(offsetof(struct ds_counters, _reserved2) == 3444, "ds_counters._reserved2");

/* Library to daemon: the first message on a SOCK_SEQPACKET connection. */
struct ds_attach {
	uint32_t magic; /* MAGIC_ATTACH */
	uint32_t version; /* VERSION */
	uint8_t gpu_uuid[16];
	uint32_t pid; /* as the tenant sees it, for messages; SO_PEERCRED decides */
	uint32_t sms; /* of the whole GPU */
	uint32_t sm_step; /* granularity of green contexts; 0: none can be made */
	uint32_t ahead; /* 1: there is no context yet; what is given is free again unless MAGIC_TAKEN follows on this connection */
	uint64_t memory_total; /* bytes */
	char tenant[64]; /* $DETSHARE_TENANT or empty; NUL-terminated */
	uint8_t _rest[16];
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct ds_attach) == 128, "ds_attach");
_Static_assert(offsetof(struct ds_attach, magic) == 0, "ds_attach.magic");
_Static_assert(offsetof(struct ds_attach, version) == 4, "ds_attach.version");
_Static_assert(offsetof(struct ds_attach, gpu_uuid) == 8, "ds_attach.gpu_uuid");
_Static_assert(offsetof(struct ds_attach, pid) == 24, "ds_attach.pid");
_Static_assert(offsetof(struct ds_attach, sms) == 28, "ds_attach.sms");
_Static_assert(offsetof(struct ds_attach, sm_step) == 32, "ds_attach.sm_step");
_Static_assert(offsetof(struct ds_attach, ahead) == 36, "ds_attach.ahead");
_Static_assert(offsetof(struct ds_attach, memory_total) == 40, "ds_attach.memory_total");
_Static_assert(offsetof(struct ds_attach, tenant) == 48, "ds_attach.tenant");

/* Library to daemon: host memory of that size, besides counters.arena_bytes. Answered by `attached` and one descriptor of sealed memory. */
struct ds_arena {
	uint32_t magic; /* MAGIC_ARENA */
	uint32_t version; /* VERSION */
	uint8_t gpu_uuid[16];
	uint64_t bytes;
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct ds_arena) == 32, "ds_arena");
_Static_assert(offsetof(struct ds_arena, magic) == 0, "ds_arena.magic");
_Static_assert(offsetof(struct ds_arena, version) == 4, "ds_arena.version");
_Static_assert(offsetof(struct ds_arena, gpu_uuid) == 8, "ds_arena.gpu_uuid");
_Static_assert(offsetof(struct ds_arena, bytes) == 24, "ds_arena.bytes");

/* Daemon to library. With status 0 three descriptors come by SCM_RIGHTS: policy (read-only), counters, activity. */
struct ds_attached {
	uint32_t magic; /* MAGIC_ATTACHED */
	uint32_t version; /* VERSION */
	int32_t status; /* 0, or an errno: the program runs without us */
	uint32_t slot;
	char message[200]; /* why not, or empty; NUL-terminated */
	uint8_t _rest[40];
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct ds_attached) == 256, "ds_attached");
_Static_assert(offsetof(struct ds_attached, magic) == 0, "ds_attached.magic");
_Static_assert(offsetof(struct ds_attached, version) == 4, "ds_attached.version");
_Static_assert(offsetof(struct ds_attached, status) == 8, "ds_attached.status");
_Static_assert(offsetof(struct ds_attached, slot) == 12, "ds_attached.slot");
_Static_assert(offsetof(struct ds_attached, message) == 16, "ds_attached.message");

#endif
