# SPDX-License-Identifier: Apache-2.0
"""Kick and quiet by netlink: who listens hears the edges, soon, and what it takes is on only while somebody does."""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from detshare.ctl.netlink.events import Listener
from tests.patience import until
from tests.vm.guest.kmod_tools import CLIENTS, LEAKS
from tests.vm.guest.sched_tools import Worker, family, of, run_of, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
LINGER_NS = 1_000_000
# rests for 200 ms after each launch: far above the linger time, and above what a busy host takes from a guest
PERIOD_MS = 200
RESTING = ("nvlatency", "--us", 200, "--period-ms", PERIOD_MS, "--quiet")


class EventLog:
    """A running nvlisten: what it heard, in the order of the kernel's clock."""

    def __init__(self, group: str = "activity") -> None:
        words = [str(CLIENTS / "nvlisten"), "--group", group]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self._heard: list[dict[str, Any]] = []
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["event"] == "ready"
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.append(json.loads(line))

    def of(self, worker: Worker, kind: str = "") -> list[dict[str, Any]]:
        found = [each for each in self._heard if each["pid"] == worker.pid and kind in ("", each["event"])]
        return sorted(found, key=lambda each: each["time"])

    def numbers(self) -> list[int]:
        return sorted(each["seq"] for each in self._heard)

    def close(self) -> None:
        self._process.terminate()
        self._thread.join()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def listening(group: str = "activity") -> Iterator[EventLog]:
    log = EventLog(group)
    try:
        yield log
    finally:
        log.close()


@pytest.fixture
def log() -> Iterator[EventLog]:
    with listening() as made:
        yield made


def heard(log: EventLog, worker: Worker, kind: str, count: int) -> list[dict[str, Any]]:
    until(lambda: len(log.of(worker, kind)) >= count)
    return log.of(worker, kind)


def armed(pid: int) -> int:
    """Gates of a process that wait for a touch."""
    rows = [line.split() for line in (LEAKS / "gates").read_text().splitlines()]
    return sum(row[row.index("pid") + 1] == str(pid) and row[row.index("armed") + 1] == "1" for row in rows)


def test_each_launch_after_silence_is_told(log: EventLog, worker: Workers) -> None:
    """A launch that comes before the silence could be told of has its kick, and the kick says what silence it was."""
    one = worker(*RESTING)
    heard(log, one, "kick", 10)
    kinds = [each["event"] for each in log.of(one)]
    assert all(pair != ("quiet", "quiet") for pair in pairwise(kinds))
    assert kinds.count("quiet") >= 3
    numbers = log.numbers()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "none is lost"


def test_an_event_says_who_when_and_after_what_silence(log: EventLog, worker: Workers, family: genl.DetShare) -> None:
    one = worker(*RESTING)
    kicks = heard(log, one, "kick", 6)
    run = run_of(family, one)
    assert run["kicks"] >= 6
    for each in log.of(one):
        assert (each["vctx"], each["gpu"]) == (run["vctx_id"], 0)
    assert all(each["idle_ns"] >= LINGER_NS for each in log.of(one, "quiet"))
    for before, kick in pairwise(kicks[1:]):
        assert kick["by"] == one.pid, "nvlatency has one thread"
        # it is known to within half a linger time and what the guest lacks of its processors when the doors fell silent
        assert LINGER_NS <= kick["idle_ns"] <= kick["time"] - before["time"] + LINGER_NS


def test_an_edge_is_heard(log: EventLog, worker: Workers) -> None:
    """From the fact to the end of recv(2). On a machine of its own it is under a millisecond."""
    one = worker(*RESTING)
    heard(log, one, "kick", 12)
    for kind in ("kick", "quiet"):
        late_us = [(each["received"] - each["time"]) / 1000 for each in log.of(one, kind)]
        print(kind, "late, us: median", statistics.median(late_us), "of", len(late_us))
        assert min(late_us) > 0, "the two clocks are one"


def test_a_listener_turns_on_what_it_takes_and_off_again(worker: Workers, family: genl.DetShare) -> None:
    one = worker(*RESTING)
    time.sleep(1)
    before = run_of(family, one)["faults"]
    assert armed(one.pid) == 0
    time.sleep(1)
    assert run_of(family, one)["faults"] == before, "nobody listens: an open door costs nothing"
    with listening() as log:
        heard(log, one, "kick", 2)
        with listening() as other:
            heard(other, one, "kick", 2)
        heard(log, one, "kick", len(log.of(one, "kick")) + 2)
    # that nobody listens any more is noticed within 0.1 s
    time.sleep(1)
    assert armed(one.pid) == 0
    after = run_of(family, one)["faults"]
    time.sleep(1)
    assert run_of(family, one)["faults"] == after
    assert after > before


def test_membership_that_is_given_up_counts_as_gone(worker: Workers, family: genl.DetShare) -> None:
    """The socket stays open: only setsockopt says that it does not listen any more."""
    one = worker(*RESTING)
    with genl.DetShare() as other:
        other.add_membership(genl.DETSHARE_MCGRP_ACTIVITY)
        until(lambda: run_of(family, one)["kicks"] >= 2)
        other.drop_membership(genl.DETSHARE_MCGRP_ACTIVITY)
        time.sleep(1)
        kicks = run_of(family, one)["kicks"]
        time.sleep(1)
        assert run_of(family, one)["kicks"] == kicks


def test_who_listens_to_other_events_only_costs_nothing(worker: Workers, family: genl.DetShare) -> None:
    one = worker(*RESTING)
    with listening("events"):
        time.sleep(1)
        assert (armed(one.pid), run_of(family, one)["kicks"]) == (0, 0)


def test_who_waits_at_a_shut_door_has_not_launched(log: EventLog, worker: Workers, family: genl.DetShare) -> None:
    one = worker(*RESTING)
    heard(log, one, "quiet", 2)
    family.hold_set(True, False, 60_000, **of(one))
    until(lambda: run_of(family, one)["waiting"] == 1)
    shut = time.monotonic_ns()
    time.sleep(0.5)
    opened = time.monotonic_ns()
    family.hold_del(**of(one))
    # by the kernel's clock: what was told before may come only now
    until(lambda: sum(kick["time"] > opened for kick in log.of(one, "kick")) >= 2)
    assert not [kick for kick in log.of(one, "kick") if shut < kick["time"] < opened]


def test_people_read_the_same(worker: Workers) -> None:
    """The control plane's own listener."""
    listener = Listener(activity=True)
    try:
        one = worker(*RESTING)
        found: set[str] = set()

        def both() -> bool:
            listener.wait(0.1)
            found.update(each.kind for each in listener.drain() if each.pid == one.pid)
            return found >= {"kick", "quiet"}

        until(both)
    finally:
        listener.close()
