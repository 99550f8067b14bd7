# SPDX-License-Identifier: Apache-2.0
"""Tenants, and the work that they bring: runs of equal kernels, from sources. All times in microseconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from detshare.ctl.sim.history import History

__all__ = ["RANKS", "Open", "Periodic", "Run", "Saturate", "Source", "Tenant", "lognormal_sigma"]

RANKS: Final = {"idle": -1, "low": 0, "normal": 1, "": 1, "high": 2}
"""of the classes; "" is a tenant that nobody gave one"""
NEVER: Final = math.inf
HOST_US: Final = 5.0
"""between the end of a request and the launch of the next: time enough for the GPU to take another context"""
Z99: Final = 2.3263478740408408
"""the 99th percentile of the standard normal distribution"""


@dataclass(slots=True)
class Run:
    """``kernels`` kernels of ``us`` each, back to back. ``us``: alone, on all SMs. Latency counts from ``asked``."""

    asked: float
    kernels: int
    us: float
    kind: str = "kernels"
    width: float | None = None
    """SMs above which it gets no faster; None: as its tenant"""
    done: float = 0.0
    """progress, in microseconds of its time alone"""
    blocks: int = 0
    """of the grids of its kernels; 0: not known"""
    graph: bool = False
    """launched as one graph"""
    began: float = -1.0
    """when its first kernel ran; below 0: not yet"""

    @property
    def work(self) -> float:
        """Its time alone."""
        return self.kernels * self.us

    @property
    def phase(self) -> float:
        """Progress of the kernel that runs; 0 at a boundary."""
        index = math.floor(self.done / self.us + 1e-9)
        return max(0.0, self.done - index * self.us)


class Source(Protocol):
    """Where a tenant's work comes from."""

    def poll(self, now: float) -> Run | float:
        """A run that is launched now, or else the time to ask again (infinite: after the next `finished`)."""

    def finished(self, run: Run, now: float) -> None:
        """A run of this source ended."""


def lognormal_sigma(p50: float, p99: float) -> float:
    """Sigma of the lognormal distribution with these percentiles; 0 where p99 is not above p50."""
    return math.log(p99 / p50) / Z99 if p99 > p50 > 0 else 0.0


class Periodic:
    """A request every period, the next one at once where one took longer. ``sigma``: lognormal spread of its work."""

    def __init__(
        self, us: float, period: float, *, kernels: int = 1, sigma: float = 0.0, seed: int = 0, start: float = 0.0
    ) -> None:
        self.us, self.period, self.kernels, self.sigma = us, period, kernels, sigma
        self._random = np.random.default_rng(seed)
        self._next = start
        self._flight = False
        self.latencies: list[float] = []

    def poll(self, now: float) -> Run | float:
        """One request at a time."""
        if self._flight:
            return NEVER
        if now < self._next:
            return self._next
        self._flight = True
        factor = math.exp(self.sigma * self._random.standard_normal()) if self.sigma else 1.0
        return Run(now, self.kernels, self.us * factor / self.kernels)

    def finished(self, run: Run, now: float) -> None:
        """Its latency is kept; the next one is due a period after this one was, or as soon as the host can."""
        self._flight = False
        self._next = max(self._next + self.period, now + HOST_US)
        self.latencies.append(now - run.asked)


class Saturate:
    """Kernels back to back without end: the engine takes them in runs of ``chunk``."""

    def __init__(self, us: float, chunk: int = 1_000_000) -> None:
        self.us, self.chunk = us, chunk
        self._flight = False

    def poll(self, now: float) -> Run | float:
        """Always one run."""
        if self._flight:
            return NEVER
        self._flight = True
        return Run(now, self.chunk, self.us)

    def finished(self, run: Run, now: float) -> None:
        """Another run follows at once."""
        self._flight = False


class Open:
    """Requests at given times, whatever became of the earlier ones."""

    def __init__(self, times: Sequence[float] | Any, us: float | Sequence[float] | Any, kernels: int = 1) -> None:
        self._times = np.asarray(times, dtype=float)
        if self._times.size and (np.diff(self._times) < 0).any():
            raise ValueError("arrival times must not go back")
        self._us = np.broadcast_to(np.asarray(us, dtype=float), self._times.shape)
        self._kernels = kernels
        self._index = 0
        self.latencies: list[float] = []

    def poll(self, now: float) -> Run | float:
        """Each request at its time."""
        if self._index >= len(self._times):
            return NEVER
        due = float(self._times[self._index])
        if due > now:
            return due
        run = Run(due, self._kernels, float(self._us[self._index]) / self._kernels)
        self._index += 1
        return run

    def finished(self, run: Run, now: float) -> None:
        """Its latency is kept."""
        self.latencies.append(now - run.asked)


