# SPDX-License-Identifier: Apache-2.0
"""The daemon killed at each step of what it does: before each control that changes something, before and in each
write, and after it. Then the guardian or the next daemon comes, which is killed too, now and then."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.backends.desired import DesiredState
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, Call, ModelDriver
from detshare.ctl.backends.root import journal
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.backends.root.journal import Journal
from detshare.ctl.backends.root.turns.floors import Floors
from detshare.ctl.core.snapshot import State
from tests.unit.model import programs
from tests.unit.root.conftest import KERNEL, Clock
from tests.unit.root.helpers import truth

pytestmark = pytest.mark.skipif(KERNEL, reason="of the model only: builds a machine for each step")

CHANGES = ("SET_", "DISABLE", "PREEMPT")
BEFORE: dict[str, tuple[str, ...]] = {
    "pause": (), "resume": ("pause",), "low": (), "weight": ("low",), "floor": ("low",),
    "release": ("low", "pause"), "close": ("low", "pause"),
}  # fmt: skip
"""what is asked -> what was asked before it"""


class Killed(BaseException):
    """The daemon is: nothing that it does from here on has an effect."""


class Steps:
    """Counts them, and kills at one."""

    def __init__(self, driver: ModelDriver, patch: pytest.MonkeyPatch) -> None:
        self.left, self.dead, self.number = 0, False, 0
        driver.before_control = self._control
        self._write = os.write
        patch.setattr(journal.os, "write", self._written)
        for owner, name in ((DesiredState, "_save"), (Floors, "set"), (Journal, "clear"), (Journal, "_compact")):
            patch.setattr(owner, name, self._around(getattr(owner, name)))

    def begin(self, at: int) -> None:
        self.left, self.dead, self.number = at, False, 0

    def step(self) -> None:
        if self.dead:
            raise Killed
        self.number += 1
        if self.number == self.left:
            self.dead = True
            raise Killed

    def _control(self, call: Call) -> None:
        if self.dead:
            raise Killed
        if any(word in call.name for word in CHANGES):
            self.step()

    def _written(self, fd: int, data: bytes) -> int:
        try:
            self.step()
        except Killed:
            if self.number == self.left:
                self._write(fd, data[: len(data) // 2])
                self.number += 1
            raise
        done = self._write(fd, data)
        self.step()
        return done

    def _around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def gated(*args: Any) -> Any:
            self.step()
            made = real(*args)
            self.step()
            return made

        return gated


class World:
    """Programs on two GPUs, and a daemon."""

    def __init__(self, run_dir: Path, patch: pytest.MonkeyPatch) -> None:
        self.run_dir, self.clock = run_dir, Clock(tick=1e-3)
        self.driver = ModelDriver(gpus=[H100, programs.second_gpu()])
        self.processes = [
            scenario.cuda_process(self.driver, "train"),
            scenario.cuda_process(self.driver, "train", gpu=1),
            programs.multi_gpu(self.driver, "infer"),
        ]
        self.found = [truth(self.driver, each) for each in self.processes]
        self.steps = Steps(self.driver, patch)
        self.backend = self.make()
        self.look(2)

    def make(self) -> RootBackend:
        self.driver.borrowed = 0
        return RootBackend(self.driver, self.run_dir, name="model", clock=self.clock)

    def look(self, times: int) -> None:
        for _ in range(times):
            self.clock.sleep(1.0)
            self.backend.look()

    def ask(self, what: str) -> None:
        backend = self.backend
        verbs: dict[str, Callable[[], object]] = {
            "pause": lambda: backend.pause("*"),
            "resume": lambda: backend.resume("*"),
            "low": lambda: backend.set_priority("*", "low"),
            "weight": lambda: backend.set_weight("*", 5),
            "floor": lambda: backend.set_class("low", {"floor_permille": 200}),
            "release": lambda: backend.release("*"),
            "close": backend.close,
        }
        verbs[what]()

    def as_found(self) -> bool:
        return [truth(self.driver, each) for each in self.processes] == self.found


def die(folder: Path, patch: pytest.MonkeyPatch, what: str, at: int) -> bool:
    """One life, and what follows it. False where it had fewer steps."""
    world = World(folder, patch)
    for each in BEFORE[what]:
        world.ask(each)
        world.look(1)
    world.steps.begin(at)
    with suppress(Killed):
        world.ask(what)
    if not world.steps.dead:
        return False
    if at % 3 == 0:  # the next one is killed, too
        world.steps.begin(1 + at % 7)
        with suppress(Killed):
            world.make().look()
    world.steps.begin(0)
    if at % 2:
        assert recover(folder, world.driver) == []
        assert world.as_found()
        assert not Journal(folder, "model").processes()
    world.backend = world.make()
    world.look(4)
    assert [e.text for e in world.backend.drain_events() if e.kind == "error"] == []
    seen = {program.id: program for program in world.backend.look().programs}
    for process in world.processes:
        assert seen[process.id].state is State.RUNNING
        assert not any(off for *_, off in truth(world.driver, process))
        desired = world.backend._desired.get(process.id)
        for tsg in seen[process.id].compute:
            plan = world.backend._plan(process.id, tsg.gpu)
            assert (tsg.slice_us, tsg.level) == ((2048, None) if plan is None else (plan.slice_us, plan.level)), desired
    world.backend.close()
    assert world.as_found()
    return True


@pytest.mark.parametrize("what", list(BEFORE))
def test_nobody_stays_off_or_short_and_what_was_asked_for_stands(tmp_path: Path, what: str) -> None:
    for at in range(1, 1000):
        folder = tmp_path / str(at)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            if not die(folder, patch, what, at):
                break
    assert at > 2
