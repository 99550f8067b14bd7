# SPDX-License-Identifier: Apache-2.0
"""Backend root's turns on the simulated GPU, which switches and logs as an H200 showed: programs that never rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.client import Client
from tests.patience import ended, until
from tests.vm.guest.sched_tools import Worker, shares, workers

Workers = Callable[..., Worker]
RUN = Path("/run/detshare-turns")
ENDLESS = ("nvbackground", "--endless")
BUSY = ("nvbackground", "--us", 2000, "--depth", 64)
PERIODIC = ("nvlatency", "--us", 1000, "--period-ms", 20)
SECONDS = 3.0
PART = 0.15
"""of the GPU, least for each of two that take turns, however slow the host; who is locked up has nothing"""


class Daemon:
    """A detshared, backend root: one for all tests, as an emulated processor takes half a minute to start it."""

    def __init__(self) -> None:
        self.log = RUN.with_suffix(".log")
        self.client = Client(RUN)
        self.start()

    def start(self) -> None:
        self.process = self._start()

        def alive() -> bool:
            if self.process.poll() is not None:  # an earlier one's guardian may not have done yet
                self.process = self._start()
            return self.client.alive()

        try:
            until(alive)
        except AssertionError:
            print(self.log.read_text()[-8000:])
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(RUN), "--backend", "root"]
        with self.log.open("a") as file:
            return subprocess.Popen(words, stderr=file)

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        ended(self.process)

    def low(self, *members: Worker) -> None:
        for each in members:
            answer = self.client.verb("set-priority", str(each.pid), klass="low")
            assert answer["changed"], answer

    def program(self, one: Worker) -> dict[str, Any]:
        return next(each for each in self.client.programs()["programs"] if each["pid"] == one.pid)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.end()


@pytest.fixture
def worker() -> Iterator[Workers]:
    with workers() as make:
        yield make


def get_on(*members: Worker, least: float = PART) -> bool:
    return all(part > least * SECONDS * 1e6 for part in shares(*members, seconds=SECONDS))


def test_two_that_never_rest_both_get_on(daemon: Daemon, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    daemon.low(*members)
    until(lambda: get_on(*members))


def test_three_beside_one_with_deadlines_get_on(daemon: Daemon, worker: Workers) -> None:
    members = worker(*BUSY), worker(*ENDLESS), worker(*BUSY)
    high = worker(*PERIODIC)
    daemon.low(*members)
    assert daemon.client.verb("set-priority", str(high.pid), klass="high")["changed"]
    until(lambda: get_on(*members, least=0.08))
    assert shares(high, seconds=SECONDS)[0] > 0.01 * SECONDS * 1e6


def test_who_is_stopped_with_work_queued_stops_nobody(daemon: Daemon, worker: Workers) -> None:
    stopped, goes_on = worker(*BUSY), worker(*ENDLESS)
    daemon.low(stopped, goes_on)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        until(lambda: get_on(goes_on, least=0.3))
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    until(lambda: get_on(stopped, goes_on))


def test_one_that_nobody_manages_gets_on_beside_them(daemon: Daemon, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    other = worker(*BUSY)
    daemon.low(*members)
    until(lambda: get_on(*members, least=0.01) and get_on(other))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_run_when_the_daemon_has_ended_in_a_turn_and_take_turns_under_the_next(
    daemon: Daemon, worker: Workers, number: int
) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    daemon.low(*members)
    until(lambda: any(each.off() for each in members))
    daemon.end(number)
    until(lambda: not any(each.off() for each in members))
    until(lambda: get_on(*members))
    daemon.start()
    if number == signal.SIGTERM:  # it put back what it had set
        daemon.low(*members)
    until(lambda: any(each.off() for each in members))
    until(lambda: get_on(*members))


def test_an_mps_server_is_never_off_and_all_get_on_with_and_without_the_daemon(daemon: Daemon, worker: Workers) -> None:
    server = worker("nvbackground", "--share", "--endless")
    client = worker("nvbackground", "--join", f"{server.ready['client']}:{server.ready['tsg']}", "--endless")
    members = worker(*ENDLESS), worker(*ENDLESS)

    def whole() -> None:
        """Both are in the server's channel group, and none of its channels is off, hangs or has stopped at a fault."""
        (group,) = server.rows()
        assert (group["channels"], group["off"], group["faulted"], group["hung"]) == (2, 0, 0, 0)
        assert client.process.poll() is None

    daemon.low(server, *members)
    until(lambda: any(each.off() for each in members))
    until(lambda: get_on(server, *members, least=0.05))
    whole()
    daemon.end(signal.SIGKILL)
    until(lambda: not any(each.off() for each in members))
    until(lambda: get_on(server, *members, least=0.05))
    whole()
    daemon.start()
    until(lambda: any(each.off() for each in members))
    for _ in range(5):
        until(lambda: get_on(server, least=0.05))
        whole()


def test_the_other_goes_on_when_the_holder_is_killed(daemon: Daemon, worker: Workers) -> None:
    members = [worker(*ENDLESS), worker(*ENDLESS)]
    daemon.low(*members)

    def on() -> list[Worker]:
        """The one that has the turn; both are off for a moment when it passes."""
        found = [each for each in members if not each.off()]
        return found if len(found) == 1 else []

    (holder,) = until(on)
    with suppress(ProcessLookupError):
        holder.process.kill()
    (left,) = (each for each in members if each is not holder)
    until(lambda: not left.off() and get_on(left, least=0.5))


def test_a_pause_in_a_turn_holds_and_the_other_has_all(daemon: Daemon, worker: Workers) -> None:
    one, other = worker(*ENDLESS), worker(*ENDLESS)
    daemon.low(one, other)
    until(lambda: get_on(one, other))
    assert daemon.client.verb("pause", str(one.pid))["changed"]
    assert shares(one, seconds=SECONDS)[0] == 0
    until(lambda: get_on(other, least=0.5))
    assert daemon.client.verb("resume", str(one.pid))["changed"]
    until(lambda: get_on(one, other))
    assert daemon.client.verb("release", "*")["changed"]
    until(lambda: not one.off() and not other.off())


def test_what_the_log_says_is_what_the_gpu_counted(daemon: Daemon, worker: Workers) -> None:
    members = worker(*ENDLESS), worker(*ENDLESS)
    daemon.low(*members)
    until(lambda: get_on(*members))

    def told() -> bool:
        used = shares(*members, seconds=SECONDS)
        times = [daemon.program(each)["gpu_time"] for each in members]
        if not all(times):
            return False
        parts = [time[0]["share"] for time in times]
        return all(abs(part - us / (SECONDS * 1e6)) < 0.15 for part, us in zip(parts, used, strict=True))

    until(told)
