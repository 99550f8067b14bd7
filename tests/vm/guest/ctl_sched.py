# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl and detshared over the kernel's scheduler, on programs that keep the simulated GPU busy."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detshare.ctl.backends.module.holds import LEASE_S
from detshare.ctl.cli.main import main
from detshare.ctl.client import Client
from detshare.ctl.core import classes, rundir
from detshare.ctl.core.snapshot import State
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.link import Link
from detshare.ctl.oneshot import build_backend
from tests.patience import ended, run, until
from tests.vm.guest.sched_tools import LEVEL, SLICE, Worker, family, long_run, progress, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
RUN = Path("/run/detshare-sched")
FOUND = (SLICE, LEVEL)
LOW = (classes.CLASSES["low"].slice_us, int(classes.CLASSES["low"].level))


def ctl(*words: object) -> Result:
    """The command, in this process: an emulated processor needs ten seconds to start another."""
    made = CliRunner().invoke(main, ["--run-dir", str(RUN), *map(str, words)], env={"COLUMNS": "200"})
    if made.exception is not None and not isinstance(made.exception, SystemExit):
        raise made.exception
    return made


def done(*words: object) -> str:
    made = ctl(*words)
    assert made.exit_code == 0, f"{words}: {made.stdout}{made.stderr}"
    return made.stdout


def refused(code: int, *words: object) -> str:
    made = ctl(*words)
    assert made.exit_code == code, f"{words}: {made.exit_code}: {made.stdout}{made.stderr}"
    return " ".join(made.stderr.split())


def setting(one: Worker) -> tuple[int, int]:
    (mine,) = one.rows()
    return mine["slice_us"], mine["level"]


