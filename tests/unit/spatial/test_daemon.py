# SPDX-License-Identifier: Apache-2.0
"""A daemon with both lanes as real processes: the model's programs in one, this test's in the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from spatial_lane import Program, end_mps, mps_control, short_folder

from detshare.ctl.client import Client
from detshare.ctl.core.errors import ControlError
from tests.patience import ended, run, until

pytestmark = pytest.mark.e2e

ASKED = ("state", "class", "weight")
"""of a program: what a refused command leaves as it was"""


class Daemon:
    def __init__(self, folder: Path, control: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "DETSHARE_BOARD_DIR": str(folder / "boards"),
            "DETSHARE_MPS_CONTROL": str(control),
        }
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model"]
        command += ["--run-dir", str(self.folder)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=self.environment)
        until(lambda: self.process.poll() is not None or Client(self.folder).alive())
        assert self.process.poll() is None

    def ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(self.folder), *args]
        return run(command, capture_output=True, text=True, check=False)

    def program(self, pid: int) -> dict[str, object]:
        return next(p for p in Client(self.folder).programs()["programs"] if p["pid"] == pid)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        ended(self.process)


@contextmanager
def started(folder: Path, control: Path) -> Iterator[Daemon]:
    made = Daemon(folder, control)
    yield made
    if made.process.poll() is None:
        made.stop()
    end_mps(folder, control)


@contextmanager
def begun(daemon: Daemon) -> Iterator[Program]:
    made = Program(daemon.folder / "boards.sock", "red")
    assert made.status == 0, made.message
    until(lambda: any(p["pid"] == made.pid for p in Client(daemon.folder).programs()["programs"]))
    yield made
    made.end()


@pytest.fixture
def daemon(folder: Path, control: Path) -> Iterator[Daemon]:
    with started(folder, control) as made:
        yield made


@pytest.fixture
def program(daemon: Daemon) -> Iterator[Program]:
    with begun(daemon) as made:
        yield made


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[Daemon, Program]]:
    """One for all that is refused, which changes nothing."""
    with short_folder() as folder, started(folder, mps_control(folder)) as daemon, begun(daemon) as program:
        yield daemon, program


def test_both_lanes_are_one_list(daemon: Daemon, program: Program) -> None:
    answer = Client(daemon.folder).programs()
    mine = daemon.program(program.pid)
    assert (mine["state"], mine["class"], mine["tenant"]) == ("spatial", "normal", "red")
    assert any(p["spatial"] is None for p in answer["programs"])
    shown = daemon.ctl("ps").stdout
    assert "SMS" in shown
    assert " 132 " in shown
    assert "all 132 SMs of 132" in daemon.ctl("show", str(program.pid)).stdout


def test_set_sm_returns_with_the_acknowledgement(daemon: Daemon, program: Program) -> None:
    program.send("acks 3")
    done = daemon.ctl("set-sm", str(program.pid), "25")
    assert done.returncode == 0, done.stderr
    assert "the first 32 SMs of 132" in done.stdout
    assert daemon.program(program.pid)["spatial"]["percent"] == 25  # type: ignore[index]


def test_set_sm_that_is_not_acknowledged_says_so_and_stands(daemon: Daemon, program: Program) -> None:
    done = daemon.ctl("set-sm", str(program.pid), "25", "--timeout", "0.3")
    assert done.returncode == 1
    assert "did not acknowledge within 0.3 s" in done.stderr
    assert "next: the change stands" in done.stderr
    until(lambda: daemon.program(program.pid)["spatial"]["idle_sms"] == 32)  # type: ignore[index]
    assert program.process.poll() is None


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["set-sm", "PID", "0"], 2, "range 1<=x<=100"),
        (["set-sm", "PID", "101"], 2, "range 1<=x<=100"),
        (["set-sm", "4194303", "25"], 1, "there is no process 4194303"),
        (["set-sm", "1", "25"], 1, "not in the spatial lane: start it with detshare run"),
        (["hold", "4194303"], 1, "there is no process"),
        (["hold", "1000"], 1, "not in the spatial lane: start it with detshare run"),  # one of the model's
        (["park", "1000"], 1, "its memory cannot leave: start it with detshare run --park"),
        (["migrate", "1000", "1"], 1, "backend model moves nobody"),
        (["reserve", "30"], 2, "take 24 or 32"),
        (["reserve", "many"], 2, "is no number of SMs"),
        (["set-reflex", "low", "--busy", "last:8"], 2, "is no set of SMs"),
        (["set-reflex", "low", "--idle", "first:30"], 2, "take 24 or 32"),
        (["set-weight", "PID", "3"], 1, "use set-priority or set-sm"),
        (["preempt", "PID"], 1, "use set-priority or set-sm"),
    ],
)
def test_what_cannot_be_is_said(refusing: tuple[Daemon, Program], words: list[str], code: int, told: str) -> None:
    daemon, program = refusing
    before = daemon.program(program.pid)
    done = daemon.ctl(*(str(program.pid) if word == "PID" else word for word in words))
    assert done.returncode == code
    assert told in done.stderr
    assert program.process.poll() is None
    after = daemon.program(program.pid)
    assert [after[each] for each in ASKED] == [before[each] for each in ASKED]


@pytest.mark.parametrize("percent", [0, 101, True, "25"])
def test_the_api_refuses_the_same(refusing: tuple[Daemon, Program], percent: object) -> None:
    daemon, program = refusing
    with pytest.raises(ControlError) as refused:
        Client(daemon.folder).verb("set-sm", str(program.pid), percent=percent)
    assert refused.value.usage


def test_hold_resume_release(daemon: Daemon, program: Program) -> None:
    pid = str(program.pid)
    assert "held from its next kernel boundary on" in daemon.ctl("hold", pid).stdout
    assert daemon.program(program.pid)["state"] == "paused"
    assert "held by hand" in daemon.ctl("show", pid).stdout
    assert daemon.ctl("resume", pid).returncode == 0
    assert daemon.program(program.pid)["state"] == "spatial"
    assert daemon.ctl("pause", pid).returncode == 0
    assert daemon.ctl("set-priority", pid, "low").returncode == 0
    assert daemon.program(program.pid)["class"] == "low"
    assert daemon.ctl("release", pid).returncode == 0
    mine = daemon.program(program.pid)
    assert (mine["state"], mine["class"]) == ("spatial", "normal")
    assert "nothing was set for it" in daemon.ctl("release", pid).stderr


def test_a_pattern_reaches_both_lanes(daemon: Daemon, program: Program) -> None:
    done = json.loads(daemon.ctl("set-priority", "*", "low", "--json").stdout)
    pids = [change["pid"] for change in done["changed"]]
    assert program.pid in pids
    assert len(pids) == len(set(pids)) > 1


def test_a_reflex_of_a_class(daemon: Daemon, program: Program) -> None:
    pid = str(program.pid)
    assert Client(daemon.folder).verb("set-reflex", "normal", busy="rest:32", idle="first:64")["changed"]
    lane = daemon.program(program.pid)["spatial"]
    assert lane["idle"] == "the first 64 SMs"  # type: ignore[index]
    assert lane["busy"] == "the 100 SMs after the first 32"  # type: ignore[index]
    assert "class normal" in daemon.ctl("set-reflex", "normal", "--busy", "hold").stdout
    assert daemon.program(program.pid)["spatial"]["busy"] == "held"  # type: ignore[index]
    program.send("acks 2")
    assert daemon.ctl("set-sm", pid, "12").returncode == 0
    assert daemon.ctl("set-reflex", "normal", "--idle", "full").returncode == 0
    assert daemon.program(program.pid)["spatial"]["idle_sms"] == 8  # type: ignore[index]  # its own share goes before
    assert daemon.ctl("set-reflex", "normal").returncode == 0


def test_doctor_has_lines_for_the_lane(daemon: Daemon, program: Program) -> None:
    checks = {check["name"]: check for check in Client(daemon.folder).doctor()["checks"]}
    assert checks["spatial lane"]["ok"] is True
    assert "1 program(s)" in checks["spatial lane"]["detail"]
    assert "not started" in checks["mps server"]["detail"]


def test_a_killed_daemon_is_followed_by_one_that_goes_on(daemon: Daemon, program: Program) -> None:
    pid = str(program.pid)
    program.send("acks 2")
    assert daemon.ctl("set-sm", pid, "25").returncode == 0
    assert daemon.ctl("hold", pid).returncode == 0
    daemon.stop(signal.SIGKILL)
    daemon.start()
    until(lambda: any(p["pid"] == program.pid for p in Client(daemon.folder).programs()["programs"]))
    mine = daemon.program(program.pid)
    assert mine["state"] == "paused"
    assert mine["spatial"]["idle_sms"] == 32  # type: ignore[index]
    assert program.process.poll() is None


def test_without_a_daemon_the_verbs_name_it(folder: Path) -> None:
    for words in (["set-sm", "1", "25"], ["hold", "1"], ["reserve", "32"]):
        command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(folder), *words]
        done = run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "needs the daemon" in done.stderr


def test_a_taken_board_directory_costs_only_the_spatial_lane(daemon: Daemon, folder: Path) -> None:
    other = folder / "other"
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model", "--run-dir", str(other)]
    second = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=daemon.environment)
    try:
        until(lambda: Client(other).alive())
        checks = {check["name"]: check for check in Client(other).doctor()["checks"]}
        assert checks["spatial lane"]["ok"] is False
        assert f"another daemon (PID {daemon.process.pid})" in checks["spatial lane"]["detail"]
        with pytest.raises(ControlError, match="spatial lane is off"):
            Client(other).verb("set-sm", "1", percent=25)
    finally:
        second.terminate()
        ended(second)
