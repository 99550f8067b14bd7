# SPDX-License-Identifier: Apache-2.0
"""Seeded dice over two to eight GPUs: programs that have contexts on all and work on some, jobs that are paused as one
while ranks die and drivers refuse, a GPU that falls off the bus, daemons that are killed.

One seed is one machine. By hand, from the repository's root, as many as wanted:
`PYTHONPATH=.:tests/unit/turns python tests/unit/turns/several.py FIRST LAST`.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from people import Rank, Ranks
from turns_stage import Stage, background

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import Call, ModelSwitchLog
from detshare.ctl.backends.model.gpu import GpuModel
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import Workload
from detshare.ctl.core.driver import DriverError, ProcessId, Switch
from tests.seeds import by_hand
from tests.unit.model import programs

LOOK_S = 0.25
TOGETHER_S = 0.3
"""two tenants may both be on for so long: until one that works on another GPU for the first time is seen there"""
MOST_WAIT_S = 4.0
LEARNS_S = 9.0
"""after it everybody is known to work where it works: what is unused, and that a lost GPU's log can be read again"""
SWITCH = "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"
EVENTS = ("enter", "enter", "enter", "kill", "wander", "wander", "pause", "resume", "lost", "crash", "die", "refuse")


@dataclass
class One:
    """A program, and what it works on where."""

    process: ModelProcess
    tenant: str
    name: str
    work: list[tuple[GpuModel, Workload]]
    stray: bool = False
    paused: bool = False
    seen: dict[int, tuple[float, int]] = field(default_factory=dict)
    """place in `work` -> when it went on last, and how busy it was then"""


