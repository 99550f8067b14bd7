# SPDX-License-Identifier: Apache-2.0
"""Turns on the strict model, step by step in its own time, without their thread; and what programs do there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import NEVER, Background, Kernel, Latency, Workload
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.turns.engine import Turns
from detshare.ctl.backends.root.turns.foreground import Foreground
from tests.unit.model.programs import second_gpu


class Stage:
    """Programs on simulated GPUs (one, unless told), a backend, and its turns, driven by hand."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch, *, gpus: int = 1) -> None:
        self.driver = ModelDriver(gpus=[H100, *(second_gpu(minor) for minor in range(1, gpus))])
        self.gpu = self.driver.gpu_models[0]
        self.run_dir = run_dir
        monkeypatch.setattr(Turns, "start", lambda turns: None)
        monkeypatch.setattr(Turns, "running", property(lambda turns: not turns._closing))
        self.begin()
        self.programs: dict[str, tuple[ModelProcess, Workload]] = {}

    def begin(self) -> None:
        """A daemon begins; one that was there before was killed."""
        self.backend = RootBackend(
            self.driver, self.run_dir, name="model", rotates=True, clock=lambda: 1.0 + self.gpu.timeline.now / 1e9
        )

    @property
    def turns(self) -> Turns:
        assert self.backend._turns is not None
        return self.backend._turns

    @property
    def foreground(self) -> Foreground:
        """Of its one GPU, as it is now."""
        (found,) = self.turns._foregrounds.values()
        return found

    def start(self, name: str, workload: Workload) -> str:
        process = scenario.cuda_process(self.driver, name)
        self.driver.machine.start_work(process, self.gpu, workload)
        self.programs[name] = (process, workload)
        return str(process.id.pid)

    def on(self, name: str) -> bool:
        pid = self.programs[name][0].id.pid
        return all(not tsg.paused for tsg in self.gpu.tsgs if tsg.pid == pid and tsg.runlist == 0 and tsg.channels)

    def run(self, seconds: float, alone: tuple[str, ...] = ()) -> dict[str, float]:
        """Let time pass; what each did per second. `alone`: at most one of these is on at any time."""
        end = self.gpu.timeline.now + seconds * 1e9
        before = {name: work.completed for name, (_, work) in self.programs.items()}
        while self.gpu.timeline.now < end:
            pause = self.turns._turn()
            assert sum(self.on(name) for name in alone) <= 1
            self.driver.machine.advance(pause)
        return {name: (work.completed - before[name]) / seconds for name, (_, work) in self.programs.items()}


def background(seed: int) -> Background:
    return Background((50, 300), utilization=1.0, seed=seed)


class Changing(Latency):
    """Rests for as long as it is told."""

    def rest(self, us: float) -> None:
        self._pause = 1000 * us


class Sleeper(Workload):
    """Works for so long in kernels of a millisecond, then rests."""

    def __init__(self, work_ms: int, rest_ms: int, seed: int = 1) -> None:
        super().__init__(seed)
        self._work, self._rest, self._left = work_ms, rest_ms, 0

    def start(self, now: int) -> None:
        self.on_wake(now)

    def on_wake(self, now: int) -> None:
        self.wake, self._left = NEVER, self._work
        self.submit(now, 1_000_000)

    def on_done(self, now: int) -> None:
        self._left -= 1
        if self._left:
            self.submit(now, 1_000_000)
        else:
            self.wake = now + round(self._rest * 1e6 * self.random.uniform(0.9, 1.1))


class LaunchBound(Background):
    """Launches slower than the GPU computes, and rests for moments only; at first for most of each 0.1 s."""

    def __init__(self, seed: int = 1, utilization: float = 0.4, rests_ms: int = 1500) -> None:
        super().__init__((5, 15), utilization=utilization, seed=seed)
        self._rests = rests_ms * 1_000_000

    def _fill(self, now: int) -> None:
        if now < self._rests and now % 100_000_000 > 5_000_000:
            self._prepared = max(self._prepared, (now // 100_000_000 + 1) * 100_000_000)
        super()._fill(now)


class Paced(Workload):
    """A request at each tick of a clock; one that is late begins 30 us after the last was answered.

    After so many it rests, if it is told to.
    """

    def __init__(self, kernel_us: float, period_us: float, count: int = 0, rest_ms: float = 0.0) -> None:
        super().__init__()
        self._kernel, self._period, self._due = round(1000 * kernel_us), round(1000 * period_us), 0
        self._count, self._rest = count, round(1e6 * rest_ms)

    def start(self, now: int) -> None:
        self.wake = self._due = now + self._period

    def on_wake(self, now: int) -> None:
        self.wake = NEVER
        self.queue.append(Kernel(self._due, self._kernel, self._kernel))

    def on_done(self, now: int) -> None:
        self._due += self._period
        if self._count and self.completed % self._count == 0:
            self._due = now + self._rest
        self.wake = max(self._due, now + 30_000)


def p99(latency: Latency) -> float:
    """In microseconds."""
    times = sorted(us for _, us in latency.finished)
    return times[len(times) * 99 // 100] / 1000


SWITCHES_US = 600
"""the end of a switch to somebody, a slice of 50 us, and a switch back"""
BACKGROUNDS: dict[str, Callable[[int], Workload]] = {
    "busy": background,
    "long": lambda seed: Background((90_000, 90_000), seed=seed),
    "sleeper": lambda seed: Sleeper(10, 90, seed=seed),
    "half": lambda seed: Sleeper(10, 10, seed=seed),
    "seconds": lambda seed: Sleeper(300, 1000, seed=seed),
    "launch": LaunchBound,
}


def play(stage: Stage, seconds: float) -> dict[str, float]:
    """Goes on with a look each half a second; for how long each was without progress while it had work, at most."""
    longest = dict.fromkeys(stage.programs, 0.0)
    last = {name: (stage.gpu.timeline.now, work.busy) for name, (_, work) in stage.programs.items()}
    for step in range(round(seconds / 0.05)):
        if step % 10 == 0:
            stage.backend.look()
        stage.run(0.05)
        now = stage.gpu.timeline.now
        for name, (_, work) in stage.programs.items():
            at, busy = last[name]
            if work.queue and work.busy == busy:
                longest[name] = max(longest[name], (now - at) / 1e9)
            else:
                last[name] = now, work.busy
    return longest
