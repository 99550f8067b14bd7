# SPDX-License-Identifier: Apache-2.0
"""Made from runtime/board.json by python -m detshare.tools.boardgen; do not edit.

Offsets count from the start of a structure. `count` is 0 for a single value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """Where one field lies."""

    offset: int
    type: str
    count: int


VERSION = 1  # of all pages and messages; another one is refused
PAGE_BYTES = 4096  # size of every board file
MAGIC_ACTIVITY = 0x41764c44  # 'DLvA'
MAGIC_POLICY = 0x50764c44  # 'DLvP'
MAGIC_COUNTERS = 0x43764c44  # 'DLvC'
MAGIC_ATTACH = 0x52764c44  # 'DLvR': a request to the daemon
MAGIC_ATTACHED = 0x59764c44  # 'DLvY': its answer
MAGIC_TAKEN = 0x54764c44  # 'DLvT': all of the library's second message, where its request went ahead
SLOTS = 24  # tenants per GPU; bits 24..31 of a word are a byte of their own, which only the daemon stores
HELD = 0x80000000  # bit of slot.word: held by hand; the daemon stores byte 3 (HELD_BYTE)
HELD_BYTE = 0x80  # what the daemon stores in byte 3 of slot.word to hold; 0 releases
SLOT_FREE = 0  # slot.state: nobody's
SLOT_LIVE = 1  # slot.state: a tenant's; higher classes may hold it
SLOT_LEAVING = 2  # slot.state: its process is ending and its gates stay open; the daemon frees it
BEAT_STALE_NS = 200000000  # an active slot whose beat is older counts as idle: its process is dead or stopped
CLASS_LOW = 1  # a tenant holds those of a smaller class
CLASS_NORMAL = 2
CLASS_HIGH = 3
MODE_TIER = 0  # policy.mode_busy: run on tier_busy while a higher class is active
MODE_HOLD = 1  # policy.mode_busy: stop at the next gate; what runs in the floor uses tier_busy
TIERS = 16  # tier 0 is the whole GPU, the program's own stream
TIER_FULL = 0  # tier.kind: the whole GPU; sms is 0
TIER_FIRST = 1  # tier.kind: the first `sms` SMs
TIER_REST = 2  # tier.kind: all but the first `sms` SMs
FULL_COOPERATIVE = 0  # counters.full_runs: cooperative grid larger than the tier
FULL_CLUSTER = 1  # cluster that the tier cannot hold
FULL_NAME = 2  # resident by its name
FULL_GRAPH = 3  # graph that cannot be re-targeted, or whose variant is not ready
FULL_POOL = 4  # the tier's green context does not exist yet
FULL_CAPTURE = 5  # launched into a capture
FULL_UNMANAGED = 6  # context that green contexts cannot serve
FULL_OTHER = 7  # its stream could not be moved: another thread stays inside a call on it
FULL_REASONS = 8
MAGIC_ARENA = 0x4d764c44  # 'DLvM': a request for host memory to park in
# bit of policy.park: the memory shall leave the GPU; without it, it shall come back. The rest counts requests
PARK_WANTED = 1
PARK_HOME = 0  # counters.park_state: the memory is on the GPU
PARK_LEAVING = 1  # no work begins, and what runs ends; then the memory is copied
PARK_AWAY = 2  # parked
PARK_COMING = 3  # the memory is copied back
PARK_WAITING = 4  # parked, and wanted back: the GPU has no room for it
PARK_OK = 0  # counters.park_reason: as it was asked for
PARK_OFF = 1  # the program was not started with --park
PARK_NOTHING = 2  # it has no memory that can leave
PARK_ARENA = 3  # the daemon gives no host memory, or the driver does not pin it; the library's log says why
PARK_BUSY = 4  # its work did not end in time
PARK_CAPTURE = 5  # one of its streams is being captured
PARK_CONTEXT = 6  # it has contexts beside the primary one, or green contexts of its own
PARK_DRIVER = 7  # the driver refused a copy; the library's log says which
PARK_ENDING = 8  # its context is ending
PARK_LENT = 5  # the program runs over host memory, and pieces come home one after the other
MAGIC_HOST = 0x48764c44  # 'DLvH': as MAGIC_ARENA, for host memory that the library gets by itself: no descriptor
FLAG_LAZY = 2  # bit of policy.flags: what parks from now on can come back lazily, and does
FLAG_WHOLE = 1  # bit of policy.flags: each park copies everything, and no copy is kept
# bit of policy.flags: it is a rank of a job; count its collectives, and stop them at policy.collectives_from
FLAG_JOB = 4
# bit of policy.flags: where host memory is lacking, what there is some for leaves, and the rest as there is more
FLAG_LEAVES = 8
# bit of policy.flags: its way back goes piece by piece, as the GPU has room, and each gives its host memory back
FLAG_COMES = 16
# 'DLvS': as MAGIC_ARENA, for as much as there is now, at most so much; the descriptor's size says how much
MAGIC_SOME = 0x53764c44
WHOLE_NOT = 0  # counters.whole: the last park copied what had changed
WHOLE_OFF = 1  # FLAG_WHOLE
WHOLE_KERNEL = 2  # the kernel that finds what changed cannot be had; the library's log says why
WHOLE_LAUNCH = 3  # it does not run; the library's log says why
WHOLE_WRONG = 4  # it computes another digest than the reference
SHAPES = 16  # kernels are told apart by grid and block; those that take most time
HIST_BUCKETS = 32  # bucket n counts times of 2^n to 2^(n+1)-1 ns
RCK_WORDS_BYTES = 4096  # device memory of the resident control kernel: word of slot n at n * RCK_STRIDE
RCK_STRIDE = 64
# a resident control kernel whose helper's beat is older is gone; the kernel itself ends after as long
RCK_STALE_NS = 500000000

# policy.plan: what a launch needs, in one load: (shift, bits)
PLAN_PARTS = {"tier_idle": (0, 8), "tier_busy": (8, 8), "mode_busy": (16, 8), "epoch": (32, 32)}

SLOT_SIZE = 64
SLOT_FIELDS = {
    "word": Field(0, "u32", 0),
    "state": Field(4, "u32", 0),
    "class": Field(8, "u32", 0),
    "pid": Field(12, "u32", 0),
    "active": Field(16, "u32", 0),
    "rck_generation": Field(20, "u32", 0),
    "starttime": Field(24, "u64", 0),
    "beat": Field(32, "u64", 0),
    "active_since": Field(40, "u64", 0),
}

ACTIVITY_SIZE = 4096
ACTIVITY_FIELDS = {
    "magic": Field(0, "u32", 0),
    "version": Field(4, "u32", 0),
    "gpu_uuid": Field(8, "u8", 16),
    "rck_generation": Field(24, "u32", 0),
    "rck_pid": Field(28, "u32", 0),
    "rck_beat": Field(32, "u64", 0),
    "rck_stop": Field(40, "u32", 0),
    "rck_pulse": Field(44, "u32", 0),
    "rck_loops": Field(48, "u32", 0),
    "rck_handle": Field(56, "u8", 64),
    "slots": Field(256, "SLOT", 24),
}

TIER_SIZE = 8
TIER_FIELDS = {
    "kind": Field(0, "u32", 0),
    "sms": Field(4, "u32", 0),
}

POLICY_SIZE = 4096
POLICY_FIELDS = {
    "magic": Field(0, "u32", 0),
    "version": Field(4, "u32", 0),
    "plan": Field(8, "u64", 0),
    "lease_ns": Field(16, "u64", 0),
    "epoch": Field(24, "u32", 0),
    "class": Field(28, "u32", 0),
    "linger_us": Field(32, "u32", 0),
    "gate_us": Field(36, "u32", 0),
    "depth": Field(40, "u32", 0),
    "floor_permille": Field(44, "u32", 0),
    "floor_period_us": Field(48, "u32", 0),
    "flags": Field(52, "u32", 0),
    "memory_limit": Field(56, "u64", 0),
    "ahead_us": Field(64, "u32", 0),
    "park": Field(68, "u32", 0),
    "stay_until": Field(72, "u64", 0),
    "room_ms": Field(80, "u32", 0),
    "returns": Field(84, "u32", 0),
    "deep": Field(88, "u32", 0),
    "collectives_from": Field(96, "u64", 0),
    "tiers": Field(120, "TIER", 16),
}

COUNTERS_SIZE = 4096
COUNTERS_FIELDS = {
    "magic": Field(0, "u32", 0),
    "version": Field(4, "u32", 0),
    "epoch_ack": Field(8, "u32", 0),
    "in_flight": Field(12, "u32", 0),
    "launches": Field(16, "u64", 0),
    "graph_launches": Field(24, "u64", 0),
    "remaps": Field(32, "u64", 0),
    "gates": Field(40, "u64", 0),
    "held_ns": Field(48, "u64", 0),
    "closed_ns": Field(56, "u64", 0),
    "floor_ns": Field(64, "u64", 0),
    "last_launch": Field(72, "u64", 0),
    "kernel_ns": Field(80, "u64", 0),
    "samples": Field(88, "u64", 0),
    "pool_bytes": Field(96, "u64", 0),
    "pool_create_ns": Field(104, "u64", 0),
    "memory_used": Field(112, "u64", 0),
    "unmanaged": Field(120, "u32", 0),
    "gate_source": Field(124, "u32", 0),
    "full_runs": Field(128, "u64", 8),
    "hist_kernel": Field(192, "u64", 32),
    "hist_graph": Field(448, "u64", 32),
    "active_ns": Field(704, "u64", 0),
    "timed_ns": Field(712, "u64", 0),
    "filled_ns": Field(720, "u64", 0),
    "hist_delay": Field(728, "u64", 32),
    "last_blocks": Field(984, "u32", 0),
    "shape_ns": Field(992, "u64", 16),
    "shape_blocks": Field(1120, "u32", 16),
    "shape_threads": Field(1184, "u32", 16),
    "shape_hist": Field(1248, "u32", 512),
    "park_ack": Field(3296, "u32", 0),
    "park_reason": Field(3300, "u32", 0),
    "park_state": Field(3304, "u32", 0),
    "parks": Field(3308, "u32", 0),
    "wakes": Field(3312, "u32", 0),
    "parkable_bytes": Field(3320, "u64", 0),
    "leaves_bytes": Field(3328, "u64", 0),
    "parked_bytes": Field(3336, "u64", 0),
    "arena_bytes": Field(3344, "u64", 0),
    "park_ns": Field(3352, "u64", 0),
    "resume_ns": Field(3360, "u64", 0),
    "room_bytes": Field(3368, "u64", 0),
    "kept_bytes": Field(3376, "u64", 0),
    "copied_bytes": Field(3384, "u64", 0),
    "hash_ns": Field(3392, "u64", 0),
    "whole": Field(3400, "u32", 0),
    "returned": Field(3404, "u32", 0),
    "deep": Field(3408, "u32", 0),
    "wants_back": Field(3412, "u32", 0),
    "collectives": Field(3416, "u64", 0),
    "collectives_held": Field(3424, "u64", 0),
    "lent_bytes": Field(3432, "u64", 0),
    "shares": Field(3440, "u32", 0),
}

ATTACH_SIZE = 128
ATTACH_FIELDS = {
    "magic": Field(0, "u32", 0),
    "version": Field(4, "u32", 0),
    "gpu_uuid": Field(8, "u8", 16),
    "pid": Field(24, "u32", 0),
    "sms": Field(28, "u32", 0),
    "sm_step": Field(32, "u32", 0),
    "ahead": Field(36, "u32", 0),
    "memory_total": Field(40, "u64", 0),
    "tenant": Field(48, "char", 64),
}

ARENA_SIZE = 32
ARENA_FIELDS = {
    "magic": Field(0, "u32", 0),
    "version": Field(4, "u32", 0),
    "gpu_uuid": Field(8, "u8", 16),
    "bytes": Field(24, "u64", 0),
}

ATTACHED_SIZE = 256
ATTACHED_FIELDS = {
    "magic": Field(0, "u32", 0),
    "version": Field(4, "u32", 0),
    "status": Field(8, "s32", 0),
    "slot": Field(12, "u32", 0),
    "message": Field(16, "char", 200),
}