class Several(Stage):
    """One machine's life. `broken` says in words what was not kept."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, tell: bool = False) -> None:
        self.random, self.seed, self.tell = random.Random(seed), seed, tell
        super().__init__(run_dir, monkeypatch, gpus=self.random.choice((2, 2, 3, 4, 8)))
        self.all: list[One] = []
        self.broken: list[str] = []
        self.number, self.looked, self.trouble = 0, 0.0, 0.0
        self.lost: GpuModel | None = None
        self.left = 0
        self.strike = ""
        self.both: dict[str, float] = {}
        """GPU -> since when two tenants with work are on"""
        read = ModelSwitchLog.read

        def unread(log: ModelSwitchLog) -> list[Switch]:
            if self.lost is not None and log._timeline is self.lost.timeline:
                raise DriverError("the GPU is lost")
            return read(log)

        monkeypatch.setattr(ModelSwitchLog, "read", unread)
        self.driver.before_control = self._before

    def say(self, text: str) -> None:
        if self.tell:
            print(f"{self.now:8.3f} {text}")

    def breaks(self, text: str) -> None:
        self.broken.append(f"{self.now:.3f} {text}")
        self.say(f"BROKEN {text}")

    @property
    def now(self) -> float:
        return self.gpu.timeline.now / 1e9

    # -- trouble

    def _before(self, call: Call) -> None:
        self.driver.inject = {}
        one = next((each for each in self.all if each.process.id == call.process), None)
        if one is None:
            return
        if self.lost is not None and any(gpu is self.lost for gpu, _ in one.work):
            self.driver.inject = {call.name: self.driver.abi.status("NV_ERR_GPU_IS_LOST")}
        if self.strike and call.name == SWITCH:
            self.left -= 1
            if self.left < 0:
                strike, self.strike = self.strike, ""
                self.say(f"now {strike} of {one.name}")
                self.trouble = self.now
                if strike == "die":
                    self._end(one)
                else:
                    self.driver.inject = {call.name: self.driver.abi.status("NV_ERR_BUSY_RETRY")}

    def _end(self, one: One) -> None:
        self.all.remove(one)
        self.driver.machine.kill(one.process)

    # -- events

    def _enter(self) -> None:
        self.number += 1
        seed, gpus = 100 * self.seed + self.number, self.driver.gpu_models
        which = self.random.choice(("single", "single", "stray", "job"))
        gpu = self.random.choice(gpus)
        if which == "job":
            ranks, name = Ranks(seed), f"job-{self.number}."
            for each in self.random.sample(gpus, self.random.randint(2, len(gpus))):
                self._join(scenario.cuda_process(self.driver, name, gpu=gpus.index(each)), name, each, Rank(ranks))
        elif which == "stray":
            process = programs.multi_gpu(self.driver, f"stray-{self.number}.")
            self._join(process, f"stray-{self.number}.", gpu, background(seed), stray=True)
        else:
            process = scenario.cuda_process(self.driver, f"single-{self.number}.", gpu=gpus.index(gpu))
            self._join(process, f"single-{self.number}.", gpu, background(seed))

    def _join(self, process: ModelProcess, name: str, gpu: GpuModel, work: Workload, *, stray: bool = False) -> None:
        self.driver.machine.start_work(process, gpu, work)
        tenant = name if name.startswith("job") else ""
        one = One(process, tenant or str(process.id.pid), name, [(gpu, work)], stray)
        self.all.append(one)
        self.backend.set_priority(str(process.id.pid), "low", tenant=tenant)

    def _pause(self, one: One) -> None:
        """All of a job, as one; who is told to be off is off, who is not runs."""
        group = {each.process.id: each for each in self.all if each.name == one.name}
        outcome = self.backend.pause(one.name)
        self.say(f"paused: {outcome}")
        done = {change.pid for change in outcome.changed}
        for process, each in group.items():
            each.paused = process.pid in done
            if each in self.all:
                self._paused_or_not(each)

    def _paused_or_not(self, one: One) -> None:
        pids, off = {one.process.id.pid}, self.turns._hand.waiting
        tsgs = [t for gpu in self.driver.gpu_models for t in gpu.tsgs if t.pid in pids and t.channels]
        if one.paused and not all(t.paused for t in tsgs):
            self.breaks(f"{one.name} {pids} is told to be paused and runs")
        if not one.paused and one.process.id not in off and any(t.paused for t in tsgs):
            self.breaks(f"{one.name} {pids} is told not to be paused and is off")

    def happen(self) -> None:
        what = self.random.choice(EVENTS)
        self.trouble, one = self.now, self.random.choice(self.all) if self.all else None
        self.say(f"{what} {one.name if one is not None else ''}")
        if what == "enter" or one is None:
            if len(self.all) < 12:
                self._enter()
        elif what == "kill":
            self._end(one)
        elif what == "wander" and one.stray:
            free = [gpu for gpu in self.driver.gpu_models if all(gpu is not each for each, _ in one.work)]
            if free:
                gpu = self.random.choice(free)
                one.work.append((gpu, work := background(self.random.randrange(1 << 16))))
                self.driver.machine.start_work(one.process, gpu, work)
        elif what == "pause":
            self._pause(one)
        elif what == "resume":
            self._resume()
        elif what == "lost":
            self.lost = self.random.choice(self.driver.gpu_models)
            self.play(self.random.choice((0.5, 3.0)))
            self.lost, self.trouble = None, self.now
        elif what == "crash":
            self.begin()
        elif what in ("die", "refuse"):
            self.strike, self.left = what, self.random.randint(0, 6)
            self._pause(one)

    def _resume(self) -> None:
        self.strike = ""
        outcome = self.backend.resume("*")
        refused = {skip.pid for skip in outcome.skipped if "not paused" not in skip.reason}
        for one in self.all:
            one.paused = one.paused and one.process.id.pid in refused

    # -- time

    def play(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            if self.now - self.looked >= LOOK_S:
                self.backend.look()
                self.looked = self.now
            pause = self.turns._turn() if self.turns._members else 0.05
            self.judge()
            self.driver.machine.advance(min(pause, max(0.0003, end - self.now)))

    def judge(self) -> None:
        quiet = self.lost is None and self.now - self.trouble > LEARNS_S
        for one in self.all:
            for n, (gpu, work) in enumerate(one.work):
                since, busy = one.seen.get(n, (self.now, -1))
                held = one.paused or any(each.paused for each in self.all if each.tenant == one.tenant)
                mine = any(
                    each is self.lost for other in self.all if other.tenant == one.tenant for each, _ in other.work
                )
                if busy != work.busy or not work.queue or held or mine:
                    one.seen[n] = (self.now, work.busy)
                elif self.now - since > MOST_WAIT_S:
                    self.breaks(f"{one.name} {one.process.id.pid} on {gpu.info.minor}: no progress")
                    one.seen[n] = (self.now, work.busy)
        for gpu in self.driver.gpu_models if quiet else ():
            on = {t.pid for t in gpu.tsgs if t.runlist == 0 and t.channels and not t.paused}
            here = {o.tenant for o in self.all if o.process.id.pid in on for g, w in o.work if g is gpu and w.queue}
            since = self.both.setdefault(gpu.info.uuid, self.now) if len(here) > 1 else self.now
            if len(here) < 2:
                self.both.pop(gpu.info.uuid, None)
            if self.now - since > TOGETHER_S:
                self.breaks(f"{sorted(here)} run at once on {gpu.info.minor}")
                self.both.pop(gpu.info.uuid)

    def steady(self) -> None:
        """Who shares no GPU that it works on with anybody has all of it."""
        self._resume()
        self.trouble = self.now
        self.play(LEARNS_S)
        before, begin = {id(w): w.busy for o in self.all for _, w in o.work}, self.gpu.timeline.now
        self.play(4)
        for one in self.all if not self.turns.sensor.refused() else ():  # a log is asked for again each half a minute
            others = [g for each in self.all if each.tenant != one.tenant for g, _ in each.work]
            if one.name.startswith("job") or any(g is each for g, _ in one.work for each in others):
                continue
            for gpu, work in one.work:
                part = (work.busy - before[id(work)]) / (self.gpu.timeline.now - begin)
                if part < 0.85:
                    self.breaks(f"{one.name} has {part:.2f} of GPU {gpu.info.minor}, where nobody else works")

    def live(self) -> list[str]:
        for _ in range(self.random.randint(2, 5)):
            self._enter()
        for _ in range(self.random.randint(3, 8)):
            self.play(self.random.choice((0.1, 0.5, 1.5, 3.0, 6.0)))
            self.happen()
        self.steady()
        alive: set[ProcessId] = {one.process.id for one in self.all}
        self.backend.close()
        for tsg in (t for gpu in self.driver.gpu_models for t in gpu.tsgs):
            if tsg.channels and tsg.paused:
                self.breaks(f"{tsg.pid} is off after the end; alive: {sorted(alive)}")
        return self.broken


def live(seed: int, *, tell: bool = False) -> list[str]:
    """What was not kept on one machine."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        return Several(Path(folder), patch, seed, tell=tell).live()


if __name__ == "__main__":
    by_hand(live)
