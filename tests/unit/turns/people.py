# SPDX-License-Identifier: Apache-2.0
"""Who plays in `dice`: what programs do, and what is promised to each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from turns_stage import LaunchBound, Paced, Sleeper

from detshare.ctl.backends.model.gpu import GpuModel
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import NEVER, Background, Latency, Workload

WORK: dict[str, Callable[[int], Workload]] = {
    "busy": lambda seed: Background((500, 3000), seed=seed),
    "long": lambda seed: Background((90_000, 90_000), seed=seed, depth=4),
    "ten": lambda seed: Sleeper(10, 90, seed=seed),
    "half": lambda seed: Sleeper(10, 10, seed=seed),
    "seconds": lambda seed: Sleeper(300, 1000, seed=seed),
    "burst": lambda seed: Sleeper(30, 970, seed=seed),
    "launch": lambda seed: LaunchBound(seed, rests_ms=0),
    "slow launch": lambda seed: Background((500, 1500), utilization=0.7, seed=seed),
}
"""of the background"""
NEVER_REST = ("busy", "long")
FRONT: dict[str, tuple[Callable[[int], Workload], float, float]] = {
    "graph": (lambda seed: Latency(1500, 18_500, seed=seed), 1500, 0.08),
    "tight": (lambda seed: Latency(1400, 625, seed=seed), 1400, 0.7),
    "bursts": (lambda seed: Latency(12_000, 8000, seed=seed), 12_000, 0.6),
    "most": (lambda seed: Latency(18_000, 2000, seed=seed), 0, 0.9),
    "seldom": (lambda seed: Latency(3000, 900_000, seed=seed), 3000, 0.01),
    "paced": (lambda seed: Paced(4000, 33_000), 4000, 0.13),
    "dense": (lambda seed: Paced(1344, 0, 220, 300), 0, 1.0),
    "often": (lambda seed: Paced(530, 4545), 530, 0.15),
    "hasty": (lambda seed: Paced(68, 137), 0, 1.0),
    "launches": (lambda seed: LaunchBound(seed, rests_ms=0), 0, 1.0),
    "saturated": (lambda seed: Latency(2000, 0, seed=seed), 0, 1.0),
    "endless": (lambda seed: Background((500, 3000), seed=seed), 0, 1.0),
}
"""of the foreground: work, a request in microseconds (0: no promise of latency), and its part of the time"""
RANK = {"high": 4, "normal": 3, "weight": 3, "low": 2, "idle": 1}
FLOOR = {"high": 0.0, "normal": 0.02, "weight": 0.02, "low": 0.02, "idle": 0.01}


class Halting(Workload):
    """The work of a program that SIGSTOP stops: what it has queued goes on, and nothing follows."""

    def __init__(self, inner: Workload) -> None:
        super().__init__()
        self.inner, self.stopped, self._missed = inner, False, 0
        inner.queue = self.queue

    @property
    def wake(self) -> int:
        return NEVER if self.stopped else self.inner.wake

    @wake.setter
    def wake(self, at: int) -> None:
        """The inner one's counts."""

    @property
    def rested_at(self) -> int:
        return self.inner.rested_at

    @rested_at.setter
    def rested_at(self, at: int) -> None:
        """The inner one's counts."""

    def start(self, now: int) -> None:
        self.inner.start(now)

    def on_wake(self, now: int) -> None:
        self.inner.on_wake(now)

    def on_done(self, now: int) -> None:
        self.inner.completed = self.completed
        if self.stopped:
            self._missed += 1
        else:
            self.inner.on_done(now)

    def go_on(self, now: int) -> None:
        self.stopped = False
        while self._missed:
            self._missed -= 1
            self.inner.on_done(now)


class Ranks:
    """Steps of a job: the next one begins when all ranks have done theirs."""

    def __init__(self, seed: int) -> None:
        self.random, self.ranks = random.Random(seed), list[Rank]()


class Rank(Workload):
    """One rank's work."""

    def __init__(self, job: Ranks) -> None:
        super().__init__()
        self._job = job
        job.ranks.append(self)

    def start(self, now: int) -> None:
        self.wake = now

    def on_wake(self, now: int) -> None:
        self.wake = NEVER
        self.submit(now, self._job.random.randint(1_000_000, 5_000_000))

    def on_done(self, now: int) -> None:
        if not any(rank.queue for rank in self._job.ranks):
            for rank in self._job.ranks:
                rank.wake = now + 50_000


@dataclass
class Player:
    """A program."""

    process: ModelProcess
    work: list[tuple[GpuModel, Workload]]
    kind: str
    klass: str = ""
    """empty: not managed"""
    weight: int = 1
    floor: float = 0.02
    tenant: str = ""
    request_us: float = 0.0
    demand: float = 1.0
    paused: bool = False
    mps: bool = False
    moved: dict[int, tuple[float, int]] = field(default_factory=dict)
    """place in `work` -> when it was seen to go on or to have nothing to do, and how busy it was then"""
    allowed: dict[int, float] = field(default_factory=dict)
    """the longest that was allowed since"""

    @property
    def who(self) -> str:
        return str(self.process.id.pid)

    @property
    def stopped(self) -> bool:
        return any(isinstance(work, Halting) and work.stopped for _, work in self.work)

    def on(self, gpu: GpuModel) -> bool:
        return any(each is gpu for each, _ in self.work)

    def __str__(self) -> str:
        steered = f"{self.klass} floor {self.floor} weight {self.weight}" if self.klass else "unmanaged"
        return f"{self.who} {self.kind} {steered} {self.tenant}".rstrip()
