# SPDX-License-Identifier: Apache-2.0
"""What is said of GPU time: plain read-only values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

SLOTS: Final = 50
"""length of a history"""
SLOT_S: Final = 0.1
"""seconds of one value of a history"""
ALONE_PER_S: Final = 1.0
ALONE_US: Final = 500_000.0
"""who comes to run less often than so many times a second, and for longer than so many microseconds, has a GPU alone"""


class Switch(NamedTuple):
    """A record of a GPU's context-switch log (FECS; cl90cdfecs.h)."""

    at_ns: int
    """the GPU's own clock, nanoseconds"""
    pid: int
    context: int
    starts: bool
    """the context begins to run; False: it ends"""


class Run(NamedTuple):
    """A time that one program had the GPU without interruption, on the GPU's clock in nanoseconds."""

    pid: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class GpuTime:
    """What a program had of one GPU over the last `seconds`."""

    gpu: str
    """GPU UUID"""
    seconds: float
    share: float
    """of that time, 0..1, in which it had the GPU"""
    useful: float
    """of that time, 0..1, in which it could work: each run less the restore of its context"""
    switches_s: float
    """runs a second"""
    run_us: float
    """median length of a run"""
    gap_us: float
    """median time between two runs; 0 where it had fewer than two"""
    history: tuple[float, ...]
    """share of each SLOT_S, oldest first, SLOTS values at most"""
    stalled_s: float = 0.0
    """seconds since it last could work although it has work; 0: it works, or has nothing to do"""

    @property
    def alone(self) -> bool:
        """Whether it has the GPU to itself: it is hardly ever interrupted, and keeps the GPU in the log while it rests.

        Who runs as seldom, but briefly, has windows beside others, and the log is right about it.
        """
        return self.switches_s < ALONE_PER_S and self.run_us >= ALONE_US

    def lately(self, seconds: float) -> float:
        """Its share, 0..1, of so many of the newest seconds, a SLOT_S at least."""
        slots = self.history[-max(1, round(seconds / SLOT_S)) :]
        return sum(slots) / len(slots) if slots else self.share


class Mode(StrEnum):
    """What the background of a GPU gets."""

    FREE = "free"
    """nothing is rotated: no background program, or one, and its rivals leave gaps"""
    TURNS = "turns"
    """one background tenant at a time, whenever the foreground leaves the GPU"""
    WINDOWS = "windows"
    """the foreground leaves no useful gaps: the background has its floor, in whole windows"""


class Pattern(StrEnum):
    """How the foreground comes."""

    NONE = "none"
    """it had nothing of the GPU lately"""
    BURSTS = "bursts"
    """milliseconds of work with gaps well above a switch: a short slice of the holder serves it"""
    STREAM = "stream"
    """many small kernels: a short slice would serve nobody"""
    FULL = "full"
    """its gaps are not longer than a few switches"""
    UNKNOWN = "unknown"
    """what rotates does not tell"""


class Standing(StrEnum):
    """How a background program stands in the rotation."""

    HOLDS = "holds"
    WAITS = "waits"
    RESTS = "rests"
    """it had no work when it was its turn"""
    WINDOW = "window"
    """it runs in a window of its floor"""


@dataclass(frozen=True, slots=True)
class Place:
    """A program's place in the rotation of a GPU (by UUID)."""

    gpu: str
    tenant: str
    standing: Standing
    next_s: float | None = None
    """seconds until its next turn begins; None: it has it, or nobody can say"""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rotation of one GPU."""

    gpu: str
    mode: Mode
    pattern: Pattern
    holder: str = ""
    """the tenant that has its turn"""
    next: str = ""
    """the tenant whose turn comes then"""
    left_s: float | None = None
    """seconds left of the turn"""
    slice_us: int = 0
    """slice of the holder's compute TSGs"""
    gap_us: float = 0.0
    """what the foreground leaves between two runs, median"""
    floor: float = 0.0
    """share of time that the background gets in windows"""
    why: str = ""
    """the measurement that decided the mode and the slice, in words"""
