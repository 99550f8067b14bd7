# SPDX-License-Identifier: Apache-2.0
"""How long the daemon rests between looks: by the CPU time of a look, not by what it waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fake_backend import FakeBackend

from detshare.ctl.core.snapshot import Snapshot
from tests.patience import until

LOOK_S = 0.2


class Looking(FakeBackend):
    """Each look takes `LOOK_S`, spent by `spend`. `begun` and `ended`: when, CLOCK_MONOTONIC."""

    def __init__(self, spend: Callable[[], None]) -> None:
        super().__init__()
        self.spend = spend
        self.begun: list[float] = []
        self.ended: list[float] = []

    def look(self, *, enforce: bool = True) -> Snapshot:
        self.begun.append(time.monotonic())
        self.spend()
        seen = super().look(enforce=enforce)
        self.ended.append(time.monotonic())
        return seen

    def rests(self) -> list[float]:
        return [begun - ended for begun, ended in zip(self.begun[1:], self.ended, strict=False)]


def burn() -> None:
    until = time.thread_time() + LOOK_S
    while time.thread_time() < until:
        pass


def rests(start: Callable[..., Any], spend: Callable[[], None]) -> list[float]:
    """The daemon's own look at its start and the first of its loop follow each other: the rests after those."""
    backend = Looking(spend)
    running = start(backend, interval=0.05)
    until(lambda: len(backend.begun) >= 6)
    running.stop()
    return backend.rests()[1:5]


def test_a_look_that_waited_for_the_driver_is_followed_by_the_next(start: Callable[..., Any]) -> None:
    found = rests(start, lambda: time.sleep(LOOK_S))
    assert len(found) == 4
    assert min(found) < LOOK_S


def test_a_look_that_took_the_cpu_is_followed_by_twice_its_time(start: Callable[..., Any]) -> None:
    found = rests(start, burn)
    assert len(found) == 4
    assert min(found) >= 2 * LOOK_S * 0.95


class Still(Looking):
    """Has something new once."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.asked = 0

    def stirs(self) -> bool:
        self.asked += 1
        return self.asked == 3


def test_while_nothing_stirs_there_is_no_look(start: Callable[..., Any]) -> None:
    backend = Still()
    running = start(backend, interval=0.02)
    until(lambda: backend.asked >= 10)
    running.stop()
    assert len(backend.begun) == 2  # at the start, and the third time


def test_a_policy_that_decides_by_looks_has_them_all(start: Callable[..., Any]) -> None:
    backend = Still()
    running = start(backend, interval=0.02)
    running.daemon.policy.engine.choose("fair", {}).result()
    until(lambda: len(backend.begun) >= 10)
    running.stop()
