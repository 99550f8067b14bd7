# SPDX-License-Identifier: Apache-2.0
"""Latencies that programs report: windows, refusals, floods, and programs that outlive their daemon."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_backend import FakeBackend
from hypothesis import given, settings
from hypothesis import strategies as st

import detshare
from detshare.ctl.cli.main import main
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.procfs import start_time
from detshare.ctl.core.rundir import REPORTS_NAME
from detshare.ctl.daemon import requests
from detshare.ctl.daemon.kinship import may_speak_for
from detshare.ctl.daemon.reports import BYTES_S, HEAD, MOST_BYTES
from detshare.ctl.daemon.requests import Table, Window, values_of
from detshare.ctl.library.reporter import Reporter
from tests.patience import until

ME = os.getpid()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def table(clock: Clock | None = None, may: bool = False) -> Table:
    return Table(clock or Clock(), lambda pid: pid * 10 if pid < 100_000 else None, lambda a, b: may)


def of(made: Table, pid: int) -> Any:
    window = made._windows.get(ProcessId(pid, pid * 10))
    return None if window is None else window.figures(made._clock())


# the window


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-6, 3000), min_size=1, max_size=300))
def test_percentiles_are_at_most_three_percent_too_high_and_never_too_low(values: list[float]) -> None:
    window = Window()
    window.add(values, 50.0)
    found = window.figures(50.0)
    assert found is not None
    assert found.count == found.total == len(values)
    for part, told in ((0.5, found.p50_s), (0.99, found.p99_s)):
        exact = sorted(values)[max(0, -(-int(part * 1000) * len(values) // 1000) - 1)]
        assert 0.995 * exact <= told <= 1.026 * exact


def test_a_window_reaches_back_until_it_holds_enough_and_no_further_than_a_minute() -> None:
    often, seldom = Window(), Window()
    for step in range(1000):  # a hundred seconds
        often.add([0.001] * 10, step / 10)
        if step % 10 == 0:
            seldom.add([0.5], step / 10)
    fast, slow = often.figures(100.0), seldom.figures(100.0)
    assert fast is not None
    assert slow is not None
    assert (fast.seconds, fast.total) == (pytest.approx(4.0, abs=0.5), 10_000)
    assert 350 <= fast.count <= 450
    assert slow.seconds == 60.0
    assert 55 <= slow.count <= 61
    assert often.figures(161.0) is None


def test_a_slow_time_is_forgotten_with_the_window() -> None:
    window = Window()
    window.add([1.0] * 200, 10.0)
    for step in range(100):
        window.add([0.01] * 10, 12.0 + step / 10)
    found = window.figures(22.0)
    assert found is not None
    assert found.p99_s < 0.011


def test_who_fills_many_buckets_has_a_short_window_and_no_more_memory() -> None:
    window, rng = Window(), random.Random(1)
    for step in range(120):
        window.add([10 ** rng.uniform(-6, 3.5) for _ in range(2000)], step / 2)
    widest = max(len(counts) for _, counts in window.slots)
    assert window.buckets <= max(requests.MOST_BUCKETS, widest) + widest
    assert window.buckets == sum(len(counts) for _, counts in window.slots)


# what may be said


@pytest.mark.parametrize(
    "line",
    [b"", b"-1", b"nan", b"inf", b"1e999", b"0", b"0.0", b"1_0", b"0x1", b" 1", b"1 ", b"1,5", b"3601", b"99999",
     b"1" * 400, "٣".encode(), b"\0", b"1\r", b"for me", b"1e-", b"."],
)  # fmt: skip
def test_a_line_that_is_no_time_is_refused_alone(line: bytes) -> None:
    assert values_of([b"0.25", line, b"1e-3"]) == ([0.25, 0.001], 1)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_does_no_harm(data: bytes) -> None:
    made = table()
    made.take(7, data)
    made.take(7, b"0.5\n")
    assert of(made, 7).count >= 1


def test_a_process_reports_for_itself_and_for_others_only_where_it_may() -> None:
    stranger, parent = table(may=False), table(may=True)
    for made in (stranger, parent):
        made.take(7, b"for 8\n0.5\n0.6\n")
    assert of(stranger, 8) is None
    assert stranger.refused == 2
    assert of(parent, 8).count == 2
    assert of(parent, 7) is None
    parent.take(7, b"for 100001\n0.5\n")  # there is none
    assert parent.refused == 1
    stranger.take(7, b"for 7\n0.5\n")
    assert of(stranger, 7).count == 1


def test_kin_are_those_that_a_process_made_and_a_stranger_is_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert may_speak_for(ME, child.pid)
        assert may_speak_for(os.getppid(), child.pid) == (os.stat(f"/proc/{os.getppid()}").st_uid == os.geteuid())
    finally:
        child.communicate(b"\n")
    assert not may_speak_for(ME, child.pid)


def test_a_number_that_is_another_process_now_begins_anew() -> None:
    clock = Clock()
    starts = {7: 70}
    made = Table(clock, starts.get, lambda a, b: False)
    made.take(7, b"0.5\n")
    starts[7] = 71
    clock.now += 20
    made.take(7, b"0.1\n")
    assert set(made._windows) == {ProcessId(7, 70), ProcessId(7, 71)}
    assert made._windows[ProcessId(7, 71)].total == 1


# floods


def test_a_flood_of_one_program_is_dropped_and_others_are_heard() -> None:
    clock, made = Clock(), table()
    made = table(clock)
    datagram = b"0.001\n" * 500
    for _ in range(1000):
        made.take(7, datagram)
    assert made.taken <= requests.VALUES_S
    assert made.dropped == 500_000 - made.taken
    made.take(8, b"0.002\n")
    assert of(made, 8).count == 1
    clock.now += 1.0
    made.take(7, b"0.001\n")
    assert of(made, 7).total == made.taken - 1


def test_a_flood_of_programs_takes_bounded_memory_and_makes_room_for_the_living() -> None:
    clock = Clock()
    alive: dict[int, int] = {pid: pid for pid in range(5000)}
    made = Table(clock, alive.get, lambda a, b: True)
    for pid in range(5000):
        made.take(pid, b"0.5\n")
        made.take(1, b"for %d\n0.5\n" % pid)
    assert len(made._windows) == requests.MOST_SENDERS
    assert len(made._senders) <= 4 * requests.MOST_SENDERS
    assert all(len(each.speaks) <= requests.MOST_SENDERS for each in made._senders.values())
    assert made.dropped > 0
    alive.clear()
    alive[9000] = 1
    made.take(9000, b"0.5\n")
    assert set(made._windows) == {ProcessId(9000, 1)}


# with a daemon


@pytest.fixture
def mine(start: Callable[..., Any]) -> Callable[[], Any]:
    """A daemon that sees this very process on its GPU."""

    def begin() -> Any:
        backend = FakeBackend()
        begun = start_time(ME)
        assert begun is not None
        backend.programs[0] = replace(backend.programs[0], id=ProcessId(ME, begun))
        return start(backend)

    return begin


def seen(running: Any) -> dict[str, Any] | None:
    found: dict[str, Any] | None = running.client.programs()["programs"][0]["requests"]
    return found


def test_what_a_program_observes_is_shown_counted_and_told_to_policies(mine: Callable[[], Any]) -> None:
    running = mine()
    with detshare.tenant(run_dir=running.run_dir) as me:
        for _ in range(99):
            me.observe(0.010)
        me.observe(0.050)
    assert me.unreported == ""
    found = until(lambda: (told := seen(running)) and told["count"] == 100 and told)
    assert found["p50_s"] == pytest.approx(0.010, rel=0.03)
    assert found["source"] == "reported"
    viewer = running.daemon._policy.engine._viewer
    view = until(lambda: (each := viewer.tenants(view_gpu(running))[str(ME)]).requests == 100 and each)
    assert view.request_p99_us == pytest.approx(1e6 * found["p99_s"])
    for words in (("show", str(ME)), ("why", str(ME))):
        told = CliRunner().invoke(main, ["--run-dir", str(running.run_dir), *words], env={"COLUMNS": "200"}).stdout
        (line,) = [each for each in told.splitlines() if each.strip().startswith("requests")]
        assert "p50 10" in line
        assert "of 100 in" in line or "100 requests of" in line
    page, _ = metrics_of(running)
    assert any("program_request_seconds{" in line and 'percentile="99"' in line for line in page.splitlines())
    assert 'detshare_requests_reported_total{result="taken"} 100.0' in page


def view_gpu(running: Any) -> str:
    gpu: str = running.backend.programs[0].gpus[0]
    return gpu


def metrics_of(running: Any) -> tuple[str, str]:
    from detshare.ctl.daemon import metrics

    body, kind = metrics.render(running.daemon.registry)
    return body.decode(), kind


def test_a_line_from_any_language_is_taken_and_garbage_is_refused(mine: Callable[[], Any]) -> None:
    running = mine()
    path = str(running.run_dir / REPORTS_NAME)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plain:
        plain.sendto(b"0.020\n", path)
        plain.sendto(b"\xff" * 100, path)
        plain.sendto(b"0.1\n" * MOST_BYTES, path)
        plain.sendto(b"", path)
        plain.sendto(b"for 4300\n0.5\n", path)  # somebody else's, who is not even there
    found = until(lambda: seen(running))
    assert (found["count"], found["p99_s"]) == (1, pytest.approx(0.020, rel=0.03))
    until(lambda: running.daemon.requests.refused == 4)


class Odd:
    """As an array of several values: it is no number, and does not say so by a TypeError."""

    def __float__(self) -> float:
        raise RuntimeError

    def __gt__(self, other: object) -> bool:
        raise ValueError


def test_without_a_daemon_nothing_happens_and_the_reason_is_there(tmp_path: Path) -> None:
    me = detshare.tenant(run_dir=tmp_path)
    me.observe(0.01)
    assert "no daemon answers on" in me.unreported
    assert me.lost == 1
    for _ in range(10_000):
        me.observe(0.01)
    assert len(me._reporter._kept) <= 4 * 256 + 1
    for wrong in (float("nan"), -1.0, 0.0, "soon", "0.1", None, 1e9, 10**400, 1j, [0.1], Odd()):
        me.observe(wrong)  # type: ignore[arg-type]
    assert "a request takes" in me.unreported


class Strange:
    """Compares as a number does, and is none."""

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.error = error

    def __gt__(self, other: object) -> bool:
        if self.error is not None:
            raise self.error
        return True

    __le__ = __gt__


NONSENSE = [float("nan"), -1, 0, 1e300, 10**400, "0.5", None, [], Strange(), Strange(ValueError), Strange(RuntimeError)]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: f"{type(value).__name__} {str(value)[:8]}")
def test_nonsense_is_lost_alone_and_never_raises(tmp_path: Path, value: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / REPORTS_NAME))
        mine = detshare.tenant(run_dir=tmp_path)
        mine.observe(0.25)
        mine.observe(value)
        assert mine.lost == 1
        assert "a request takes" in mine.unreported
        mine.observe(0.5)
        mine.flush()
        daemon.setblocking(False)
        assert daemon.recv(100) + daemon.recv(100) == b"0.250000000\n0.500000000\n"
    assert (mine.lost, mine.unreported) == (1, "")


def test_a_program_that_outlives_its_daemon_reports_to_the_next(mine: Callable[[], Any], run_dir: Path) -> None:
    first = mine()
    reporter = Reporter(run_dir)
    reporter.observe(0.01)
    assert reporter.reason == ""
    first.stop()
    assert not (run_dir / REPORTS_NAME).exists()
    reporter._due = 0.0
    reporter.observe(0.01)
    assert "no daemon answers" in reporter.reason
    second = mine()
    reporter._due = 0.0
    reporter.observe(0.03)
    assert reporter.reason == ""
    assert until(lambda: seen(second))["p99_s"] == pytest.approx(0.03, rel=0.03)


def test_a_fork_reports_for_itself(run_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        taker.bind(str(run_dir / REPORTS_NAME))
        reporter = Reporter(run_dir)
        reporter.observe(0.5)
        reporter._due = float("inf")
        reporter.observe(0.25)
        reporter._sending.acquire()  # another thread sends at the moment of the fork
        if (child := os.fork()) == 0:
            try:
                reporter._due = 0.0
                reporter.observe(0.125)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        told = [taker.recvmsg(1000, 100) for _ in range(2)]
    senders = [int.from_bytes(ancillary[0][2][:4], sys.byteorder) for _, ancillary, _, _ in told]
    assert senders == [ME, child]
    assert [data for data, *_ in told] == [b"0.500000000\n", b"0.125000000\n"]


def test_a_flood_of_datagrams_neither_stops_the_daemon_nor_the_sender(mine: Callable[[], Any]) -> None:
    running = mine()
    path = str(running.run_dir / REPORTS_NAME)
    sent = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as plain:
        for _ in range(4 * BYTES_S // HEAD):
            with contextlib.suppress(BlockingIOError):
                sent += plain.sendto(b"0.001\n", path) > 0
    assert running.client.alive()
    before = running.daemon.counters.looks
    until(lambda: running.daemon.counters.looks > before + 2)
    until(lambda: running.daemon.requests.taken + running.daemon.requests.dropped >= sent)
    reporter = Reporter(running.run_dir)
    reporter.observe(0.5)
    assert reporter.reason == ""
