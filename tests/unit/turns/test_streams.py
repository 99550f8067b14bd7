# SPDX-License-Identifier: Apache-2.0
"""Eager programs of class `high` on the model: their small kernels are queued while they wait for 2 ms."""

from __future__ import annotations

from pathlib import Path

import pytest
from turns_stage import BACKGROUNDS, SWITCHES_US, Stage, background, play

from detshare.ctl.backends.model.workload import NEVER, Workload
from detshare.ctl.core.gputime import Pattern
from tests.rest import after_first

SECONDS = 6.0


class Eager(Workload):
    """Steps of 300 kernels of 1 to 6 us, one launched each 25 us whatever became of the last, or after so many only
    when that has ended; then some milliseconds of rest. Another one may launch slower."""

    KERNELS = 300

    def __init__(self, rest_ms: float = 8.0, asks: int = 300, launch_us: int = 25) -> None:
        super().__init__()
        self._rest, self._asks, self.steps = round(1e6 * rest_ms), asks, list[int]()
        self._launch = 1000 * launch_us

    def _length(self) -> int:
        return self.random.randint(1000, 6000)

    def start(self, now: int) -> None:
        self.wake = self._begun = now
        self._left = self.KERNELS

    def on_wake(self, now: int) -> None:
        self._begun = now if self._left == self.KERNELS else self._begun
        self.submit(now, self._length())
        self._left -= 1
        self.wake = now + self._launch if self._left % self._asks else NEVER

    def on_done(self, now: int) -> None:
        if self.queue or self.wake != NEVER:
            return
        if self._left:
            self.wake = now + self._launch
            return
        self.steps.append(now - self._begun)
        self._left, self.wake = self.KERNELS, now + self._rest


class Tiny(Eager):
    """One kernel of ten is longer, the others are hardly seen behind a restore."""

    def _length(self) -> int:
        return self.random.randint(20_000, 60_000) if self.random.random() < 0.1 else 1500


class Heavy(Eager):
    """It works for a good part of its time."""

    def _length(self) -> int:
        return self.random.randint(10_000, 60_000)


def test_a_stream_of_small_kernels_has_the_slices_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It queues what it launches while it waits, so it does more then."""
    stage = Stage(tmp_path, monkeypatch)
    high = Eager()
    stage.backend.set_priority(stage.start("high", high), "high")
    stage.backend.set_priority(stage.start("low", background(1)), "low")
    play(stage, 4)
    seen = set()
    for _ in range(80):
        play(stage, 0.05)
        seen.add(stage.foreground.pattern)
    stage.backend.close()
    assert seen == {Pattern.STREAM}


@pytest.mark.parametrize("kind", after_first(["half", "busy", "launch"]))
@pytest.mark.parametrize(
    ("stream", "rest_ms", "launch_us", "share", "least"),
    [
        (Tiny, 2.0, 65, 0.070, 0.38),
        (Heavy, 2.0, 80, 0.37, 0.28),
        (Heavy, 0.1, 60, 0.53, 0.21),
        (Eager, 0.1, 75, 0.040, 0.38),  # most of each piece is its restore, so that all are nearly alike
    ],
)
def test_a_stream_is_one_whatever_its_background_leaves_of_a_slice(
    kind: str,
    stream: type[Eager],
    rest_ms: float,
    launch_us: int,
    share: float,
    least: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On an H200 with a slow CPU backgrounds of a stream got their floor. Where one rests before its slice ends, the
    foreground has little to do when it comes, and is like requests that wait for each answer."""
    stage = Stage(tmp_path, monkeypatch)
    stage.backend.set_priority(stage.start("high", stream(rest_ms, launch_us=launch_us)), "high")
    for n in range(2):
        stage.backend.set_priority(stage.start(f"low {n}", BACKGROUNDS[kind](n)), "low")
    play(stage, 4)
    begin, full = stage.gpu.timeline.now, 0
    before = {name: work.busy for name, (_, work) in stage.programs.items()}
    for _ in range(160):
        play(stage, 0.05)
        full += stage.foreground.full
    spent = stage.gpu.timeline.now - begin
    got = {name: (work.busy - before[name]) / spent for name, (_, work) in stage.programs.items()}
    stage.backend.close()
    assert not full, got
    assert got["high"] > share, got
    assert got["low 0"] + got["low 1"] > least, got


@pytest.mark.parametrize("others", [1, 3])
def test_a_stream_that_rests_for_most_of_the_time_does_not_wait_for_slices(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for each of four answers a step; its backgrounds have the time between its steps."""
    stage = Stage(tmp_path, monkeypatch)
    stage.backend.set_priority(stage.start("high", high := Eager(rest_ms=75, asks=75)), "high")
    for n in range(others):
        stage.backend.set_priority(stage.start(f"low {n}", background(n)), "low")
    play(stage, 2)
    high.steps.clear()
    before = sum(stage.programs[f"low {n}"][1].busy for n in range(others))
    begin = stage.gpu.timeline.now
    play(stage, SECONDS)
    had = sum(stage.programs[f"low {n}"][1].busy for n in range(others)) - before
    pattern = stage.foreground.pattern
    spent = stage.gpu.timeline.now - begin
    stage.backend.close()
    assert pattern is Pattern.BURSTS
    assert sorted(high.steps)[len(high.steps) // 2] < 300 * 25_000 + 4 * 1000 * SWITCHES_US
    assert had > 0.85 * spent
