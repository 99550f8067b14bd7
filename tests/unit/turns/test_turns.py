# SPDX-License-Identifier: Apache-2.0
"""Turns on the strict model, step by step in its own time, without their thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import Background, Latency, Workload
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.backends.root.turns.engine import Turns


class Stage:
    """Programs on one simulated GPU, a backend, and its turns, driven by hand."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = ModelDriver()
        self.gpu = self.driver.gpu_models[0]
        self.run_dir = run_dir
        monkeypatch.setattr(Turns, "start", lambda turns: None)
        monkeypatch.setattr(Turns, "running", property(lambda turns: not turns._closing))
        self.backend = RootBackend(
            self.driver, run_dir, name="model", rotates=True, clock=lambda: 1.0 + self.gpu.timeline.now / 1e9
        )
        self.programs: dict[str, tuple[ModelProcess, Workload]] = {}

    @property
    def turns(self) -> Turns:
        assert self.backend._turns is not None
        return self.backend._turns

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


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tmp_path, monkeypatch)
    yield made
    made.backend.close()


def background(seed: int) -> Background:
    return Background((50, 300), utilization=1.0, seed=seed)


def lows(stage: Stage, *names: str) -> None:
    for n, name in enumerate(names):
        stage.backend.set_priority(stage.start(name, background(n)), "low")
    stage.backend.look()


def test_two_at_low_lock_nobody_up(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(0.5)
    done = stage.run(4, alone=("a", "b"))
    assert done["a"] == pytest.approx(done["b"], rel=0.1)
    assert min(done.values()) > 1000


def test_two_processes_of_one_tenant_do_not_lock_each_other_up(stage: Stage) -> None:
    for n, name in enumerate("ab"):
        stage.backend.set_priority(stage.start(name, background(n)), "low", tenant="one")
    stage.backend.look()
    stage.run(1)
    assert min(stage.run(3).values()) > 500


def test_a_program_that_could_not_be_let_go_is_let_go_later(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(1)
    off = next(name for name in "ab" if not stage.on(name))
    stage.driver.inject["NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"] = stage.driver.abi.status("NV_ERR_BUSY_RETRY")
    assert stage.backend.release(str(stage.programs[off][0].id.pid)).skipped
    del stage.driver.inject["NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"]
    assert stage.backend.release(str(stage.programs[off][0].id.pid)).changed
    assert stage.on(off)


def test_beside_a_foreground_of_bursts(stage: Stage) -> None:
    latency = Latency(1700, 20_000, seed=9)
    stage.backend.set_priority(stage.start("lc", latency), "high")
    lows(stage, "a", "b", "c")
    stage.run(2)
    latency.finished.clear()
    done = stage.run(6, alone=("a", "b", "c"))
    times = sorted(us for _, us in latency.finished)
    assert times[len(times) * 99 // 100] < 2_400_000
    assert min(done[name] for name in "abc") > 0.85 * max(done[name] for name in "abc")
    (schedule,) = stage.backend.look().schedules
    assert (schedule.mode, schedule.pattern) == ("turns", "bursts")


def test_everybody_runs_after_the_daemon_was_killed_in_a_turn(stage: Stage) -> None:
    lows(stage, "a", "b", "c")
    stage.run(1)
    assert sum(stage.on(name) for name in "abc") == 1
    assert recover(stage.run_dir, stage.driver) == []  # what the guardian does
    assert all(stage.on(name) for name in "abc")


def test_everybody_runs_after_close(stage: Stage) -> None:
    lows(stage, "a", "b", "c")
    stage.run(1)
    stage.backend.close()
    assert all(stage.on(name) for name in "abc")


def test_a_pause_holds_and_leaves_the_others_their_turns(stage: Stage) -> None:
    lows(stage, "a", "b", "c")
    stage.run(1)
    pid = str(stage.programs["a"][0].id.pid)
    assert stage.backend.pause(pid).changed
    stage.backend.look()
    done = stage.run(3, alone=("b", "c"))
    assert done["a"] == 0
    assert min(done["b"], done["c"]) > 0
    stage.backend.resume(pid)
    stage.backend.look()
    assert stage.run(3, alone=("a", "b", "c"))["a"] > 0


def test_release_leaves_nothing_off_and_slices_as_found(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(1)
    assert stage.backend.release("*").changed
    assert all(stage.on(name) for name in "ab")
    assert {tsg.slice_us for tsg in stage.gpu.tsgs if tsg.runlist == 0} == {2048}


def test_who_is_killed_in_its_turn_hands_it_on(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(1)
    holder = next(name for name in "ab" if stage.on(name))
    other = "b" if holder == "a" else "a"
    stage.driver.machine.kill(stage.programs[holder][0])
    stage.backend.look()
    stage.run(0.1)
    assert stage.on(other)
    assert stage.run(1)[other] > 0


def test_one_shot_commands_choose_slices_that_lock_nobody_up(tmp_path: Path) -> None:
    driver = ModelDriver()
    backend = RootBackend(driver, tmp_path, name="model", repair=False)
    programs = [scenario.cuda_process(driver, name) for name in ("a", "b")]
    work = [background(n) for n in range(2)]
    for process, each in zip(programs, work, strict=True):
        driver.machine.start_work(process, driver.gpu_models[0], each)
        backend.look()
        backend.set_priority(str(process.id.pid), "low")
    backend.look()
    driver.machine.advance(2)
    assert min(each.completed for each in work) > 500
    backend.close(restore=False)
