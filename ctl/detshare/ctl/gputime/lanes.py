# SPDX-License-Identifier: Apache-2.0
"""The runs of a GPU sorted by program, with what they sum up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from detshare.ctl.core.gputime import Run
from detshare.ctl.gputime.meter import RESTORE_NS
from detshare.ctl.gputime.recording import GpuRecord

LONGEST_SWITCH_NS: Final = 200_000
"""a time between two runs that is not longer is the GPU's switch; 85 us were measured on H200"""


@dataclass(frozen=True, slots=True)
class Lane:
    """Runs on one GPU: of one program; `pid` None: of several, or the switches in which nobody has the GPU."""

    pid: int | None
    runs: tuple[Run, ...]
    share: float
    """0..1 of the time"""
    runs_s: float
    """a second"""
    run_us: float
    """median length"""

    @property
    def restores(self) -> tuple[Run, ...]:
        """The begin of each run, in which its context is restored and nothing of the program runs."""
        return tuple(Run(run.pid, run.start_ns, min(run.end_ns, run.start_ns + RESTORE_NS)) for run in self.runs)


def summed(pid: int | None, runs: Sequence[Run], gpu: GpuRecord) -> Lane:
    """The lane of these runs."""
    lengths = [run.end_ns - run.start_ns for run in runs]
    whole = max(gpu.end_ns - gpu.begin_ns, 1)
    length = median(lengths) / 1e3 if lengths else 0.0
    return Lane(pid, tuple(runs), sum(lengths) / whole, len(runs) / (whole / 1e9), length)


def lanes(gpu: GpuRecord) -> list[Lane]:
    """A lane for each program that had the GPU, in the order of their PIDs."""
    mine: dict[int, list[Run]] = {}
    for run in gpu.runs:
        mine.setdefault(run.pid, []).append(run)
    return [summed(pid, runs, gpu) for pid, runs in sorted(mine.items())]


def switches(gpu: GpuRecord) -> Lane:
    """The times between two runs that are so short that the GPU was switching, not idle."""
    gaps = ((one.end_ns, other.start_ns) for one, other in pairwise(gpu.runs))
    return summed(None, [Run(0, end, start) for end, start in gaps if 0 < start - end <= LONGEST_SWITCH_NS], gpu)
