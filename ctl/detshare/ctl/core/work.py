# SPDX-License-Identifier: Apache-2.0
"""How the work of a program goes, as its own runtime and the kernel module tell: parts of `snapshot.Program`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """How long launches took, from a log2 histogram of samples: upper ends of buckets, in microseconds."""

    count: int
    p50_us: float
    p90_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """How long kernels of one grid and block took on the GPU."""

    blocks: int
    threads: int
    """of a block"""
    times: Times


def times(histogram: Sequence[int]) -> Times | None:
    """Of a histogram whose bucket n counts 2^n to 2^(n+1)-1 nanoseconds; None where nothing was counted."""
    total = sum(histogram)
    if total <= 0:
        return None

    def at(part: float) -> float:
        seen = 0
        for bucket, count in enumerate(histogram):
            seen += count
            if seen >= part * total:
                return float(2 << bucket) / 1000
        raise AssertionError("the buckets sum to the total")

    return Times(total, at(0.5), at(0.9), at(0.99))


@dataclass(frozen=True, slots=True)
class Spatial:
    """A program of the spatial lane: what its board says, and what it says of itself."""

    sms: int
    """of the whole GPU"""
    idle: str
    """where it runs while no higher class is active, in words"""
    busy: str
    """where it runs while one is; "held": it waits at its next kernel boundary"""
    idle_sms: int
    percent: int | None
    """the share that was asked for; None: none was"""
    memory_limit: int | None
    """bytes; kept by its own runtime, not by the kernel"""
    held: bool
    """by hand"""
    waiting: bool
    """a higher class is active now, or it is held by hand"""
    epoch: int
    acknowledged: bool
    """nothing that it launched before the last change contradicts the change any more"""
    launches: int
    graph_launches: int
    remaps: int
    full_runs: int
    """launches that ran on all SMs though its share is smaller, for they cannot run on fewer"""
    in_flight: int
    held_ms: float
    """time that its launching threads waited"""
    pool_bytes: int
    """GPU memory of its green contexts"""
    idle_set: str = "full"
    """full, first:32 or rest:32: `idle` for machines"""
    exclusive: str = ""
    """the pCtx that it has to itself"""
    step: int = 0
    """what the GPU cuts its SMs by"""
    busy_sms: int | None = None
    """of `busy`, 0 where it is held"""
    kernels: Times | None = None
    """launch to finish of its kernels so far; None: none was timed yet"""
    graphs: Times | None = None
    """the same of its graphs"""
    delays: tuple[int, ...] = ()
    """launch to turn so far, until all that its stream had before was done: histogram as `times` takes it"""
    blocks: int = 0
    """grid of the kernel that was timed last; 0: not known"""
    shapes: tuple[ShapeTimes, ...] = ()
    """its kernels by grid and block, those that take most time first"""


@dataclass(frozen=True, slots=True)
class Parking:
    """Where the GPU memory of a program is that can leave it. Bytes over all its GPUs."""

    state: str
    """home, leaving, parked, coming, waiting: it wants to come back, and the GPU has no room, or returning: it runs,
    and its memory comes home meanwhile"""
    parkable_bytes: int
    """what can leave, parked or not"""
    parked_bytes: int
    """of that, what is in host memory now"""
    stays_bytes: int
    """what it allocated and cannot leave: small, pools, arrays, managed, shared with others"""
    arena_bytes: int
    """host memory that it has for it"""
    parks: int = 0
    wakes: int = 0
    """times that its own call brought it back"""
    park_ms: float = 0.0
    """the last time"""
    resume_ms: float = 0.0
    after: float | None = None
    """seconds without work after which it is parked; None: only by hand"""
    way: str = "fast"
    """fast: by its library, which brings it back by itself; driver: by the driver's checkpoint, until `resume`; deep:
    by its library, and what that leaves by the driver's checkpoint"""
    wants_bytes: int = 0
    """GPU memory that it waits for: of its allocation, or to come back"""
    idle_s: float = 0.0
    """since its last launch"""
    home_s: float = 0.0
    """since its memory came back; since it was first seen where it never left"""
    kept_bytes: int = 0
    """of arena_bytes, copies of what is on the GPU: the next park copies only what changed"""
    lent_bytes: int = 0
    """of arena_bytes, memory that the GPU maps, for lazy ways back: the driver's checkpoint loses it"""
    shares: bool = False
    """another process may have memory of it, or it has another's"""
    copied_bytes: int = 0
    """what the last park copied"""
    hash_ms: float = 0.0
    """of park_ms, finding what changed"""
    whole: str = ""
    """why the last park copied everything; empty: it did not have to"""


@dataclass(frozen=True, slots=True)
class Denial:
    """Calls of a program that the kernel module did not let through to the driver."""

    command: int
    name: str
    """of the control where it is known, else its number"""
    reason: str
    """order, foreign, raw, query or doorbell: see docs/how/kernel-module.md"""
    status: int
    """NV_STATUS that the program was given; 0: it was told that it was done, and nothing was"""
    count: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What the kernel module knows of a program's launches, over all its contexts and GPUs."""

    state: str
    """idle, active, gated (launches wait) or paused (off the run list)"""
    reasons: tuple[str, ...] = ()
    """what holds it: order, bucket, turn"""
    used_us: int = 0
    """estimated GPU time"""
    idle_ms: float = 0.0
    kicks: int = 0
    """bursts of launches that were seen"""
    faults: int = 0
    waits: int = 0
    wait_ms: float = 0.0
    waiting: int = 0
    """threads that wait at a shut door now"""
    doors: int = 0
    doors_unknown: int = 0
    channels_off: int = 0
    ceiling: int | None = None
    """percent of the TPCs; None: all"""
    denied: int = 0
    denials: tuple[Denial, ...] = ()