@dataclass
class Tenant:
    """Who works on a GPU, and how it may."""

    name: str
    source: Source
    klass: str = "normal"
    sms: int = 0
    """quota of SMs; 0: all of the GPU"""
    slice_us: float = 2048.0
    level: int = 1
    reflex: int | None = None
    """quota while a tenant of a higher class is active; 0: held at the next kernel boundary"""
    gate_open: bool = True
    width: float = 0.0
    """SMs above which its kernels get no faster; 0: all of the GPU"""
    curve: Sequence[tuple[float, float]] = ()
    """measured (SMs, speed of 1 on all) instead of ``width``, by SMs"""
    blocks: int = 0
    """MPS: blocks of one kernel on each SM, up to the GPU's slots; 0: unknown, then only measured slowdowns count"""
    slowed: Mapping[str, float] = field(default_factory=dict)
    """by tenant: how many times longer kernels take while that one's kernels run too; measured"""
    congestion_us: float = 0.0
    """the age of a run from which the policy is told; 0: never"""
    deadline_us: float | None = None
    """of a run, as the policy sees it; None: it has no goal"""
    weight: float | None = None
    """as the policy sees it"""
    group: str = ""
    """named tenant or container, as the policy sees it"""
    memory_gib: float = 0.0
    """on the GPU while it runs; 0: it takes none"""
    partner: str = ""
    """a tenant whose source is asked again when a run of this one ends"""

    # what the engine keeps
    queue: deque[Run] = field(default_factory=deque, init=False)
    wake: float = field(default=0.0, init=False)
    launches: int = field(default=0, init=False)
    """kernels finished"""
    worked: float = field(default=0.0, init=False)
    """work done, in microseconds alone"""
    sm_us: float = field(default=0.0, init=False)
    peak_sms: float = field(default=0.0, init=False)
    over_quota: float = field(default=0.0, init=False)
    """SMs used beyond the quota, at most; anything above 0 is a fault of the model"""
    tier: float = field(default=0.0, init=False)
    """spatial lane: the quota that the kernel in flight was launched with"""
    congested: Run | None = field(default=None, init=False)
    held: bool = field(default=False, init=False)
    """by the rows of the classes"""
    residence: str = field(default="home", init=False)
    """of its memory: home, leaving, parked or coming"""
    moved_at: float = field(default=0.0, init=False)
    """when its copy ends"""
    home_at: float = field(default=0.0, init=False)
    """since then its memory is on the GPU"""
    parked: bool = field(default=False, init=False)
    """it was, so there is something to be copied"""
    worked_at: float = field(default=0.0, init=False)
    """when it was seen at work last"""
    pctx: str = field(default="", init=False)
    graphs: int = field(default=0, init=False)
    """launched so far"""
    history: History = field(default_factory=History, init=False)

    @property
    def rank(self) -> int:
        """Of its class; higher goes first."""
        return RANKS[self.klass]

    @property
    def active(self) -> bool:
        """Has unfinished work."""
        return bool(self.queue)

    @property
    def may_run(self) -> bool:
        """Neither a shut gate nor a row holds it, and its memory is there."""
        return self.gate_open and not self.held and self.residence == "home"

    def progress(self, now: float, passed: float, rate: float, sms: float) -> None:
        """The run at the head of its queue ran for so long from `now` on, at a speed (1: alone) and on so many SMs."""
        run, done = self.queue[0], rate * passed
        if run.began < 0:
            run.began = now
        run.done += done
        self.worked_at = now + passed
        self.worked += done
        self.sm_us += sms * passed
        if sms > self.peak_sms:
            self.peak_sms = sms

    def speed(self, sms: float, run: Run, all_sms: int) -> float:
        """Speed on so many SMs, 1 for that on all."""
        if sms <= 0:
            return 0.0
        if self.curve:
            points = [(0.0, 0.0), *self.curve]
            return float(np.interp(sms, [x for x, _ in points], [y for _, y in points]))
        return min(1.0, sms / (run.width or self.width or all_sms))