class Daemon:
    """A detshared of this test."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(RUN), "--backend", "kmod"]
        log = RUN.with_suffix(".log")

        def start() -> subprocess.Popen[bytes]:
            with log.open("a") as file:
                return subprocess.Popen(words, stderr=file)

        self.process = start()

        def alive() -> bool:
            if self.process.poll() is not None:  # the guardian of an earlier one may not have done yet
                self.process = start()
            return Client(RUN).alive()

        try:
            until(alive)
        except AssertionError:
            print(log.read_text()[-8000:])
            raise

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        ended(self.process)

    def post(self, verb: str, who: object, **args: object) -> dict[str, Any]:
        return Client(RUN).verb(verb, str(who), **args)

    def program(self, pid: int) -> dict[str, Any]:
        found = Client(RUN).programs()["programs"]
        return next(each for each in found if each["pid"] == pid)


@pytest.fixture
def daemon(family: genl.DetShare, worker: Workers) -> Iterator[Daemon]:
    """Ends before `worker` looks that nothing is left: it has a client of its own, for the context-switch log."""
    made = Daemon()
    yield made
    made.end()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    made = Path("/sys/fs/cgroup/crew.slice")
    made.mkdir()
    yield made
    for pid in (made / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (made.parent / "cgroup.procs").write_text(pid)
    until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


def test_every_verb_without_a_daemon(family: genl.DetShare, worker: Workers, cgroup: Path) -> None:
    one = worker("nvbackground", "--us", 2000)
    assert "level low" in done("set-priority", one.pid, "low")
    assert setting(one) == LOW
    done("set-slice", one.pid, 777, "--level", "high")
    assert setting(one) == (777, 2)
    done("set-weight", one.pid, 3)
    assert setting(one)[1] == LEVEL
    assert "no GPU context" not in done("hold", one.pid, "--lease", 60)
    assert progress(one, 0.5) < 400_000  # what was queued runs on, nothing new comes
    assert "gated" in done("ps")
    assert "held by order" in " ".join(done("show", one.pid).split())
    done("resume", one.pid)
    assert progress(one) > 50_000
    assert "25 %" in done("set-bucket", one.pid, "25%")
    (bucket,) = json.loads(done("classes", "--json"))["buckets"]
    assert (bucket["name"], bucket["rate_us"], bucket["burst_us"]) == (str(one.pid), 250_000, 25_000)
    assert "BUCKET OF" in done("classes")
    done("set-bucket", one.pid, "off")
    done("preempt", one.pid)
    done("set-class", "low", "--turn", 50_000, "--floor", 5)
    (low,) = (row for row in json.loads(done("classes", "--json"))["classes"] if row["name"] == "low")
    assert (low["turn_us"], low["floor_permille"]) == (50_000, 50)
    done("set-class", "low", "--reset")
    (cgroup / "cgroup.procs").write_text(str(one.pid))
    done("release", one.pid)
    assert setting(one) == FOUND
    assert "cgroup /crew.slice" in done("set-priority", "/crew.slice", "low")
    assert setting(one) == LOW
    assert "class low" in done("classes")
    assert done("release", "--all")
    assert setting(one) == FOUND


def test_turns_and_the_log_are_told(daemon: Daemon, worker: Workers) -> None:
    one, other = worker("nvbackground", "--endless"), worker("nvbackground", "--endless")
    for each in (one, other):
        daemon.post("set-priority", each.pid, klass="low")

    def told() -> bool:
        seen = Client(RUN).programs()
        mine = {each["pid"]: each for each in seen["programs"] if each["pid"] in (one.pid, other.pid)}
        assert not [text for text in seen["warnings"] if "refused" in text]
        holders = {each["holder"] for each in seen["schedules"] if each["mode"] == "turns"}
        placed = {place["standing"] for each in mine.values() for place in each["places"]}
        shares = [time["share"] for each in mine.values() for time in each["gpu_time"]]
        return (
            bool(holders & {str(one.pid), str(other.pid)})
            and placed == {"holds", "waits"}
            and len(shares) == 2
            and all(0.2 < share < 0.8 for share in shares)
        )

    until(told)
    assert "has its turn" in " ".join(done("show", one.pid).split())


def test_what_cannot_be_done_is_said(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground")
    gone = 1 << 21
    for words in (
        ("set-priority", one.pid, "nosuch"),
        ("set-priority", one.pid, "a b"),
        ("set-weight", one.pid, 0),
        ("set-ceiling", one.pid, 101),
        ("set-ceiling", one.pid, 0),
        ("set-bucket", one.pid, "0%"),
        ("set-bucket", one.pid, "101%"),
        ("set-bucket", one.pid, "fast"),
        ("set-bucket", one.pid, "25%", "--burst", 0),
        ("set-class", "low"),
        ("set-class", "a b", "--weight", 5),
        ("set-class", "low", "--weight", 1001),
        ("set-class", "low", "--reset", "--weight", 5),
        ("set-class", "low", "--weight", 3, "--slice", 50),
        ("hold", one.pid, "--lease", 0),
        ("hold", one.pid, "--lease", 3601),
        ("hold", 0, "--lease", 5),
        ("set-priority", "/no/such/cgroup", "low"),
    ):
        refused(2, *words)
    for words in (("hold", gone, "--lease", 5), ("set-bucket", gone, "5%"), ("resume", gone), ("preempt", gone)):
        assert "there is no process" in refused(1, *words)
    assert "is not paused" in refused(1, "resume", one.pid)
    assert "has no bucket" in refused(1, "set-bucket", one.pid, "off")
    assert "not managed" in refused(1, "release", one.pid)
    assert "detshared" in refused(1, "hold", one.pid)
    assert setting(one) == FOUND
    assert family.hold_get() == ()
    assert family.bucket_get() == ()


def test_a_daemon_that_is_killed_holds_nobody_for_long(daemon: Daemon, worker: Workers) -> None:
    one = worker("nvbackground", "--us", 2000)
    daemon.post("pause", one.pid)
    assert progress(one) == 0
    link = Link()
    time.sleep(1.2 * LEASE_S)  # it is renewed
    assert [row.pause for row in link.holds()] == [True]
    assert progress(one) == 0
    daemon.end(signal.SIGKILL)
    until(lambda: one.off() == 0)
    assert link.holds() == []
    link.close()
    assert progress(one) > 50_000


def test_who_comes_after_a_killed_daemon_takes_up_what_he_finds(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground", "--us", 2000)
    rundir.prepare(RUN, "test")
    first = build_backend("kmod", RUN).backend
    first.look()
    first.set_priority(str(one.pid), "low")
    first.pause(str(one.pid))
    first.set_bucket(str(one.pid), 500_000)
    first.set_class("low", {"turn_us": 90_000})
    # killed: it renews nothing, puts nothing back
    second = build_backend("kmod", RUN).backend
    try:
        until = time.monotonic() + 1.5 * LEASE_S
        while time.monotonic() < until:
            found = second.look()
            time.sleep(0.2)
        (mine,) = (program for program in found.programs if program.id.pid == one.pid)
        assert (mine.state, mine.klass) == (State.PAUSED, "low")
        assert [(hold.pause, hold.renewed) for hold in found.holds] == [(True, True)]
        assert [bucket.rate_us for bucket in found.buckets] == [500_000]
        assert next(row.turn_us for row in found.classes if row.name == "low") == 90_000
        assert progress(one) == 0
        assert second.resume(str(one.pid)).changed
        assert progress(one) > 20_000
        assert setting(one) == LOW
    finally:
        second.set_class("low", None)
        second.set_bucket(str(one.pid), None)
        second.close()
    assert setting(one) == FOUND  # an orderly end puts back
    assert family.hold_get() == ()
    first.close(restore=False)


def test_two_daemons_are_one_too_many(daemon: Daemon) -> None:
    words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(RUN), "--backend", "kmod"]
    second = run(words, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "detshared" in second.stderr
    assert daemon.process.poll() is None


def test_the_daemon_hears_events_at_once(daemon: Daemon, worker: Workers) -> None:
    one = worker("nvbackground", "--us", 2000)
    for _ in range(5):
        daemon.post("hold", one.pid)
        daemon.post("resume", one.pid)

    def heard() -> list[dict[str, Any]]:
        found = Client(RUN).events()
        return [each for each in found if each["kind"] in ("gated", "opened") and each["pid"] == one.pid]

    until(lambda: len(heard()) >= 10)
    late = [each["data"]["late_us"] for each in heard()]
    print(f"daemon: {len(late)} events, median {statistics.median(late):.0f} us, most {max(late):.0f} us")
    assert statistics.median(late) < (1_000 if long_run() else 500_000)
