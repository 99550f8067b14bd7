# SPDX-License-Identifier: Apache-2.0
"""How often the thread of the turns wakes and reads the switch log: counted, in the model's time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from turns_stage import LaunchBound, Stage, background

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.workload import Latency
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.turns import acting
from detshare.ctl.backends.root.turns.hand import Hand
from detshare.ctl.backends.root.turns.rotation import Rotation
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import Mode, Run
from detshare.ctl.gputime.sensor import Sensor
from tests.patience import until

SECONDS = 4


def play(stage: Stage, low: int, high: Latency | None, idle: int = 0) -> tuple[float, float]:
    """Steps and readings a second with so many low and idle programs, after a while."""
    if high is not None:
        stage.backend.set_priority(stage.start("high", high), "high")
    for number in range(low + idle):
        stage.backend.set_priority(stage.start(f"bg {number}", background(number)), "low" if number < low else "idle")
    counts = {"steps": 0, "reads": 0}
    turns, step, read = stage.turns, stage.turns._turn, stage.turns.sensor.poll

    def stepped() -> float:
        counts["steps"] += 1
        return step()

    def polled(gpu: str) -> list[Run] | None:
        counts["reads"] += 1
        return read(gpu)

    turns._turn, turns.sensor.poll = stepped, polled  # type: ignore[method-assign]
    for part in range(2 * (SECONDS + 2)):
        stage.backend.look()
        if part == 4:
            counts |= {"steps": 0, "reads": 0}
        stage.run(0.5)
    return counts["steps"] / SECONDS, counts["reads"] / SECONDS


def test_one_that_waits_for_nobody_is_looked_at_as_often_as_its_foreground_is_judged(stage: Stage) -> None:
    steps, _ = play(stage, 1, Latency(1600, 18_400, seed=9))
    assert 10 <= steps <= 21


@pytest.mark.parametrize("high", [None, Latency(1600, 18_400, seed=9)])
def test_the_log_is_read_each_25_ms_while_somebody_waits(stage: Stage, high: Latency | None) -> None:
    """And more often at the end of a turn alone."""
    steps, _ = play(stage, 3, high)
    assert 36 <= steps <= 62


@pytest.mark.parametrize(("low", "idle", "high"), [(1, 1, None), (2, 2, Latency(1600, 18_400, seed=9))])
def test_whose_window_is_due_wakes_nobody_before_the_turn_of_a_higher_class_ends(
    stage: Stage, low: int, idle: int, high: Latency | None
) -> None:
    steps, _ = play(stage, low, high, idle)
    assert 36 <= steps <= 70


def test_between_windows_not_each_question_reads_the_log(stage: Stage) -> None:
    steps, reads = play(stage, 2, Latency(2000, 0, seed=9))
    assert stage.turns.schedules()[0].mode is Mode.WINDOWS
    assert steps > 110
    assert 40 <= reads <= 90


@pytest.fixture
def counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Questions whether a program rests, readings of the log, and decisions, of a foreground that launches too slowly
    to be without rests, and that keeps the GPU."""
    made: Counter[str] = Counter()
    for of, name in ((Hand, "idle"), (Sensor, "poll"), (Rotation, "step")):
        monkeypatch.setattr(of, name, _counted(getattr(of, name), made, name))
    stage.backend.set_priority(stage.start("high", LaunchBound(1, 0.6)), "high")
    stage.backend.set_priority(stage.start("low", background(2)), "low")
    for _ in range(12):
        stage.backend.look()
        stage.run(0.5)
    assert stage.turns.schedules()[0].mode is Mode.WINDOWS
    made.clear()
    return made


def _counted(function: Callable[..., Any], counts: Counter[str], name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return function(*args, **kwargs)

    return call


def test_questions_in_the_midst_of_a_rest_read_and_decide_nothing(stage: Stage, counts: Counter[str]) -> None:
    stage.run(SECONDS)
    assert counts["idle"] > 120 * SECONDS
    assert counts["poll"] < 80 * SECONDS
    assert counts["step"] < 120 * SECONDS


def test_what_a_look_tells_in_the_midst_of_a_rest_is_decided_on_at_once(stage: Stage, counts: Counter[str]) -> None:
    turns, machine = stage.turns, stage.driver.machine
    while turns._due < turns._clock() + 0.005 or not counts["idle"]:
        machine.advance(turns._turn())
    counts.clear()
    turns._turn()
    assert counts["step"] == 0
    stage.backend.set_priority(stage.start("more", background(3)), "low")
    stage.backend.look()
    turns._turn()
    assert counts["step"] == 1


def test_a_foreground_that_waits_for_a_window_is_asked_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, asked = stage.turns, Counter[bool]()
    rests = turns._foreground_rests

    def ask(gpu: str) -> bool | None:
        asked[turns._foregrounds[gpu].full and turns._windows_on(gpu)] += 1
        return rests(gpu)

    monkeypatch.setattr(turns, "_foreground_rests", ask)
    play(stage, 2, Latency(2000, 0, seed=9))
    assert stage.turns.schedules()[0].mode is Mode.WINDOWS
    assert asked[False] > 40 * SECONDS
    assert not asked[True]


def test_a_slice_is_asked_for_once_and_after_each_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(stage.turns, "_retune", lambda process, gpu, slice_us: asked.append(slice_us))
    stage.backend.set_priority(stage.start("low", background(1)), "low")
    stage.backend.look()
    stage.run(1.0)
    assert len(asked) == 1
    stage.backend.look()
    stage.run(1.0)
    assert len(asked) == 2


def test_who_could_not_be_let_run_is_let_run_at_the_next_step(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        stage.backend.set_priority(stage.start(f"low {number}", background(number)), "low")
    stage.backend.look()
    stage.run(0.1)
    hand, fails = stage.turns._hand, [True, True, True]
    on, turn = hand.on, set[str]()

    def refuse(process: ProcessId) -> None:
        if fails:
            fails.pop()
            turn.update(stage.turns._rotation.grants)
            raise OSError("no")
        on(process)

    monkeypatch.setattr(hand, "on", refuse)
    while fails:
        stage.run(0.001)
    stage.run(0.001)
    holders = set(stage.turns._rotation.grants)
    assert [str(p.id.pid) in holders for p, _ in stage.programs.values()] == [stage.on(name) for name in stage.programs]
    assert holders == turn  # in the same turn
    assert len(turn) == 1


def test_while_nobody_takes_part_the_thread_sleeps_until_a_look_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    class Counted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(
        acting, "threading", SimpleNamespace(RLock=threading.RLock, Condition=Counted, Thread=threading.Thread)
    )
    driver = ModelDriver()
    process = scenario.cuda_process(driver, "python3 train.py")
    backend = RootBackend(driver, tmp_path, name="model", rotates=True)
    try:
        until(lambda: waits)
        for _ in range(3):
            count = len(waits)
            backend.look()
            until(lambda count=count: len(waits) > count)  # type: ignore[misc]
        assert set(waits) == {None}
        backend.set_priority(str(process.id.pid), "low")
        backend.look()
        until(lambda: waits[-1] is not None)
        backend.release(str(process.id.pid))
        backend.look()
        until(lambda: waits[-1] is None)
    finally:
        backend.close()


def test_a_look_tells_what_reading_the_logs_cost_so_far(stage: Stage) -> None:
    stage.start("a", background(0))
    seen = []
    for _ in range(3):
        stage.run(0.5)
        seen.append(stage.backend.look().sensor_cpu_s)
    times = [each or 0.0 for each in seen]
    assert 0 < times[0] < times[1] < times[2]
